package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/model"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/bundle"
	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/report"
	"github.com/chokepoint-lab/chokepoint/internal/userfile"
)

func newCatalogBuildCommand(p *program) *cobra.Command {
	var bundles, dir string
	cmd := &cobra.Command{
		Use:   "build --output DIR",
		Short: "Write the catalogue as a static site",
		Long: `Write the published results and your bundles as a static site: an index, a page for
each device and run, pages that compare devices, effects of factors, sources. It needs
no server and no network. The folder is new, empty, or an existing site, whose pages are
replaced.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return app.Usage("name a folder, such as --output site", "catalog build wants --output")
			}

			studies, own, err := p.collected(bundles)
			if err != nil {
				return err
			}

			pages, err := report.Site(collectionOf(studies, own))
			if err != nil {
				return err
			}

			return p.writeFolder(siteFolder(), dir, pages)
		},
	}
	addOutput(cmd, &dir, "write the site to this folder `DIR`")
	addBundles(cmd, &bundles)
	return cmd
}

// collectionOf joins the published studies with the user's bundles, and adds the models' effects and doubts.
func collectionOf(studies *catalogue.Catalogue, own []*bundle.Bundle) report.Collection {
	c := report.Collection{
		Catalogue: bundle.Join(studies, own),
		Bundles:   own,
		Effects:   map[string]model.Effects{},
		Doubts:    map[string][]string{},
	}
	for _, source := range studies.Sources {
		e := analysis.PublishedEffects(studies, source.ID)
		if e.Several() {
			c.Effects[source.ID] = e
		}
	}

	for _, device := range c.Names() {
		rows := slices.DeleteFunc(c.Filtered(catalogue.Filter{Device: device}), unsound)
		c.Doubts[device] = model.Impossible(c.Catalogue, rows, rows)
	}

	return c
}

// folder is a kind of directory that chokepoint writes as a whole and may update. A marker file identifies
// it and lists its files.
type folder struct {
	mark, format string // name and first line of the marker file
	what         string // such as "site"
	one          string // what with its indefinite article
	files        *regexp.Regexp
}

// siteFolder describes the directory of a site.
func siteFolder() folder {
	return folder{
		mark:   ".chokepoint-site",
		format: "chokepoint-site/1",
		what:   "site",
		one:    "a site",
		files:  regexp.MustCompile(`^[a-z0-9-]+\.html$`),
	}
}

// maxFolderMark is the maximum size of a marker file.
const maxFolderMark = 1 << 20

// writeFolder writes files to a directory and prints the path of the first file.
func (p *program) writeFolder(k folder, dir string, files []report.File) error {
	first, err := k.write(dir, files)
	if err != nil {
		return err
	}
	return p.print(first + "\n")
}

// write writes files to a directory and returns the path of the first file. It replaces each file atomically.
// Finally, it removes files that are no longer part of the content. It never changes files that the marker
// file does not list.
func (k folder) write(dir string, files []report.File) (first string, err error) {
	real, err := userfile.Resolve(dir)
	if err != nil {
		return "", err
	}

	old, err := k.filesOf(dir, real)
	if err != nil {
		return "", err
	}

	var names, below []string
	for _, f := range files {
		names = append(names, f.Name)
		if sub := filepath.Dir(f.Name); sub != "." && !slices.Contains(below, sub) {
			below = append(below, sub)
		}

		if !slices.Contains(old, f.Name) && userfile.Exists(filepath.Join(real, f.Name)) {
			return "", k.foreign(dir, fmt.Sprintf("it holds %s, which is not of %s of chokepoint", f.Name,
				k.one))
		}
	}

	for _, sub := range slices.Concat([]string{""}, below) {
		at := filepath.Join(real, sub)
		if err := os.Mkdir(at, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", app.Hinted("name a folder in one that exists", "make directory %s: %w",
				filepath.Join(dir, sub), check.Underlying(err))
		}
	}

	put := func(name string, content []byte) error {
		return userfile.Put(userfile.Create, filepath.Join(real, name), content)
	}
	mark := func(names []string) error {
		return put(k.mark, []byte(k.format+"\n"+strings.Join(names, "\n")+"\n"))
	}
	gone := slices.DeleteFunc(old, func(name string) bool { return slices.Contains(names, name) })
	err = mark(slices.Concat(names, gone)) // list new and old files, in case this is interrupted
	for _, f := range files {
		if err == nil {
			err = put(f.Name, f.Content)
		}
	}

	for _, name := range gone {
		if err == nil {
			if err = os.Remove(filepath.Join(real, name)); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		}
	}

	if err == nil {
		err = mark(names)
	}

	return filepath.Join(dir, files[0].Name), err
}

// filesOf returns the files listed in the marker file of a directory, or none if the directory is new or
// empty.
func (k folder) filesOf(dir, real string) ([]string, error) {
	entries, err := os.ReadDir(real)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil, nil
	}

	if err != nil {
		return nil, app.Usage("", "write %s: %w", dir, check.Underlying(err))
	}

	text, err := userfile.Read(filepath.Join(real, k.mark), maxFolderMark)
	lines := strings.Fields(string(text))
	if err != nil || len(lines) == 0 || lines[0] != k.format {
		return nil, k.foreign(dir, "it is not empty, and no "+k.what+" of chokepoint")
	}

	for _, name := range lines[1:] {
		if !k.files.MatchString(name) {
			return nil, k.foreign(dir, fmt.Sprintf("%s names %q, which is no file of %s", k.mark, name,
				k.one))
		}
	}

	return lines[1:], nil
}

func (k folder) foreign(dir, why string) error {
	return app.Usage("name a folder that is new or empty", "write %s: %s", dir, why)
}
