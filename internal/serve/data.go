package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/history"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/report"
)

func indented(v any) ([]byte, error) {
	content, err := json.MarshalIndent(v, "", "  ")
	return append(content, '\n'), err
}

func (s *Server) runsData(r *http.Request) ([]byte, error) {
	_, l, err := s.selected(r)
	if err != nil {
		return nil, err
	}

	return indented(l)
}

func (s *Server) runData(r *http.Request) ([]byte, error) {
	h, err := s.run(r)
	if err != nil {
		return nil, err
	}
	return s.made(r.Context(), "document", h, report.JSON)
}

func (s *Server) compareData(r *http.Request) ([]byte, error) {
	heads, err := s.heads(r)
	if err != nil {
		return nil, err
	}

	return s.compared(r, heads, func(c *analysis.RunComparison, _ [2]*analysis.Document) ([]byte, error) {
		return indented(c)
	})
}

func (s *Server) historyData(r *http.Request) ([]byte, error) {
	return s.history(r, report.HistoryJSON)
}

// maxResults limits the number of results in a history. Nobody would wait for more.
const maxResults = 20_000

// tooMany is the error for a history with too many results.
type tooMany struct {
	*app.ManyResultsError
	failure
}

func (t tooMany) Error() string   { return t.failure.Error() }
func (t tooMany) Unwrap() []error { return []error{t.ManyResultsError, t.failure} }

// history returns what render makes of a history. The parameters of the request select its cells.
func (s *Server) history(r *http.Request, render func(*history.History) ([]byte, error)) (content []byte,
	err error) {
	q := r.URL.Query()
	o := app.HistoryOptions{
		Plan:    q.Get("plan"),
		Device:  q.Get("device"),
		Cell:    q.Get("cell"),
		Metric:  q.Get("metric"),
		Derived: s.results,

		MaxResults: maxResults,
	}
	err = s.alone(r.Context(), func() error {
		h, err := s.app.History(r.Context(), o)
		if err == nil {
			content, err = render(h)
		}
		return err
	})
	if many, ok := errors.AsType[*app.ManyResultsError](err); ok {
		return nil, tooMany{many, failure{http.StatusBadRequest, many.Error() +
			"; the parameter cell chooses some by their words or id"}}
	}

	if errors.Is(err, app.ErrUsage) {
		return nil, notFound("history: no run that has ended has such a plan, device, cell and number")
	}

	return content, err
}

// results returns the results of a run for a history. It serves as app.HistoryOptions.Derived.
func (s *Server) results(ctx context.Context, run string) (r *record.Results, err error) {
	content, err := s.derived(ctx, "results", run, func(d *analysis.Document) ([]byte, error) {
		if len(d.Trials) == 0 {
			return []byte("null"), nil
		}
		return json.Marshal(d.Results())
	})
	if err == nil {
		err = json.Unmarshal(content, &r)
	}
	return r, err
}

// maxExposed limits the number of runs in the answer for Prometheus.
const maxExposed = 50

// metrics exposes the newest finished run of each plan and device, up to maxExposed runs.
func (s *Server) metrics(r *http.Request) ([]byte, error) {
	heads, err := s.heads(r)
	if err != nil {
		return nil, err
	}

	var families []report.Family
	seen := map[string]bool{}
	for _, h := range heads {
		labels := [][2]string{{"device", device(h)}, {"plan", h.Plan}}
		of := report.Sample("", labels, 0) // the identity of the run's series in a scrape
		if seen[of] || len(seen) == maxExposed || h.Damaged != "" || h.Trials == 0 ||
			h.Status == record.RunRunning {
			continue
		}

		seen[of] = true
		content, err := s.made(r.Context(), "metrics", h, func(d *analysis.Document) ([]byte, error) {
			return json.Marshal(report.Families(d, labels...))
		})
		if r.Context().Err() != nil || errors.Is(err, errBusy) {
			return nil, err
		}

		var ofRun []report.Family
		if err == nil {
			err = json.Unmarshal(content, &ofRun)
		}

		readable := 1.0
		if err != nil {
			s.note("run %s: %v", h.ID, err)
			readable = 0
		}

		labels = append(labels, [2]string{"run", h.ID})
		families = append(append(families, ofRun...), report.Family{
			Name:    "chokepoint_run_readable",
			Help:    "1: the newest run is exposed, 0: it cannot be read",
			Samples: report.Sample("chokepoint_run_readable", labels, readable),
		})
	}

	beds, err := s.allBeds(r.Context())
	if err != nil {
		return nil, err
	}

	return report.Exposition(slices.Concat(families, beds.families(), s.own())), nil
}

// own returns the metrics of the server itself.
func (s *Server) own() []report.Family {
	const build = "chokepoint_build_info"
	return []report.Family{
		{Name: build, Help: "version of the server",
			Samples: report.Sample(build, [][2]string{{"version", app.RunVersion()}}, 1)},
		{Name: "chokepoint_http_requests", Kind: "counter", Samples: s.counts.samples(),
			Help: "requests by status code, method and handler"},
	}
}

// counts counts the requests since the server started.
type counts struct {
	mu  sync.Mutex
	all map[[3]string]int // by status code, method and handler
}

func (c *counts) add(r *http.Request, code int) {
	method := "other"
	if slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodPost}, r.Method) {
		method = strings.ToLower(r.Method)
	}

	_, handler, _ := strings.Cut(r.Pattern, " ") // one of our own patterns, never the path of the request
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all[[3]string{strconv.Itoa(code), method, cmp.Or(handler, "none")}]++
}

// samples returns the counts as samples.
func (c *counts) samples() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var lines []string
	for of, n := range c.all {
		labels := [][2]string{{"code", of[0]}, {"method", of[1]}, {"handler", of[2]}}
		lines = append(lines, report.Sample("chokepoint_http_requests_total", labels, float64(n)))
	}

	slices.Sort(lines)
	return strings.Join(lines, "")
}
