package main

import (
	"encoding/json"
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/report"
)

// render lays a document out in one of the formats.
func render(d *analysis.Document, format string) ([]byte, error) {
	switch format {
	case formatHTML:
		return report.HTML(d)
	case formatJSON:
		b, err := json.MarshalIndent(d, "", "  ")
		if err != nil {
			return nil, fmt.Errorf("encode run %s: %v", d.Run.ID, err)
		}
		return append(b, '\n'), nil
	}
	return nil, fmt.Errorf("render run %s: unknown format %q", d.Run.ID, format)
}
