package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/model"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/bundle"
	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
	"github.com/chokepoint-lab/chokepoint/internal/userfile"
)

// bundleDir returns the default directory of bundles.
func bundleDir(d app.Dirs) string { return filepath.Join(d.Data, "bundles") }

func addBundles(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "bundles", "",
		"use the bundles in this folder `DIR` (default: the folder in which catalog add stores them)")
}

func newCatalogAddCommand(p *program) *cobra.Command {
	var device, firmware, note, out string
	cmd := &cobra.Command{
		Use:   "add [RUN]",
		Short: "Make a file of a run to share with others",
		Long: `Make a bundle of a run: one file that others can add to their own bundles. Its results
then appear beside the published ones. It contains the run's numbers, but no name of a
host, user or file, no address and no key: docs/reference/bundle.md lists the contents.
It also contains --device, --firmware and --note exactly as you type them. Without
--device, it contains the device name stored in the run. The run's notes are not
included. Read the file before you share it.`,
		Args:              optionalArg,
		ValidArgsFunction: completeRuns(p, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := p.Dirs.Document(cmd.Context(), runOf(args))
			if err != nil {
				return err
			}

			if device == "" && d.Run.Device == "" {
				return app.Usage(
					"say which device the run measured, such as --device 'OpenWrt One'",
					"catalog add wants --device")
			}

			hint := ""
			if device == "" {
				hint = "--device NAME replaces what the run has"
				device = d.Run.Device
				p.note("the device is %q, as run %s has it", device, d.Run.ID)
			}

			d.Catalogue = registry.Catalogue() // leaves out labels from a plan
			b, err := bundle.New(device, firmware, note, d)
			if err != nil {
				return app.Mark(app.ErrUsage, check.WithHint(err, hint))
			}

			p.warnOfDoubts(b)
			return p.keep(b, out)
		},
	}
	f := cmd.Flags()
	f.StringVar(&device, "device", "",
		"`NAME` of the device; use the catalogue's name if it has one (default: the run's device)")
	f.StringVar(&firmware, "firmware", "",
		"system and version of the device, a `TEXT` such as 'OpenWrt 24.10.0'")
	f.StringVar(&note, "note", "", "one line of `TEXT` for those who read the bundle")
	addOutput(cmd, &out,
		"write to this `FILE` or folder; - is standard output (default: keep it beside the runs)")
	return cmd
}

// warnOfDoubts prints notes about the results of a bundle that are excluded from conclusions. The bundle
// itself contains their grades.
func (p *program) warnOfDoubts(b *bundle.Bundle) {
	lab := b.InPlace()
	if lab != "" {
		p.note("the run is of lab %s: this machine stood in for the device. Its results are marked so, and "+
			"advise and predict do not use them", lab)
	}

	n := 0
	for _, c := range b.Document.Cells {
		if c.Grade != evidence.GradeValid {
			n++
		}
	}

	if n > 0 {
		p.note("%d of %s suspect or failed: the bundle keeps the grade, and advise and predict do not use "+
			"them; chokepoint show %s says why", n, unit.Count(len(b.Document.Cells), "cell"),
			b.Document.Run.ID)
	}
}

// keep writes a bundle to a file, or to a directory under a name derived from its content.
func (p *program) keep(b *bundle.Bundle, place string) error {
	text, err := b.Encode()
	if err != nil {
		return err
	}

	if place == standard {
		return p.print(string(text))
	}

	if place == "" {
		place = bundleDir(p.Dirs)
		if err := app.Prepare(place); err != nil {
			return err
		}
	}

	if info, err := os.Stat(place); err == nil && info.IsDir() {
		place = filepath.Join(place, b.ID()+".json")
	}

	return p.put(userfile.Create, place, text)
}

// bundles reads the bundles in dir, sorted by name and without duplicates. If dir is empty, it reads the
// bundles that catalog add has stored, if any.
func (p *program) bundles(dir string) ([]*bundle.Bundle, error) {
	asked := dir != ""
	if !asked {
		dir = bundleDir(p.Dirs)
	}

	entries, err := os.ReadDir(dir)
	if !asked && errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}

	if err != nil {
		return nil, app.Usage("", "read bundles of %s: %w", dir, check.Underlying(err))
	}

	var all []*bundle.Bundle
	var wrong []error
	first := map[string]string{} // ID → file
	factors := registry.Catalogue()
	for _, e := range entries {
		if e.IsDir() || !strings.HasSuffix(e.Name(), ".json") {
			continue
		}

		file := filepath.Join(dir, e.Name())
		b, err := readBundle(file, factors)
		if err != nil {
			wrong = append(wrong, app.Mark(app.ErrUsage, err))
			continue
		}

		id := b.ID()
		before, twice := first[id]
		if twice {
			p.note("%s is the same bundle as %s: it counts once", file, before)
			continue
		}

		first[id] = file
		all = append(all, b)
	}

	return all, errors.Join(wrong...)
}

// readBundle reads a regular file that does not exceed the maximum size of a bundle.
func readBundle(file string, c *factor.Catalogue) (*bundle.Bundle, error) {
	f, err := userfile.OpenRegular(file)
	if err != nil {
		return nil, fmt.Errorf("read bundle %s: %w", file, err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, bundle.MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("read bundle %s: %w", file, check.Underlying(err))
	}

	return bundle.Read(file, content, c)
}

// collected returns the published studies and the bundles of a directory.
func (p *program) collected(dir string) (studies *catalogue.Catalogue, own []*bundle.Bundle, err error) {
	if studies, err = catalogue.Published(); err == nil {
		own, err = p.bundles(dir)
	}
	return studies, own, err
}

// joined returns the catalogue with the bundles in a directory. If run is not empty, it also returns that
// run's document, and omits bundles of the same run.
func (p *program) joined(ctx context.Context, dir, run string) (*catalogue.Catalogue,
	*analysis.Document, error) {
	studies, own, err := p.collected(dir)
	if err != nil {
		return nil, nil, err
	}

	if run == "" {
		return bundle.Join(studies, own), nil, nil
	}

	d, err := p.Dirs.Document(ctx, run)
	if err != nil {
		return nil, nil, err
	}

	all := len(own)
	own = slices.DeleteFunc(own, func(b *bundle.Bundle) bool { return b.Document.Run.ID == d.Run.ID })
	n := all - len(own)
	if n > 0 {
		p.note("run %s is not compared with itself: %s of it left out", d.Run.ID, unit.Count(n, "bundle"))
	}

	return bundle.Join(studies, own), d, nil
}

// soundCatalogue returns a catalogue from which conclusions may be drawn, and the models' errors on published
// results. The catalogue aside holds what c leaves out: doubtful results, and cipher speeds that are not
// comparable with published speeds.
func (p *program) soundCatalogue(dir string) (c, aside *catalogue.Catalogue, scores []model.Errors,
	err error) {
	studies, own, err := p.collected(dir)
	if err != nil {
		return nil, nil, nil, err
	}

	c = bundle.Join(studies, own)
	unlike := func(s catalogue.Speed) bool {
		_, published := studies.Source(s.Source)
		return !published && s.Mode != ""
	}
	aside = &catalogue.Catalogue{
		Results: without(c.Results, bundle.Sound),
		Speeds:  without(c.Speeds, func(s catalogue.Speed) bool { return !unlike(s) }),
	}
	c.Results, c.Speeds = slices.DeleteFunc(c.Results, unsound), slices.DeleteFunc(c.Speeds, unlike)
	return c, aside, model.LeaveOneOut(studies, studies.Results, model.OfPublished), nil
}

// uncounted describes how many results and speeds of a device are excluded, or returns "" if there are none.
func uncounted(aside *catalogue.Catalogue, device string) string {
	rates := len(aside.Filtered(catalogue.Filter{Device: device}))
	speeds := 0
	for _, s := range aside.Speeds {
		if strings.EqualFold(s.Device, device) {
			speeds++
		}
	}

	var words []string
	if rates > 0 {
		words = append(words, unit.Count(rates, "own result")+
			" not counted: suspect, or of a lab in place of the device")
	}

	if speeds > 0 {
		words = append(words, unit.Count(speeds, "own speed")+" of ciphers not counted: suspect, of a lab "+
			"in place of the device, or not made as published ones are")
	}

	return strings.Join(words, "; ")
}

func unsound(r catalogue.Result) bool { return !bundle.Sound(r) }
