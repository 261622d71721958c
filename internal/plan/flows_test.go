package plan_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/plan"
)

func TestFlowsAndRequests(t *testing.T) {
	for _, tc := range []struct {
		name, matrix string
		want         map[string]string // of the only cell
		skipped      string            // the reason instead
		dropped      string
		refused      string // the error instead
	}{
		{name: "flows", matrix: "{engine: flows}", want: map[string]string{"flow_size": "10000"}},
		{
			name: "at a rate",
			matrix: "{engine: flows, flow_size: websearch, connection_rate: 2000, " +
				"arrivals: " +
				"isochronous}",
			want: map[string]string{"flow_size": "websearch", "connection_rate": "2k",
				"arrivals": "isochronous"},
		},
		{
			name:   "requests",
			matrix: "{engine: requests, direction: both, request_size: 5}",
			want:   map[string]string{"request_size": "5", "response_size": "1000"},
		},
		{
			name:    "neither in some cells",
			matrix:  "{engine: [native, flows], flow_size: 5, connection_rate: 3}",
			want:    map[string]string{},
			dropped: "engine is not flows",
		},
		{name: "neither", matrix: "{request_size: 5}", refused: "engine is not requests"},
		{
			name:    "spacing of nothing",
			matrix:  "{engine: flows, arrivals: isochronous}",
			refused: "arrivals has no effect in any cell: connection_rate is not given",
		},
		{name: "udp", matrix: "{engine: flows, protocol: udp}", skipped: "needs protocol: tcp"},
		{name: "paced", matrix: "{engine: flows, pacing: 1M}", skipped: "does not pace TCP"},
		{name: "one way", matrix: "{engine: requests, direction: up}", skipped: "write direction: both"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := plan.Read("p.yaml", []byte("matrix: "+tc.matrix), words(), nil)
			if tc.skipped != "" {
				var hinted interface{ Hint() string }
				if !errors.As(err, &hinted) || !strings.Contains(hinted.Hint(), tc.skipped) {
					t.Errorf("got %v, want the hint %q", err, tc.skipped)
				}
				return
			}

			if tc.refused != "" {
				if err == nil || !strings.Contains(err.Error(), tc.refused) {
					t.Errorf("got %v, want %q", err, tc.refused)
				}
				return
			}

			if err != nil {
				t.Fatal(err)
			}

			got := map[string]string{}
			for _, name := range []string{"flow_size", "connection_rate", "arrivals", "request_size",
				"response_size"} {
				if level, ok := p.Design.Cells[0][name]; ok {
					got[name] = level
				}
			}

			diff := cmp.Diff(got, tc.want)
			if diff != "" {
				t.Errorf("levels (-got +want):\n%s", diff)
			}

			notes := strings.Join(p.Notes(), "\n")
			if !strings.Contains(notes, tc.dropped) {
				t.Errorf("notes: got %q, want %q", notes, tc.dropped)
			}
		})
	}

	_, err := plan.Read("p.yaml", []byte("method: {runs: 1}\nmatrix:\n  engine: flows\n  flow_size: tiny\n"),
		words(), nil)
	if err == nil || !strings.Contains(err.Error(), "p.yaml:4") {
		t.Errorf("got %v, want an error at p.yaml:4", err)
	}
}

func TestSearchOfNewConnections(t *testing.T) {
	for search, want := range map[string]string{
		"{max_connections: 5k}": "",
		"quick":                 "needs method.search.max_connections",
		"{max_connections: 5k, max_added_delay: 5ms}":  "max_added_delay is for packets",
		"{min_connections: 5k, max_connections: 1000}": "are no range",
		"{max_connections: many}":                      "is not a rate from 1 to 10M connections",
	} {
		text := "method: {runs: 1, search: " + search +
			"}\nmatrix: {engine: flows}\nmeasure: {probe_interval: 2ms}\n"
		p, err := plan.Read("p.yaml", []byte(text), words(), nil)
		if want == "" {
			if err != nil || p.Design.Method.Search.MaxHz != 5000 || p.Design.Method.Search.MinHz != 10 {
				t.Errorf("%s: got %+v, %v", search, p, err)
			}
			continue
		}

		message := ""
		if err != nil {
			message = err.Error()
		}

		var hinted interface{ Hint() string }
		if errors.As(err, &hinted) {
			message += hinted.Hint()
		}

		if !strings.Contains(message, want) {
			t.Errorf("%s: got %q, want %q", search, message, want)
		}
	}

	p, err := plan.Read("p.yaml", []byte("method: {runs: 1, search: {max_connections: 5k}}\nmatrix: "+
		"{engine: flows}\ninclude: [{engine: flows, connection_rate: 5}]\n"), words(), nil)
	if err != nil || len(p.Design.Cells) != 1 || !strings.Contains(p.Design.Skipped[0].Reason,
		"leave out connection_rate") {
		t.Errorf("got %+v, %v, want the cell with a rate skipped", p, err)
	}
}
