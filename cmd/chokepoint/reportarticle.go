package main

import (
	"context"
	"regexp"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/report"
	"github.com/chokepoint-lab/chokepoint/internal/userfile"
)

// articleFormat is the format of a directory with a text and its pictures.
const articleFormat = "article"

// articleFolder describes the directory of an article.
func articleFolder() folder {
	return folder{
		mark:   ".chokepoint-article",
		format: "chokepoint-article/1",
		what:   "article",
		one:    "an article",
		files:  regexp.MustCompile(`^(article\.md|plan\.yaml|cells\.csv|charts/[a-z0-9-]+\.(svg|png))$`),
	}
}

// writeArticle writes an article about a run or document to a directory, by default beside the run's
// report, and prints the path of its text.
func (p *program) writeArticle(ctx context.Context, name string, doc *analysis.Document, dir string) error {
	if dir == standard {
		return app.Usage("name a folder", "an article is a folder, which standard output cannot hold")
	}

	// The document may be from another machine.
	if document, ok := strings.CutSuffix(name, ".json"); ok && dir == "" {
		if dir = document + "-" + articleFormat; userfile.Exists(dir) {
			return app.Usage("--output FOLDER names it or another", "write %s: it exists", dir)
		}
	}

	dir, _, err := p.Dirs.Place(doc.Run.ID, dir, articleFormat)
	if err != nil {
		return err
	}

	plan, err := p.Dirs.PlanText(ctx, name)
	if err != nil {
		return err
	}

	files, err := report.Article(doc, plan)
	if err != nil {
		return err
	}

	return p.writeFolder(articleFolder(), dir, files)
}
