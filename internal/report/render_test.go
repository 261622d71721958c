package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

var update = flag.Bool("update", false, "write the golden files")

// brief reports whether a form shows only what comes first: the full ones have the rest.
func brief(form string) bool { return form == "screen.txt" || form == "brief.md" }

// renderers are all forms to print a document.
func renderers() map[string]func(*analysis.Document) ([]byte, error) {
	return map[string]func(*analysis.Document) ([]byte, error){
		"html": HTML, "md": Markdown, "cells.csv": CSV, "long.csv": CSVLong, "json": JSON,
		"80.txt":  func(d *analysis.Document) ([]byte, error) { return []byte(Text(d, 80, false)), nil },
		"200.txt": func(d *analysis.Document) ([]byte, error) { return []byte(Text(d, 200, false)), nil },
		"120.txt": func(d *analysis.Document) ([]byte, error) { return []byte(Text(d, 120, true)), nil },
		"screen.txt": func(d *analysis.Document) ([]byte, error) {
			return []byte(Screen(d, 80, false)), nil
		},
		"brief.md": Brief,
	}
}

func isCSV(ext string) bool { return strings.HasSuffix(ext, "csv") }

func TestGolden(t *testing.T) {
	for name, d := range samples() {
		for ext, render := range renderers() {
			t.Run(name+"."+ext, func(t *testing.T) {
				got, err := render(d)
				if err != nil {
					t.Fatal(err)
				}

				again, err := render(samples()[name])
				if err != nil {
					t.Fatal(err)
				}

				if !bytes.Equal(got, again) {
					t.Error("the same document gave other bytes")
				}

				data := isCSV(ext) || ext == "html"
				if ext == "json" || data != (name == "small") {
					return // the goldens of the small document hold the form of the large ones
				}

				golden(t, name+"."+ext, savedFiles.ReplaceAllFunc(got, func(b []byte) []byte {
					return fmt.Appendf(nil, "data:crc32=%08x", crc32.ChecksumIEEE(b))
				}))
			})
		}
	}
}

// savedFiles are the saved charts, which repeat what the page draws.
var savedFiles = regexp.MustCompile(`data:image/svg\+xml,[^"]+`)

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}

	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	if !bytes.Equal(got, want) {
		g := strings.Split(string(got), "\n")
		w := strings.Split(string(want), "\n")
		t.Errorf("%s differs; run with -update and look at the change (-got +want):\n%.2000s", path,
			cmp.Diff(g, w))
	}
}

// squeeze drops what renderers may add to a text: breaks, escapes, indents.
func squeeze(s string) string {
	return strings.Join(strings.Fields(strings.NewReplacer(`\`, "", "&lt;", "<", "&gt;", ">", "&amp;",
		"&").Replace(printable(s))), "")
}

// TestNothingIsDropped: caveats, reasons, failures, skips and misses in = caveats, reasons, failures, skips
// and misses out.
func TestNothingIsDropped(t *testing.T) {
	for name, d := range samples() {
		for ext, render := range renderers() {
			if isCSV(ext) || ext == "120.txt" || ext == "80.txt" || brief(ext) {
				continue // CSV has their kinds, below; on a narrow screen labels break over lines
			}

			t.Run(name+"."+ext, func(t *testing.T) {
				out, err := render(d)
				if err != nil {
					t.Fatal(err)
				}

				text := string(out)
				switch ext {
				case "html":
					text = elements(t, out, func(xml.StartElement) {})
				case "json":
					text = jsonText(t, out)
				}

				text = squeeze(text)
				for _, want := range sayings(d) {
					if !strings.Contains(text, squeeze(want)) {
						t.Errorf("not shown: %s", want)
					}
				}
			})
		}
	}
}

// jsonText joins all strings of a document.
func jsonText(t *testing.T, data []byte) string {
	var b strings.Builder
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			b.WriteString(v + "\n")
		case []any:
			for _, x := range v {
				walk(x)
			}
		case map[string]any:
			for _, x := range v {
				walk(x)
			}
		}
	}
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}

	walk(v)
	return b.String()
}

// sayings is every text of a document that must reach the page.
func sayings(d *analysis.Document) []string {
	out := append([]string{d.Run.ID, d.Run.Reason, d.Run.Status}, d.Summary...)
	caveats := func(list []record.Caveat) {
		for _, c := range list {
			out = append(out, c.Kind, c.Text)
		}
	}
	caveats(d.Caveats)
	for _, c := range d.Cells {
		out = append(out, c.Label, c.Grade)
		caveats(c.Caveats)
		for _, r := range c.Reasons {
			out = append(out, r.Kind, r.Text)
		}

		for _, f := range c.Findings {
			out = append(append(out, f.Kind, f.Text), f.Words...)
		}
	}

	for _, x := range d.Verdicts {
		out = append(out, x.Text)
	}

	for _, k := range d.Trials {
		caveats(k.Caveats)
		if k.Failure != nil {
			out = append(out, k.Failure.Phase, k.Failure.Error, k.Failure.Hint)
		}
	}

	for _, s := range d.Skipped {
		out = append(out, s.Reason)
	}

	for _, k := range d.Thresholds {
		out = append(out, strings.ReplaceAll(k.Requirement, "`", "'"), k.Reason)
	}

	for _, k := range d.Comparisons {
		out = append(append(out, k.Verdict, k.Name), k.Confounders...)
	}

	return append(out, d.Run.Cuts...)
}

// readCSV returns the lines of a table below its head, and the place of each column.
func readCSV(t *testing.T, text []byte, err error) (column map[string]int, lines [][]string) {
	t.Helper()
	if err == nil {
		lines, err = csv.NewReader(bytes.NewReader(bytes.TrimPrefix(text, []byte("\uFEFF")))).ReadAll()
	}

	if err != nil {
		t.Fatal(err)
	}

	column = map[string]int{}
	for i, name := range lines[0] {
		if _, twice := column[name]; twice {
			t.Errorf("two columns are called %s", name)
		}

		column[name] = i
	}

	return column, lines[1:]
}

// TestCSVOfCells: a line for each cell, with every number as the document has it.
func TestCSVOfCells(t *testing.T) {
	numbers := 0
	for name, d := range samples() {
		text, err := CSV(d)
		column, lines := readCSV(t, text, err)
		if len(lines) != len(d.Cells)+len(d.Skipped) {
			t.Fatalf("%s: got %d lines, want %d", name, len(lines), len(d.Cells)+len(d.Skipped))
		}

		for i, k := range d.Skipped {
			line := lines[len(d.Cells)+i]
			got := []string{line[column["cell"]], line[column["grade"]], line[column["reasons"]],
				line[column["trials"]]}
			want := []string{k.Factors.ID(), "skipped", printable(k.Reason), "0"}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: a skipped cell (-want +got):\n%s", name, diff)
			}
		}

		for i, line := range lines[:len(d.Cells)] {
			c := d.Cells[i]
			at := func(name string) string { return strings.TrimPrefix(line[column[name]], "'") }
			head := []string{at("cell"), at("label"), at("grade"), at("trials")}
			want := []string{c.Factors.ID(), printable(c.Label), c.Grade, strconv.Itoa(c.Runs)}
			if diff := cmp.Diff(want, head); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}

			for factor, level := range c.Factors {
				if at(factor) != printable(level) {
					t.Errorf("%s: %s is %q, want %q", name, factor, at(factor), level)
				}
			}

			for _, r := range c.Reasons {
				if !slices.Contains(strings.Fields(at("reasons")), r.Kind) {
					t.Errorf("%s: %s: reasons %q lack %s", name, c.Label, at("reasons"), r.Kind)
				}
			}

			if c.Diagnosis != nil && at("bottleneck") != c.Diagnosis.Class {
				t.Errorf("%s: bottleneck %q, want %s", name, at("bottleneck"), c.Diagnosis.Class)
			}

			for _, m := range []string{goodput, packetRate, lossRatio, idleP50, loadedP99, hostCore} {
				x, ok := c.Metrics[m]
				if _, shown := column[m+"_median"]; !shown {
					if ok {
						t.Errorf("%s: no column of %s", name, m)
					}
					continue
				}

				median, _ := strconv.ParseFloat(at(m+"_median"), 64)
				if (at(m+"_n") != "") != ok || median != x.Median ||
					(at(m+"_low") != "") != (ok && hasInterval(x)) {
					t.Errorf("%s: %s of %s: got %q, want %+v", name, m, c.Label, line, x)
				}

				numbers++
			}
		}
	}

	if numbers < 100 {
		t.Errorf("only %d numbers were compared", numbers)
	}
}

func TestCSVLong(t *testing.T) {
	d := damagedDocument()
	text, err := CSVLong(d)
	column, lines := readCSV(t, text, err)
	values := map[string]string{}
	seen := map[string]bool{}
	kinds := ""
	for _, l := range lines {
		for i := range d.Cells {
			c := &d.Cells[i]
			x, ok := c.Metrics[l[column["metric"]]]
			if t := d.Trials[slices.IndexFunc(d.Trials, func(t analysis.TrialView) bool {
				return t.ID == l[column["trial"]]
			})]; !ok || t.Factors.Key() != c.Factors.Key() || t.Kind != record.RowLoad {
				continue
			}

			if l[column["cell"]] != c.Factors.ID() || l[column["cell_grade"]] != c.Grade ||
				l[column["cell_n"]] != strconv.Itoa(x.N) || l[column["cell_interval"]] != x.Interval ||
				(l[column["cell_low"]] != "") != hasInterval(x) {
				t.Errorf("what the cell has of %s: %q, want %s, %+v", l[column["metric"]], l, c.Grade, x)
			}
		}

		seen[l[column["trial"]]] = true
		values[l[column["trial"]]+" "+l[column["metric"]]] = l[column["value"]]
		kinds += " " + l[column["caveats"]] + " "
	}

	for _, k := range d.Trials {
		if !seen[k.ID] {
			t.Errorf("trial %s is missing", k.ID)
		}

		for name, want := range k.Metrics {
			got, err := strconv.ParseFloat(values[k.ID+" "+name], 64)
			if err != nil || got != want {
				t.Errorf("%s of %s = %q, want %v", name, k.ID, values[k.ID+" "+name], want)
			}
		}
	}

	for _, kind := range []string{"few-runs", "userspace-tunnel", "idle-caches", "hostile"} {
		if !strings.Contains(kinds, " "+kind+" ") {
			t.Errorf("caveat %s is not in the CSV", kind)
		}
	}
}

func TestJSONIsTheDocument(t *testing.T) {
	d := sampleDocument()
	d.Catalogue = nil // not part of it
	out, err := JSON(d)
	if err != nil {
		t.Fatal(err)
	}

	var got analysis.Document
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}

	diff := cmp.Diff(&got, d)
	if diff != "" {
		t.Errorf("document differs (-got +want):\n%.2000s", diff)
	}
}

func TestTextKeepsItsWidth(t *testing.T) {
	for name, d := range samples() {
		for _, width := range []int{40, 60, 80, 100, 160} {
			for _, line := range strings.Split(Text(d, width, false)+Screen(d, width, false), "\n") {
				// A single word may be longer than the screen.
				n := utf8.RuneCountInString(line)
				if n > width && len(strings.Fields(line)) > 3 {
					t.Errorf("%s at %d: a line of %d: %s", name, width, n, line)
				}
			}
		}
	}
}

func TestTextColourAddsNoWord(t *testing.T) {
	d := sampleDocument()
	plain := Text(d, 100, false) + Screen(d, 100, false)
	coloured := Text(d, 100, true) + Screen(d, 100, true)
	for _, code := range []string{"0", bold, dim, red, green, yellow} {
		coloured = strings.ReplaceAll(coloured, "\x1b["+code+"m", "")
	}

	if strings.Contains(plain, "\x1b") {
		t.Error("plain text holds an escape sequence")
	}

	strip := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	if strip(coloured) != strip(plain) {
		t.Error("colour changes the words")
	}
}

// TestCSVOpensInASpreadsheet: what Excel and LibreOffice need to show it as it is meant.
func TestCSVOpensInASpreadsheet(t *testing.T) {
	d := damagedDocument()
	d.Trials[0].Missing = map[string]string{"a": "=1+1", "b": "+x", "c": "a-b"}
	d.Trials[0].Metrics = map[string]float64{"goodput_bps": 1.5e21, "clock_offset_ns": -3}
	out, err := CSVLong(d)
	if err != nil {
		t.Fatal(err)
	}

	if !bytes.HasPrefix(out, []byte("\xef\xbb\xbfrun,trial,")) {
		t.Errorf("begins with %q, want the mark of UTF-8", out[:8])
	}

	for _, want := range []string{",'=1+1,", ",'+x,", ",a-b,", ",1500000000000000000000,,", ",-3,,"} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("got no %q", want)
		}
	}
}
