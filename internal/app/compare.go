package app

import (
	"context"
	"errors"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

// Compare compares the second of two stored runs with the first. It also returns their documents.
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

// Pair returns the ids of the named run and of the latest other run of the same plan, the older run first. It
// ignores runs that are still running, have no trial or cannot be read. If name is empty, Pair starts from
// the latest run that it does not ignore. If name is a document file, Pair returns name first, whatever the
// date of the run in the file. If no other run has the same plan, the error is an ErrUsage.
func (d Dirs) Pair(ctx context.Context, name string) (older, newer string, err error) {
	if IsDocumentFile(name) {
		newer, err = d.latestLike(ctx, name)
		return name, newer, err
	}

	st, err := d.OpenStore(ctx)
	if err != nil {
		return "", "", err
	}

	id := ""
	if name != "" {
		id, err = st.Resolve(ctx, name)
	}

	if err = errors.Join(ofRequest(err), st.Close()); err != nil {
		return "", "", err
	}

	runs, err := d.Runs(ctx)
	if err != nil {
		return "", "", err
	}

	runs = slices.DeleteFunc(runs, func(h store.Head) bool {
		return !compared(h) && h.ID != id
	})
	at := slices.IndexFunc(runs, func(h store.Head) bool { return id == "" || h.ID == id })
	if at < 0 {
		return "", "", Usage("chokepoint list shows the runs", "compare: no run has a result")
	}

	run := runs[at]
	other := slices.IndexFunc(runs, func(h store.Head) bool { return h.Plan == run.Plan && h.ID != run.ID })
	switch {
	case other < 0:
		return "", "", Usage(nameTwo, "compare: run %s is the only one of plan %s", run.ID, run.Plan)
	case other < at:
		return run.ID, runs[other].ID, nil
	}

	return runs[other].ID, run.ID, nil
}

const nameTwo = "name two runs: chokepoint compare RUN RUN; chokepoint list shows them"

// compared reports whether a run can be compared.
func compared(h store.Head) bool {
	return h.Damaged == "" && h.Trials > 0 && h.Status != record.RunRunning
}

// latestLike returns the latest stored run that has the same plan as a document file and is not the run in
// that file.
func (d Dirs) latestLike(ctx context.Context, file string) (string, error) {
	doc, err := readDocument(file)
	if err != nil {
		return "", err
	}

	runs, err := d.Runs(ctx)
	if err != nil {
		return "", err
	}

	for _, h := range runs {
		if compared(h) && h.Plan == doc.Run.Plan && h.ID != doc.Run.ID {
			return h.ID, nil
		}
	}

	return "", Usage(nameTwo, "compare: no other run of plan %s, that of %s, is stored", doc.Run.Plan, file)
}
