package main

import (
	"bytes"
	"io"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
)

// TestEveryNameIsOneCell: what the claims speak of is one cell of the plan.
func TestEveryNameIsOneCell(t *testing.T) {
	p, err := plan.Read("guest.yaml", []byte(ratiosPlan), registry.Vocabulary(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []record.Factors{fifo, cake, fqCodel, plain, rules, offloaded, wireGuard, tooLarge,
		esp, openVPN, openVPN6K, overfull} {
		found := 0
		for _, c := range p.Cells() {
			if is(c, want) {
				found++
			}
		}
		if found != 1 {
			t.Errorf("cells that are %s: got %d, want 1", want.Key(), found)
		}
	}
}

// TestClaimsThatTheMachineSpoils: what does not hold is wrong, unless the analysis doubts one of the two
// trials for what others used of the machine.
func TestClaimsThatTheMachineSpoils(t *testing.T) {
	run := func(over, under float64, reasons ...string) campaign {
		var c campaign
		c.Doc = &analysis.Document{}
		for i, v := range []float64{over, under} {
			id := []string{"over", "under"}[i]
			row := record.Row{Kind: record.RowLoad, Factors: record.Factors{"cell": id}}
			c.Trials = append(c.Trials, record.Trial{ID: id, Row: row})
			view := analysis.TrialView{ID: id, Metrics: map[string]float64{"rate": v}}
			for _, kind := range reasons {
				view.Reasons = append(view.Reasons, evidence.Reason{Kind: kind})
			}
			c.Doc.Trials = append(c.Doc.Trials, view)
			reasons = nil // of the first only
		}
		return c
	}
	twice := []claim{{"twice", record.Factors{"cell": "over"}, record.Factors{"cell": "under"}, "rate", 2, 0}}
	for _, tt := range []struct {
		name          string
		c             campaign
		spoilt, wrong int
	}{
		{"holds", run(20, 10), 0, 0},
		{"holds on a busy machine", run(20, 10, evidence.ReasonBackgroundLoad), 0, 0},
		{"does not hold", run(19, 10), 0, 1},
		{"does not hold, and is doubted for another reason", run(19, 10, evidence.ReasonDrift), 0, 1},
		{"does not hold on a busy machine", run(19, 10, evidence.ReasonBackgroundLoad), 1, 0},
		{"there is nothing", campaign{rig.Campaign{Doc: &analysis.Document{}}}, 0, 1},
	} {
		spoilt, wrong := (bench{out: io.Discard}).judgeClaims(tt.c, twice)
		if len(spoilt) != tt.spoilt || len(wrong) != tt.wrong {
			t.Errorf("%s: %d spoilt, %v wrong; want %d and %d", tt.name, len(spoilt), wrong, tt.spoilt,
				tt.wrong)
		}
	}
}

func TestWithinHoldsBothBounds(t *testing.T) {
	tests := []struct {
		got, least, most float64
		ok               bool
	}{
		{2, 2, 0, true}, {1.9, 2, 0, false}, {1e9, 2, 0, true},
		{54, 54, 55, true}, {55.1, 54, 55, false}, {nan(), 0, 0, false},
	}
	for _, tt := range tests {
		var out bytes.Buffer
		err := bench{out: &out}.within("x", tt.got, tt.least, tt.most)
		if (err == nil) != tt.ok || !strings.HasPrefix(out.String(), "note: x: ") {
			t.Errorf("%v within %v and %v: got %v and %q, want ok = %v", tt.got, tt.least, tt.most, err,
				out.String(), tt.ok)
		}
	}
}

// TestProbedCountsWhatWasAnswered: a lost probe may not have come to the tunnel, and one under way is after
// the end of what is compared.
func TestProbedCountsWhatWasAnswered(t *testing.T) {
	trial := &record.Trial{}
	if n, size := probed(trial, 100); n != 0 || size != 0 {
		t.Errorf("without a probe: got %d of %d bytes", n, size)
	}
	trial.Loaded = &record.Latency{Size: 92, SentAt: []int64{10, 20, 30, 90}, RTT: []int64{5, -1, 7, 11}}
	if n, size := probed(trial, 100); n != 2 || size != 92 {
		t.Errorf("of four, one lost and one late: got %d of %d bytes, want 2 of 92", n, size)
	}
}

func nan() float64 { zero := 0.0; return zero / zero }

// TestSameFindsWhatDiffers: of two cells that are not the same, the difference is found even after Holm's
// correction of all metrics, and of two that are, a pooled rate has its bound above it.
func TestSameFindsWhatDiffers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	a, b := map[int]float64{}, map[int]float64{}
	for block := range 12 {
		a[block] = 100 + rng.Float64()
		b[block] = 110 + rng.Float64()
	}
	c, _ := comparison.ComparePaired("goodput_bps", a, b)
	p := make([]float64, sameLeast)
	for i := range p {
		p[i] = 1
	}
	p[7] = c.PValue
	if got := statistics.Holm(p)[7]; c.Verdict != "different" || got > mostDifferent {
		t.Errorf("a tenth more: got %q and p = %.3f after Holm, want different", c.Verdict, got)
	}
	var all []tally
	for seed := range uint64(20) {
		all = append(all, tally{Seed: seed, Metrics: 50, Raw: int(seed % 3)})
	}
	rate, bound := pooled(all, func(t tally) int { return t.Raw })
	if rate != .019 || bound <= rate || bound > .03 {
		t.Errorf("19 of 1000: got %v, at most %v, want .019 and a little more", rate, bound)
	}
	for _, tt := range []struct {
		raw int
		ok  bool
	}{{2, true}, {5, false}} {
		for i := range all {
			all[i].Raw = tt.raw
		}
		if err := (bench{out: io.Discard}).judgeSame(all); (err == nil) != tt.ok {
			t.Errorf("%d of 50 in each run: got %v, want ok = %v", tt.raw, err, tt.ok)
		}
	}
	if err := (bench{out: io.Discard}).judgeSame([]tally{{Metrics: 50, Holm: 1}}); err == nil {
		t.Error("one run with a difference after Holm's correction: got no error, want one")
	}
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
		c := analysis.Cell{Factors: record.Factors{"protocol": "tcp", "topology": "forward"},
			Metrics: tt.metrics, Missing: tt.missing}
		if got := lacks(&c); len(got) != tt.want {
			t.Errorf("%s: got %v, want %d", tt.name, got, tt.want)
		}
	}
}

// TestTunnelPortIsTheOneThatCarried: of two tunnels in one lab the idle one is not judged.
func TestTunnelPortIsTheOneThatCarried(t *testing.T) {
	c := counters{"router/netdev/tun1/rx_bytes": 0, "router/netdev/tun2/rx_bytes": 9e6,
		"router/netdev/wan/rx_bytes": 9e7, "client/netdev/tun3/rx_bytes": 9e8}
	if got, want := c.tunnelPort("router"), "router/netdev/tun2"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
