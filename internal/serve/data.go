package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/history"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/check"
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

// history returns what render makes of the history of the cells that the parameters of a request name.
func (s *Server) history(r *http.Request, render func(*history.History) ([]byte, error)) (content []byte,
	err error) {
	q := r.URL.Query()
	o := app.HistoryOptions{
		Plan:    q.Get("plan"),
		Device:  q.Get("device"),
		Cell:    q.Get("cell"),
		Metric:  q.Get("metric"),
		Derived: s.results,
	}
	err = s.alone(r.Context(), func() error {
		h, err := s.app.History(r.Context(), o)
		if err == nil {
			content, err = render(h)
		}
		return err
	})
	if errors.Is(err, app.ErrUsage) {
		return nil, notFound("history: no run that has ended has such a plan, device, cell and number")
	}

	return content, err
}

// keptResults are record.Results with their cells.
type keptResults struct {
	record.ResultFacts
	Cells []record.CellResult
}

// results returns the results of a run for a history, as app.HistoryOptions asks for them.
func (s *Server) results(ctx context.Context, run string) (*record.Results, error) {
	content, err := s.derived(ctx, "results", run, func(d *analysis.Document) ([]byte, error) {
		if len(d.Trials) == 0 {
			return []byte("null"), nil
		}

		r := d.Results()
		return json.Marshal(keptResults{r.ResultFacts, r.Cells})
	})
	if err != nil {
		return nil, err
	}

	var r *keptResults
	err = json.Unmarshal(content, &r)
	if err != nil || r == nil {
		return nil, err
	}

	return &record.Results{ResultFacts: r.ResultFacts, Cells: r.Cells}, nil
}

// maxExposed bounds the runs in the answer for Prometheus.
const maxExposed = 50

// metrics exposes, for each plan and device, the newest run that has ended, at most maxExposed runs.
func (s *Server) metrics(r *http.Request) ([]byte, error) {
	heads, err := s.heads(r)
	if err != nil {
		return nil, err
	}

	x := exposition{}
	seen := map[[2]string]bool{}
	for _, h := range heads {
		of := [2]string{labelText(device(h)), labelText(h.Plan)} // what a label leaves of them
		if seen[of] || len(seen) == maxExposed || h.Damaged != "" || h.Trials == 0 ||
			h.Status == record.RunRunning {
			continue
		}

		seen[of] = true
		labels := fmt.Sprintf(`device="%s",plan="%s",`, of[0], of[1])
		text, err := s.made(r.Context(), "metrics", h, func(d *analysis.Document) ([]byte, error) {
			return report.OpenMetrics(d), nil
		})
		if r.Context().Err() != nil || errors.Is(err, errBusy) {
			return nil, err
		}

		readable := 1
		if err != nil {
			s.note("run %s: %v", h.ID, err)
			readable = 0
		}

		x.add(string(text), labels)
		x.family("chokepoint_run_readable", "gauge", "1: the newest run is exposed, 0: it cannot be read",
			fmt.Sprintf("chokepoint_run_readable{%srun=\"%s\"} %d\n", labels, h.ID, readable))
	}

	x.family("chokepoint_build_info", "gauge", "version of the server",
		fmt.Sprintf("chokepoint_build_info{version=\"%s\"} 1\n", labelText(app.RunVersion())))
	x.family("chokepoint_http_requests", "counter", "requests by status code, method and handler",
		s.counts.samples())
	text := ""
	for _, name := range slices.Sorted(maps.Keys(x)) {
		text += x[name]
	}

	return []byte(text + "# EOF\n"), nil
}

var quoted = strings.NewReplacer("\\", "\\\\", "\"", "\\\"", "\n", "\\n")

// labelText escapes the value of a label.
func labelText(text string) string { return quoted.Replace(check.Plain(text)) }

// exposition holds the families of several texts of OpenMetrics by their names.
type exposition map[string]string

// add adds a text with labels, which end in a comma, for all of its samples.
func (x exposition) add(text, labels string) {
	name, known := "", false
	for line := range strings.Lines(strings.TrimSuffix(text, "# EOF\n")) {
		if family, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, _, _ = strings.Cut(family, " ")
			known = x[name] != ""
		}

		if !strings.HasPrefix(line, "#") {
			x[name] += strings.Replace(line, "{", "{"+labels, 1)
		} else if !known {
			x[name] += line
		}
	}
}

// family adds samples of our own.
func (x exposition) family(name, kind, help, samples string) {
	x.add("# TYPE "+name+" "+kind+"\n# HELP "+name+" "+help+"\n"+samples, "")
}

// counts counts the requests since the server began.
type counts struct {
	mu  sync.Mutex
	all map[string]int // by the labels
}

func (c *counts) add(r *http.Request, code int) {
	method := "other"
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		method = strings.ToLower(r.Method)
	}

	_, handler, _ := strings.Cut(r.Pattern, " ") // one of ours, never the path itself
	labels := fmt.Sprintf(`code="%d",method="%s",handler="%s"`, code, method, cmp.Or(handler, "none"))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all[labels]++
}

// samples returns the counts as lines.
func (c *counts) samples() (lines string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, labels := range slices.Sorted(maps.Keys(c.all)) {
		lines += fmt.Sprintf("chokepoint_http_requests_total{%s} %d\n", labels, c.all[labels])
	}
	return lines
}
