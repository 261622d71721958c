package app

import (
	"context"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
)

// Compare compares two stored runs, the second with the first, and returns their documents as well.
func (a *App) Compare(ctx context.Context, first, second string) (c *analysis.RunComparison,
	docs [2]*analysis.Document, err error) {
	for i, name := range []string{first, second} {
		if docs[i], err = a.Dirs.Document(ctx, name); err != nil {
			return nil, docs, err
		}
	}

	id := docs[0].Run.ID
	if id == docs[1].Run.ID {
		return nil, docs, Usage("chokepoint list shows the runs", "%s and %s are the same run, %s", first,
			second, id)
	}

	return analysis.CompareRuns(docs[0], docs[1]), docs, nil
}
