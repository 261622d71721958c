package report

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
)

// parquetRow is a metric of a trial. Values are in base units; columns that begin with cell are of all trials
// of the same conditions.
type parquetRow struct {
	Run      string            `parquet:"run,dict"`
	From     string            `parquet:"imported_from,dict"` // programs that measured, if not ours
	Trial    string            `parquet:"trial,dict"`
	Block    int32             `parquet:"block"`
	Index    int32             `parquet:"index"`
	Kind     string            `parquet:"kind,dict"`
	Started  time.Time         `parquet:"started,timestamp(microsecond)"`
	Cell     string            `parquet:"cell,dict"`
	Factors  map[string]string `parquet:"factors"`
	Grade    string            `parquet:"grade,dict"`
	Reasons  string            `parquet:"reasons,dict"`
	Caveats  string            `parquet:"caveats,dict"`
	Metric   string            `parquet:"metric,dict"`
	Unit     string            `parquet:"unit,dict"`
	Better   string            `parquet:"better,dict"`
	Value    *float64          `parquet:"value,optional"`
	Missing  string            `parquet:"missing,dict"` // why there is no value
	CellN    int32             `parquet:"cell_n"`
	Median   *float64          `parquet:"cell_median,optional"`
	Low      *float64          `parquet:"cell_low,optional"`
	High     *float64          `parquet:"cell_high,optional"`
	Interval string            `parquet:"cell_interval,dict"` // what low and high are
}

// Parquet has one row per trial and metric, as CSV has lines, with what the cell's trials say together.
func Parquet(d *analysis.Document) ([]byte, error) {
	v := newView(d)
	var out bytes.Buffer
	w := parquet.NewGenericWriter[parquetRow](&out, parquet.Compression(&parquet.Snappy),
		parquet.CreatedBy("chokepoint", printable(d.Run.Version), ""))
	for i := range d.Trials {
		if _, err := w.Write(v.parquetRows(&d.Trials[i])); err != nil {
			return nil, fmt.Errorf("write Parquet of run %s: %v", d.Run.ID, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("write Parquet of run %s: %v", d.Run.ID, err)
	}
	return out.Bytes(), nil
}

// parquetRows are those of a trial; one without any number has one, so that it is not lost.
func (v *view) parquetRows(t *analysis.TrialView) []parquetRow {
	stem := parquetRow{Run: v.Run.ID, From: strings.Join(v.Run.ImportedFrom, ", "), Trial: t.ID,
		Block: int32(t.Block), Index: int32(t.Index), Kind: t.Kind, Started: t.Started.UTC(),
		Factors: t.Factors, Grade: t.Grade, Reasons: reasonKinds(t), Caveats: v.caveatKinds(t)}
	cell := v.cell[t.Factors.Key()]
	if cell != nil {
		stem.Cell = cell.Label
	}
	var rows []parquetRow
	eachNumber(t, func(metric string, value *float64, missing string) {
		r := stem
		r.Metric, r.Value, r.Missing = metric, value, missing
		r.Unit, r.Better = v.metric[metric].Unit, v.metric[metric].Better
		if cell != nil {
			if x, ok := cell.Metrics[metric]; ok {
				r.CellN, r.Interval = int32(x.N), x.Interval
				r.Median, r.Low, r.High = &x.Median, &x.Low, &x.High
			}
		}
		rows = append(rows, r)
	})
	return rows
}
