package main

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/userfile"
)

// formats lists the formats of a report. The first is the default.
var formats = strings.Fields("html md csv json text svg png csv-long benchstat ministat openmetrics " +
	junitFormat + " wg-bench " + flentFormat + " " + articleFormat)

const junitFormat = "junit"

// standard stands for standard input or output in place of a file name.
const standard = "-"

type reportOptions struct {
	format, file string
	strict       bool
	pictureOptions
}

func newReportCommand(p *program) *cobra.Command {
	var o reportOptions
	cmd := &cobra.Command{
		Use:   "report [RUN]",
		Short: "Write the report of a stored run",
		Long: `Write the report of a stored run, the latest unless RUN is given.

html is one file that works offline. It is written to the run's data directory, and its
path is printed. md is a block to paste into a forum. md, csv, json and text go to
standard output. svg and png are a single chart that can be posted alone, with title,
legend, validity, run, machine and date. svg goes to standard output, png to a file next
to the report.

Other formats are for other programs and go to standard output. csv has a row for each
cell, csv-long for each trial and metric. benchstat and ministat compare runs,
openmetrics is for Prometheus, and wg-bench is a row for the tables of wg-bench. junit
reports validity and requirements to CI: a suspect cell is skipped with its reason, or
fails with --strict. flent writes a data file for each trial, which flent opens and
plots. These files are next to the report, or at FILE. If there are several, the trial's
name is inserted before .flent.gz.

article is a folder that can be published: a Markdown text with topology, method,
hardware, results, the bottleneck, a verdict for each use and the limits of the study,
its charts as SVG and PNG, the plan, and the cells as CSV. It is next to the report, or
at FILE, and replaces an older article there.`,
		Args:              optionalArg,
		ValidArgsFunction: completeRuns(p, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.validate(cmd.Flags().Changed("format")); err != nil {
				return err
			}

			if err := o.pictureOptions.validate(o.format); err != nil {
				return err
			}

			if o.strict && o.format != junitFormat {
				return app.Usage("add --format junit", "--strict is for junit")
			}
			return writeReport(cmd.Context(), runOf(args), o, p)
		},
	}
	cmd.Flags().StringVar(&o.format, "format", formats[0], "`FORMAT`: "+list(formats)+
		"; default: from the name of the file")
	o.add(cmd)
	cmd.Flags().BoolVar(&o.strict, "strict", false, "with junit: a suspect cell fails")
	addOutput(cmd, &o.file, "write to this `FILE`; - is standard output")
	return cmd
}

// validate checks the flags. If no format is set, it derives the format from the file name.
func (o *reportOptions) validate(formatGiven bool) error {
	extension := strings.TrimPrefix(strings.ToLower(filepath.Ext(o.file)), ".")
	if strings.HasSuffix(strings.ToLower(o.file), flentSuffix) {
		extension = flentFormat
	}

	if !formatGiven && slices.Contains(formats, extension) {
		o.format = extension
	}

	switch {
	case formatGiven || extension == "" || extension == "htm" || slices.Contains(formats, extension):
	case extension == "txt":
		o.format = "text"
	default:
		return unknownFile(o.file, "say which by --format: "+list(formats))
	}

	return known("--format %q is not known", o.format, "formats", formats...)
}

// addOutput adds the flag for the output file. The flag has the same name in all commands.
func addOutput(cmd *cobra.Command, file *string, usage string) {
	cmd.Flags().StringVarP(file, "output", "o", "", usage)
}

// htmlFile returns an error if an HTML file has another extension.
func htmlFile(file string) error {
	switch strings.ToLower(filepath.Ext(file)) {
	case "", ".html", ".htm":
		return nil
	}
	return unknownFile(file, "it is HTML here; chokepoint report writes other formats of a stored run")
}

func unknownFile(file, hint string) error {
	return app.Usage(hint, "--output %s: no format of a report has %s", file, filepath.Ext(file))

}

func writeReport(ctx context.Context, name string, o reportOptions, p *program) (err error) {
	if _, tty := asTerminal(p.Out); tty && o.format == flentFormat && o.file == standard {
		return app.Usage("add --output FILE, or send it to a file", "%s is not for a terminal", o.format)
	}

	doc, err := p.Dirs.Document(ctx, name)
	if err != nil {
		return err
	}

	if o.format == flentFormat && app.IsDocumentFile(name) {
		return app.Usage("name a stored run", "%s needs the trials, which the document %s lacks", o.format,
			name)
	}

	switch o.format {
	case flentFormat:
		return p.writeFlent(ctx, doc, o.file)
	case articleFormat:
		return p.writeArticle(ctx, name, doc, o.file)
	}

	document, fromFile := strings.CutSuffix(name, ".json")
	name, spare := "report.html", ".html"
	switch {
	case o.format == "png":
		name = filepath.Base(cmp.Or(o.chart, "chart")) + ".png"
		spare = "-" + name
	case o.format != "html" && o.file == "":
		o.file = standard
	}

	if o.file == standard {
		content, err := o.render(doc)
		if err != nil {
			return err
		}
		return p.print(string(content))
	}

	if fromFile && o.file == "" { // the run may be from another machine
		if o.file = document + spare; userfile.Exists(o.file) {
			return app.Usage("--output FILE names it or another", "write %s: it exists", o.file)
		}
	}

	file, create, err := p.Dirs.Place(doc.Run.ID, o.file, name)
	if o.file == "" && !app.CanWrite(p.Dirs.Data) && !app.CanWrite(filepath.Dir(file)) {
		p.note("%s cannot be written to; the report goes to this directory", p.Dirs.Data)
		file = "chokepoint-" + doc.Run.ID + spare
		err = nil
	}

	if err != nil {
		return err
	}

	out, err := create(file)
	if err != nil {
		return err
	}
	defer app.Closing(&err, out.Abort)
	content, err := o.render(doc)
	if err == nil {
		err = out.Commit(content)
	}

	if err != nil {
		return err
	}

	return p.print(file + "\n")
}
