package report

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestParquet: the rows hold every number of every trial, and what each cell says.
func TestParquet(t *testing.T) {
	for name, d := range samples() {
		b, err := Parquet(d)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Parquet(d); err != nil || !bytes.Equal(b, again) {
			t.Errorf("%s: the same document gave other bytes (%v)", name, err)
		}
		rows, err := parquet.Read[parquetRow](bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		trials, got, want := map[string]bool{}, 0.0, 0.0
		for _, r := range rows {
			trials[r.Trial] = true
			if r.Value != nil {
				got += *r.Value
			}
			if r.Value != nil && r.CellN == 0 && r.Kind == "load" && r.Grade != "failed" &&
				d.Searching == nil {
				t.Errorf("%s: %s of trial %s has no number of its cell", name, r.Metric, r.Trial)
			}
		}
		for i := range d.Trials {
			for _, v := range d.Trials[i].Metrics {
				want += v
			}
		}
		if len(trials) != len(d.Trials) || math.Abs(got-want) > 1e-9*math.Abs(want) {
			t.Errorf("%s: %d trials with a sum of %g, want %d with %g", name, len(trials), got, len(d.Trials),
				want)
		}
	}
}

// condition is one of a query.
var condition = regexp.MustCompile(`(metric|kind) = '([^']*)'`)

// TestDocumentedQuery: the rows that the documented query chooses have the median that a report shows, also
// where trials that verify content are slower.
func TestDocumentedQuery(t *testing.T) {
	page, err := os.ReadFile("../../docs/howto/import-and-export.md")
	if err != nil {
		t.Fatal(err)
	}
	_, query, _ := strings.Cut(string(page), "FROM 'run.parquet'")
	query, _, ok := strings.Cut(query, ";")
	if !ok {
		t.Fatal("there is no query of run.parquet")
	}
	want := map[string]string{}
	for _, c := range condition.FindAllStringSubmatch(query, -1) {
		want[c[1]] = c[2]
	}
	d := sampleDocument()
	for _, x := range slices.Clone(d.Trials) {
		if _, has := x.Metrics[goodput]; has && x.Kind == record.RowLoad {
			x.Kind, x.Metrics = record.RowVerify, map[string]float64{goodput: 1}
			d.Trials = append(d.Trials, x)
		}
	}
	b, err := Parquet(d)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := parquet.Read[parquetRow](bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	values, medians := map[string][]float64{}, map[string]float64{}
	for _, r := range rows {
		match := map[string]string{"metric": r.Metric, "kind": r.Kind}
		for name, level := range want {
			if match[name] != level {
				r.Value = nil
			}
		}
		if r.Value != nil && r.Median != nil {
			values[r.Cell], medians[r.Cell] = append(values[r.Cell], *r.Value), *r.Median
		}
	}
	if len(values) < 2 {
		t.Fatalf("the query chooses rows of %d cells", len(values))
	}
	for cell, v := range values {
		if got := statistics.Summarise(v).Median; math.Abs(got-medians[cell]) > 1e-9*medians[cell] {
			t.Errorf("%s: the query's rows have the median %g, the report %g", cell, got, medians[cell])
		}
	}
}

// duckdb asks DuckDB for the sum of a metric by a level, of a file.
const duckdb = `import duckdb, json, sys
rows = duckdb.sql(f"""SELECT factors['streams'], sum(value), count(*), any_value(unit), any_value(typeof(started))
FROM '{sys.argv[1]}' WHERE metric = 'goodput_bps' AND kind = 'load' AND value IS NOT NULL GROUP BY 1""").fetchall()
print(json.dumps(rows))`

// TestDuckDBReadsParquet: DuckDB sees the same sums.
func TestDuckDBReadsParquet(t *testing.T) {
	if exec.Command("python3", "-c", "import duckdb").Run() != nil {
		t.Skip("skip: python3 has no duckdb")
	}
	d := sampleDocument()
	b, err := Parquet(d)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "run.parquet")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("python3", "-c", duckdb, file).CombinedOutput()
	if err != nil {
		t.Fatalf("duckdb: %v\n%s", err, out)
	}
	var rows [][]any
	if err := json.Unmarshal(out, &rows); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	sum, count := map[string]float64{}, map[string]int{}
	for i := range d.Trials {
		if v, ok := d.Trials[i].Metrics[goodput]; ok && d.Trials[i].Kind == "load" {
			sum[d.Trials[i].Factors["streams"]] += v
			count[d.Trials[i].Factors["streams"]]++
		}
	}
	if len(rows) != len(sum) {
		t.Fatalf("DuckDB has %d levels of streams, want %d: %s", len(rows), len(sum), out)
	}
	for _, r := range rows {
		level := r[0].(string)
		got, n := r[1].(float64), int(r[2].(float64))
		if math.Abs(got-sum[level]) > 1e-9*sum[level] || n != count[level] {
			t.Errorf("streams %s: DuckDB sums %g of %d, want %g of %d", level, got, n, sum[level],
				count[level])
		}
		if r[3] != "bit/s" {
			t.Errorf("streams %s: unit %v", level, r[3])
		}
	}
}
