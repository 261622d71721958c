package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/foreign"
	"github.com/chokepoint-lab/chokepoint/internal/userfile"
)

func newImportCommand(p *program) *cobra.Command {
	var into string
	var undo, clockWrong bool
	var o foreignOptions
	cmd := &cobra.Command{
		Use:   "import (FILE… | --undo)",
		Short: "Import results of other programs, or add a router's recording to a run",
		Long: `Make a stored run from results of other programs, to show, compare and report them. The
format of a FILE is detected from its content. Results with the same conditions are
repetitions of one cell. The run lists what they lack. If a file is damaged, the error
names the place, and nothing is stored.

Or add a recording to a stored run: what chokepoint-agent recorded on the router between
two machines, because the run itself could not reach the router. FILE is the output of
one of these commands, or - to read it from standard input:

  chokepoint-agent probe --json    during the run
  chokepoint-agent environment     at any time

The recording is aligned with the run by its traffic; the router's clock must be right
to within two minutes. A new import replaces an earlier one.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if undo {
				return atMost(0)(cmd, args)
			}

			if len(args) > 1 && !cmd.Flags().Changed("into") && !clockWrong {
				return nil
			}
			return exactArgs("FILE")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if undo {
				return p.summary(p.Dirs.ForgetRecording(ctx, into))
			}

			if err := o.labels.check(); err != nil {
				return err
			}

			debug.SetMemoryLimit(app.DocumentMemory)
			if o.from != "" || len(o.sets) > 0 || len(args) > 1 || o.labels.given() {
				return p.importForeign(ctx, args, nil, o)
			}

			in, err := openImport(ctx, args[0], p.In)
			if err != nil {
				return err
			}
			defer in.close()
			if document().Match(in.head()) {
				return app.Usage(
					"show, report, compare, effects and diagnose read such a file in place of RUN",
					"import %s: this is a run's document, by chokepoint", in.name)
			}

			if !cmd.Flags().Changed("into") && !clockWrong && !in.recorded() {
				return p.importForeign(ctx, args, in, o)
			}

			return in.add(ctx, into, clockWrong, p)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.from, "from", "", "the files are in this `FORMAT`: "+formatWords())
	completeOne(cmd, "from", foreign.Formats())
	f.StringArrayVar(&o.sets, "set", nil,
		"a condition of all results, as `FACTOR=LEVEL`; an empty level removes the factor")
	f.BoolVar(&undo, "undo", false, "remove what was imported")
	f.BoolVar(&clockWrong, "clock-wrong", false,
		"align by traffic alone: the router's clock is off by more than two minutes")
	cmd.MarkFlagsMutuallyExclusive("undo", "clock-wrong")
	f.StringVar(&into, "into", "latest", "the `RUN` that the recording belongs to")
	o.labels.addFlags(f)
	for _, flag := range []string{"into", "undo", "clock-wrong"} {
		for foreign := range strings.FieldsSeq("from set name device note") {
			cmd.MarkFlagsMutuallyExclusive(foreign, flag)
		}
	}

	return addJSON(cmd, "for results of other programs: print one JSON object")
}

func formatWords() string {
	names := foreign.Formats()
	return list(names[:4]) + ",\n" + list(names[4:])
}

// maxImportBytes is the maximum size of a file to import. It is enough for one sample per second for a day.
const maxImportBytes = 1 << 30

// input is a file to import, or a copy of standard input. It can be read several times.
type input struct {
	seeker
	name  string
	close func() error
}

type seeker interface {
	io.ReadSeeker
	io.ReaderAt
}

// openImport opens a file or standard input, and decodes it to UTF-8.
func openImport(ctx context.Context, file string, stdin io.Reader) (*input, error) {
	in, err := openAsIs(ctx, file, stdin)
	if err != nil {
		return nil, err
	}

	if !foreign.Encoded(in.head()) {
		return in, nil
	}

	text, err := foreign.Text(in)
	if err != nil {
		return nil, errors.Join(in.wrong(err), in.close())
	}

	in.seeker = bytes.NewReader(text)
	return in, nil
}

// wrong wraps an error from reading a file. It returns a usage error if the content is wrong.
func (in *input) wrong(err error) error {
	if wrong, ok := errors.AsType[*foreign.Error](err); ok {
		return app.Usage(check.HintOf(wrong), "import %s: %s", in.name, check.Plain(wrong.Error()))
	}
	return fmt.Errorf("import %s: %w", in.name, err)
}

// head returns the beginning of the content, from which its format is detected. If it cannot be read, the
// next read returns the error again.
func (in *input) head() []byte {
	head := make([]byte, 4096)
	n, _ := in.ReadAt(head, 0)
	return head[:n]
}

// openAsIs opens a regular file, or reads standard input until its end or an interrupt.
func openAsIs(ctx context.Context, file string, stdin io.Reader) (*input, error) {
	if file != standard {
		f, err := userfile.OpenRegular(file)
		if err != nil {
			return nil, app.Usage("name a file, or - for standard input", "import %s: %v", file, err)
		}
		return &input{f, check.Plain(filepath.Base(file)), f.Close}, nil
	}

	in := &input{name: "standard input", close: func() error { return nil }}
	if f, ok := stdin.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			in.seeker = f
			return in, nil
		}
	}

	text, err := within(ctx, func() ([]byte, error) {
		return io.ReadAll(io.LimitReader(stdin, foreign.MaxText+1))
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("import %s: %w", in.name, err)
	case len(text) > foreign.MaxText:
		return nil, app.Usage("a recording of chokepoint-agent may be larger as a file",
			"import %s: it is larger than %d MiB", in.name, foreign.MaxText>>20)
	}

	in.seeker = bytes.NewReader(text)
	return in, nil
}

// ofAgent matches the beginning of the output of chokepoint-agent. object matches the beginning of a JSON
// object, possibly after a shell prompt.
var (
	ofAgent = check.Pattern(`^\{\s*"(format"\s*:\s*"chokepoint|at_ns"|node")`)
	object  = check.Pattern(`\{\s*"`)
	// document matches the beginning of the output of show --json.
	document = check.Pattern(`^\s*\{\s*"format"\s*:\s*"chokepoint/[0-9]+"\s*,\s*"run"`)
)

// recorded reports whether the content is output of chokepoint-agent. If so, it skips what precedes the
// output.
func (in *input) recorded() bool {
	head := in.head()
	found := object().FindIndex(head)
	if found == nil || !ofAgent().Match(head[found[0]:]) {
		return false
	}

	size, err := in.Seek(0, io.SeekEnd)
	if err == nil {
		in.seeker = io.NewSectionReader(in.seeker, int64(found[0]), size-int64(found[0]))
	}

	return err == nil
}

// add adds a recording of chokepoint-agent to a run.
func (in *input) add(ctx context.Context, into string, clockWrong bool, p *program) error {
	switch size, err := in.Seek(0, io.SeekEnd); {
	case err != nil:
		return fmt.Errorf("import %s: %w", in.name, err)
	case size > maxImportBytes:
		return app.Usage("cut it to the time of the run", "import %s: it is larger than 1 GiB", in.name)
	}

	return p.summary(p.Dirs.ImportRecording(ctx, into, in, in.name, clockWrong))
}

// summary prints what was done, unless it failed.
func (p *program) summary(text string, err error) error {
	if err != nil {
		return err
	}
	return p.print(check.Plain(text) + "\n")
}
