package oracle

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/report"
	"github.com/chokepoint-lab/chokepoint/internal/serve"
)

// TestOpenMetrics: Prometheus' own parser finds in what report writes every median with the labels of its
// cell, and its linter nothing to say but that rates are in bits, which is how networks count them.
func TestOpenMetrics(t *testing.T) {
	for name, run := range labtest.Samples {
		d := analysis.Derive(run.Run(), run.Trials())
		text := report.OpenMetrics(d)
		for _, problem := range lint(t, text) {
			if problem.Text != `use base unit "bytes" instead of "bits"` {
				t.Errorf("%s: %s: %s", name, problem.Metric, problem.Text)
			}
		}

		p := expfmt.NewTextParser(model.LegacyValidation)
		families, err := p.TextToMetricFamilies(bytes.NewReader(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}

		// sample returns the median of a cell, or the one sample of a family without medians.
		sample := func(family, id string) (value float64, labels map[string]string) {
			for _, m := range families[family].GetMetric() {
				labels := map[string]string{}
				for _, l := range m.GetLabel() {
					labels[l.GetName()] = l.GetValue()
				}

				stat, several := labels["stat"]
				if labels["id"] == id && (stat == "median" || !several) {
					return m.GetGauge().GetValue(), labels
				}
			}
			return 0, nil
		}
		for _, c := range d.Cells {
			x, measured := c.Metrics["goodput_bps"]
			got, labels := sample("chokepoint_goodput_bits_per_second", c.ID)
			if (labels != nil) != measured || got != x.Median {
				t.Errorf("%s: %s: got %v %v, want %v", name, c.Label, got, labels, x.Median)
			}

			if measured && labels["tunnel"] != c.Factors["tunnel"] {
				t.Errorf("%s: %s: got the labels %v", name, c.Label, labels)
			}

			_, labels = sample("chokepoint_cell_info", c.ID)
			if labels["validity"] != c.Grade || labels["run"] != d.Run.ID {
				t.Errorf("%s: %s: got the labels %v of the cell", name, c.Label, labels)
			}

			got, labels = sample("chokepoint_cell_valid", c.ID)
			if labels == nil || (got == 1) != (c.Grade == "valid") {
				t.Errorf("%s: %s is %s, got %v %v", name, c.Label, c.Grade, got, labels)
			}
		}
	}
}

// TestOpenMetricsCanFail: the linter knows a wrong name, and the parser a wrong line.
func TestOpenMetricsCanFail(t *testing.T) {
	const wrong = "# HELP chokepoint_rtt_ns rtt\n# TYPE chokepoint_rtt_ns gauge\nchokepoint_rtt_ns 1\n"
	found := lint(t, []byte(wrong))
	if len(found) == 0 {
		t.Error("the linter passes a name that ends in ns")
	}

	p := expfmt.NewTextParser(model.LegacyValidation)
	if _, err := p.TextToMetricFamilies(strings.NewReader("chokepoint_trials{cell=\"a} 1\n")); err == nil {
		t.Error("the parser passes a label without its end")
	}
}

func lint(t *testing.T, text []byte) []promlint.Problem {
	t.Helper()
	problems, err := promlint.New(bytes.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}

	return problems
}

// TestServedMetrics: the parser and the linter have as little to say of what chokepoint serve exposes.
func TestServedMetrics(t *testing.T) {
	a := &app.App{Dirs: app.Dirs{Data: filepath.Join(t.TempDir(), "data"), State: t.TempDir()}}
	for _, name := range []string{"good", "demanded", "desk"} {
		if err := labtest.WriteSample(t.Context(), a.Dirs.StoreFile(), name); err != nil {
			t.Fatal(err)
		}
	}

	server := serve.New(a, serve.Options{})
	for range 2 { // the second counts the first
		w := httptest.NewRecorder()
		server.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/metrics", nil))
		text := w.Body.Bytes()
		for _, problem := range lint(t, text) {
			// In OpenMetrics the help of a counter names it without _total, in the older format with it.
			counter := problem.Metric == "chokepoint_http_requests_total" && problem.Text == "no help text"
			if !counter && problem.Text != `use base unit "bytes" instead of "bits"` {
				t.Errorf("%s: %s", problem.Metric, problem.Text)
			}
		}

		p := expfmt.NewTextParser(model.LegacyValidation)
		families, err := p.TextToMetricFamilies(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}

		if n := len(families["chokepoint_run_readable"].GetMetric()); n != 2 {
			t.Errorf("got %d runs, want the newest of each device", n)
		}
	}
}
