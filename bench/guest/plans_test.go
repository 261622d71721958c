package guest_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// tables are the built-in plans after published tables, with what else makes them short.
var tables = [...]struct {
	plan string
	sets []string
}{
	{"wireguard", nil},
	// A queue that drops holds a slow router's streams up for longer than a short window.
	{"queues", []string{"method.duration=2s"}},
	{"firewall", nil}, {"forwarding", nil},
	{"openvpn", []string{"matrix.direction=up", "matrix.rate=2M"}},
}

// brief makes a plan short: one window per cell, and no other measurements.
var brief = [...]string{"method.duration=700ms", "method.warmup=200ms", "method.cooldown=0", "method.runs=1",
	"method.seed=1", "measure.verify=false", "measure.latency_idle=off"}

// TestPlans runs each of them, and wants a number or a reason of each cell.
func TestPlans(t *testing.T) {
	needsTime(t)
	for _, x := range tables {
		t.Run(x.plan, func(t *testing.T) {
			began := time.Now()
			text, _ := plan.BuiltIn(x.plan)
			c := measure(t, 8*time.Minute, *kind, string(text), slices.Concat(brief[:], x.sets)...)
			wrong(t, c.faults())
			if len(c.Document.Cells) == 0 {
				t.Error("there is no cell")
			}

			for i := range c.Document.Cells {
				wrong(t, lacks(&c.Document.Cells[i]))
			}

			fmt.Fprintf(t.Output(), "note: plan %s: %d cells, %d skipped, in %s\n", x.plan,
				len(c.Document.Cells), len(c.Document.Skipped), time.Since(began).Round(time.Second))
		})
	}
}

// lacks lists what a cell must have and has not: a rate; and of the other columns of the published tables a
// number or the reason why there is none, such as that no latency probe got through a flood of packets.
func lacks(c *analysis.Cell) []error {
	rate := "goodput_bps"
	others := []string{"rtt_loaded_p50_ns"}
	if c.Factors["protocol"] == "udp" {
		rate, others = "packet_rate_pps", append(others, "loss_ratio")
	} else {
		others = append(others, "retransmits")
	}

	if c.Factors["topology"] != "direct" { // which has no router
		others = append(others, "router_cpu_ratio", "router_busiest_core_ratio")
	}

	var errs []error
	if v := c.Metrics[rate]; !(v.Median > 0) {
		errs = append(errs, fmt.Errorf("cell %s has no %s: %s", c.Label, rate, c.Missing[rate]))
	}

	for _, metric := range others {
		if v, ok := c.Metrics[metric]; !(ok && v.Median >= 0) && c.Missing[metric] == "" {
			errs = append(errs, fmt.Errorf("cell %s has no %s, and no reason", c.Label, metric))
		}
	}

	return errs
}

// TestLacksWantsARateAndReasons: a cell without a rate lacks something, and so does one without another
// column and a reason.
func TestLacksWantsARateAndReasons(t *testing.T) {
	number := statistics.Value{Median: 1}
	full := map[string]statistics.Value{"goodput_bps": number, "rtt_loaded_p50_ns": number, "retransmits": {},
		"router_cpu_ratio": number, "router_busiest_core_ratio": number}
	without := func(name string) map[string]statistics.Value {
		m := maps.Clone(full)
		delete(m, name)
		return m
	}
	tests := []struct {
		name    string
		metrics map[string]statistics.Value
		missing map[string]string
		want    int
	}{
		{"all there", full, nil, 0},
		{"no rate, with a reason", without("goodput_bps"),
			map[string]string{"goodput_bps": "nothing came"}, 1},
		{"no latency, with a reason", without("rtt_loaded_p50_ns"),
			map[string]string{"rtt_loaded_p50_ns": "no probe was answered"}, 0},
		{"no latency, no reason", without("rtt_loaded_p50_ns"), nil, 1},
		{"nothing", nil, nil, 5},
	}
	for _, tt := range tests {
		c := analysis.Cell{Cell: metrics.Cell{
			Factors: record.Factors{"protocol": "tcp",
				"topology": "forward"},
			Metrics: tt.metrics,
			Missing: tt.missing,
		}}
		got := lacks(&c)
		if len(got) != tt.want {
			t.Errorf("%s: got %v, want %d", tt.name, got, tt.want)
		}
	}
}
