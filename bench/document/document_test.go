// Package document checks what show --json prints of a finished run. go test skips it unless -document names
// the file; with -report TestQuick also checks the page of the same run:
//
//	go -C bench test ./document -run TestQuick -document FILE -report FILE [-lab vm -flooded]
//	go -C bench test ./document -run TestSearches -document FILE [-spread .03] [-metrics LIST]
//	go -C bench test ./document -run TestObserving -document FILE
package document

import (
	"encoding/json"
	"flag"
	"os"
	"testing"
)

var file = flag.String("document", "", "output of show --json")

// document has the fields of docs/reference/json.md that the tests read. They are declared here once more, so
// that a renamed field fails a test.
type document struct {
	Format string
	Run    struct {
		ID, Plan, Lab, Status, Command string
		Method                         struct{ Seed string }
	}
	Cells     []cell
	Observing struct {
		CoreRatio    float64 `json:"core_ratio"`
		ChargedRatio float64 `json:"charged_ratio"`
		FastRatio    float64 `json:"fast_ratio"`
		Probes       map[string]float64
	}
}

type cell struct {
	Factors map[string]string
	Label   string
	Grade   string
	Reasons []struct{ Kind, Text string }
	Metrics map[string]value
	Ceiling struct {
		Kind             string
		HeaderEfficiency float64 `json:"header_efficiency"`
	}
	Runs, Failed int
}

type value struct {
	Median, Low, High float64
	N                 int
	Values            []float64
	Interval          string
}

func read(t *testing.T) document {
	t.Helper()
	if *file == "" {
		t.Skip("skip: -document names no run")
	}

	text, err := os.ReadFile(*file)
	if err != nil {
		t.Fatal(err)
	}

	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatalf("parse %s: %v", *file, err)
	}

	return d
}
