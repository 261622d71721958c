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

// maxDocumentBytes is the maximum size of a document file. The document of a 24-hour soak test is about a
// tenth of this size.
const maxDocumentBytes = 256 << 20

// IsDocumentFile reports whether name is a document file rather than a stored run.
func IsDocumentFile(name string) bool { return strings.HasSuffix(name, ".json") }

// readDocument reads a document file in the format of show --json. Every error is an ErrUsage.
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

	// The id is used in paths, so it must be valid.
	if d.Format != record.Format || !store.ValidID(d.Run.ID) {
		return nil, Usage(hint, "read the document %s: it has format %q and run %q, want %q and a run's id",
			file, d.Format, d.Run.ID, record.Format)
	}

	// Verdicts are shown with the cell at index Shown, which must exist.
	d.Verdicts = slices.DeleteFunc(d.Verdicts, func(v analysis.Verdict) bool {
		return v.Shown < 0 || v.Shown >= len(v.Cells)
	})
	d.Catalogue = registry.Catalogue()
	return d, nil
}
