package app

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/userfile"
)

// maxDocumentBytes bounds the file of a document; that of a soak of a day has a tenth of it.
const maxDocumentBytes = 256 << 20

// IsDocumentFile reports whether a name is that of a file with a document, and not of a stored run.
func IsDocumentFile(name string) bool { return strings.HasSuffix(name, ".json") }

// readDocument reads the file of a document, as show --json prints it. Every error is an ErrUsage.
func readDocument(file string) (*analysis.Document, error) {
	const hint = "chokepoint show RUN --json > FILE writes one"
	data, err := userfile.Read(file, maxDocumentBytes)
	if err != nil {
		return nil, Usage(hint, "read the document %s: %v", file, check.Underlying(err))
	}

	d := &analysis.Document{}
	if err := json.Unmarshal(data, d); err != nil {
		return nil, Usage(hint, "read the document %s: %v", file, err)
	}

	// The id becomes part of paths.
	if d.Format != record.Format || !store.ValidID(d.Run.ID) {
		return nil, Usage(hint, "read the document %s: it has format %q and run %q, want %q and a run's id",
			file, d.Format, d.Run.ID, record.Format)
	}

	// A verdict is named by its first cell, and shown by another one.
	d.Verdicts = slices.DeleteFunc(d.Verdicts, func(v analysis.Verdict) bool {
		return v.Shown < 0 || v.Shown >= len(v.Cells)
	})
	d.Catalogue = registry.Catalogue()
	return d, nil
}
