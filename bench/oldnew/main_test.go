package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
)

func TestVerdict(t *testing.T) {
	b := bench{tolerance: .02}
	for _, tt := range []struct {
		low, high float64
		lower     bool
		want      string
	}{
		{.99, 1.01, false, "no worse"}, {.9, .97, false, "worse"}, {.9, .99, false, "cannot tell"},
		{1.5, 1.6, false, "no worse"},
		{.9, 1.01, true, "no worse"}, {1.03, 1.1, true, "worse"}, {1, 1.1, true, "cannot tell"},
	} {
		if got := b.verdict(statistics.Value{Low: tt.low, High: tt.high}, tt.lower); got != tt.want {
			t.Errorf("%v–%v, less is better %v: got %s, want %s", tt.low, tt.high, tt.lower, got, tt.want)
		}
	}
}

// TestTable: a plan whose cells carry less in each block is worse; what one build lacks is left out.
func TestTable(t *testing.T) {
	runs := func(goodput float64) (all []cells) {
		for i := range 6 {
			all = append(all, cells{
				"ip=4 streams=1": {"goodput_bps": goodput * (1 + float64(i)/1000)},
				"ip=4 streams=4": {"goodput_bps": 2 * goodput, "rtt_idle_p50_ns": 0},
			})
		}
		return all
	}
	for _, tt := range []struct {
		new   float64
		worse bool
		want  string
	}{{1e9, false, "| streams=4 | goodput | 2000 Mbit/s | 2000 Mbit/s | 1.000 | 1.000–1.000 | 6 | no " +
		"worse |"},
		{9e8, true, "| **all** | goodput |  |  | 0.900 | 0.900–0.900 | 6 | worse |"}} {
		var out bytes.Buffer
		b := bench{tolerance: .02, blocks: 6, out: &out}
		worse := b.table("quick", [][]cells{runs(1e9), runs(tt.new)})
		if worse != tt.worse || !strings.Contains(out.String(), tt.want) || strings.Contains(out.String(),
			"idle") {
			t.Errorf("new %v: worse %v, want %v and %q in\n%s", tt.new, worse, tt.worse, tt.want, &out)
		}
	}
}

func TestRenamedFactors(t *testing.T) {
	b := bench{renamed: map[string]string{"old_name": "new_name"}}
	if got := b.today(map[string]string{"old_name": "on", "ip": "4"}); len(got) != 2 ||
		got["new_name"] != "on" {
		t.Errorf("got %v, want new_name=on and ip=4", got)
	}
}
