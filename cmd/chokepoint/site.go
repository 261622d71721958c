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

			index, err := writeSite(dir, pages)
			if err != nil {
				return err
			}

			return p.print(index + "\n")
		},
	}
	addOutput(cmd, &dir, "write the site to this folder `DIR`")
	addBundles(cmd, &bundles)
	return cmd
}

// collectionOf adds the effects and doubts of the models to the results.
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
		c.Doubts[device] = model.Impossible(c.Catalogue, rows)
	}

	return c
}

// siteMark names the file that marks a directory as a site of ours and lists its pages.
const siteMark, siteFormat = ".chokepoint-site", "chokepoint-site/1"

// maxSiteMark bounds that file.
const maxSiteMark = 1 << 20

var pageName = regexp.MustCompile(`^[a-z0-9-]+\.html$`)

// writeSite writes the pages into a folder and returns the path of the index. Each page takes its place when
// it is whole; pages that are no more are removed last. No file is touched that is not of a site of ours.
func writeSite(dir string, pages []report.File) (index string, err error) {
	real, err := userfile.Resolve(dir)
	if err != nil {
		return "", err
	}

	old, err := pagesOf(dir, real)
	if err != nil {
		return "", err
	}

	var names []string
	for _, page := range pages {
		names = append(names, page.Name)
		if !slices.Contains(old, page.Name) && userfile.Exists(filepath.Join(real, page.Name)) {
			return "", errNoSite(dir, "it holds "+page.Name+", which is not of a site of chokepoint")
		}
	}

	if err := os.Mkdir(real, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", app.Hinted("name a folder in one that exists", "make directory %s: %w", dir,
			check.Underlying(err))
	}

	put := func(name string, content []byte) error {
		return userfile.Put(userfile.Create, filepath.Join(real, name), content)
	}
	mark := func(names []string) error {
		return put(siteMark, []byte(siteFormat+"\n"+strings.Join(names, "\n")+"\n"))
	}
	gone := slices.DeleteFunc(old, func(name string) bool { return slices.Contains(names, name) })
	err = mark(slices.Concat(names, gone)) // what is written now is known, if it ends here
	for _, page := range pages {
		if err == nil {
			err = put(page.Name, page.Content)
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

	return filepath.Join(dir, pages[0].Name), err
}

// pagesOf returns the pages that a directory's mark lists, or none if it is new or empty.
func pagesOf(dir, real string) ([]string, error) {
	entries, err := os.ReadDir(real)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil, nil
	}

	if err != nil {
		return nil, app.Usage("", "write %s: %w", dir, check.Underlying(err))
	}

	text, err := userfile.Read(filepath.Join(real, siteMark), maxSiteMark)
	lines := strings.Fields(string(text))
	if err != nil || len(lines) == 0 || lines[0] != siteFormat {
		return nil, errNoSite(dir, "it is not empty, and no site of chokepoint")
	}

	for _, name := range lines[1:] {
		if !pageName.MatchString(name) {
			return nil, errNoSite(dir, fmt.Sprintf("%s names %q, which is no page", siteMark, name))
		}
	}

	return lines[1:], nil
}

func errNoSite(dir, why string) error {
	return app.Usage("name a folder that is new or empty", "write %s: %s", dir, why)
}
