package tuning

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

var budget = Budget{AddedDelayNs: 50e6, LossRatio: .01}

// model is a router as a function of its settings: rate in bit/s, p99 in ns, and whether trials fail.
type model func(cell factor.Cell) (rate, p99 float64, fails bool)

// document returns what six blocks of a round would give, with noise of 1 % and drift that blocks share.
func document(m model, arms []Arm, rng *rand.Rand) *analysis.Document {
	d := &analysis.Document{}
	index := map[string]int{}
	for block := 1; block <= 6; block++ {
		drift := 1 + .1*rng.Float64()
		for _, a := range arms {
			for _, cell := range a.Cells {
				rate, p99, fails := m(cell)
				i, seen := index[cell.Key()]
				if !seen {
					i = len(d.Cells)
					index[cell.Key()] = i
					d.Cells = append(d.Cells, analysis.Cell{Cell: metrics.Cell{
						Factors: cell,
						Label:   cell.Key(),
						Blocks: map[string]map[int]float64{"goodput_bps": {},
							"rtt_loaded_p99_ns": {}},
					}})
				}

				c := &d.Cells[i]
				noise := rng.NormFloat64()
				if fails {
					c.Failed++
					c.Reasons = []evidence.Reason{{
						Kind: evidence.ReasonFailedTrials,
						Text: "failed in setup: no answer",
					}}
					continue
				}

				c.Blocks["goodput_bps"][block] = rate * drift * (1 + .01*noise)
				c.Blocks["rtt_loaded_p99_ns"][block] = p99
			}
		}
	}

	return d
}

var plainCell = factor.Cell{"protocol": "tcp", "queue": "pfifo limit 2", "cpu_quota@host": "20%"}

func run(t *testing.T, m model, candidates ...Change) *Search {
	return runWithin(t, m, 1000, candidates...)
}

// runWithin searches as far as a number of measured sets goes.
func runWithin(t *testing.T, m model, sets int, candidates ...Change) *Search {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	s := &Search{Candidates: candidates}
	for range 100 {
		r := s.Next()
		if r == nil {
			return s
		}

		if len(r.Sets)+r.Follow > sets {
			s.Shorten()
			continue
		}

		sets -= len(r.Sets)
		arms := make([]Arm, len(r.Sets))
		for i, set := range r.Sets {
			cell := plainCell.Clone()
			for name, level := range set.Patch() {
				factor.Name(name).Set(cell, level)
			}

			arms[i] = Arm{Set: set, Cells: []factor.Cell{cell}}
		}

		s.Take(Score(document(m, arms, rng), arms, r.Pairs, []float64{1e6}, budget))
	}

	t.Fatal("the search does not end")
	return nil
}

func change(levels ...string) Change {
	c := Change{Levels: factor.Cell{}}
	for i := 0; i < len(levels); i += 2 {
		c.Levels[levels[i]] = levels[i+1]
	}
	return c
}

var (
	fqCodel  = change("queue", "fq_codel")
	longFIFO = change("queue", "pfifo limit 1000")
	fullCPU  = change("cpu_quota@host", "off")
	threaded = change("napi_threaded", "on")
	steering = change("cpus", "0-1")
)

func TestSearchFindsWhatHelps(t *testing.T) {
	capacity := func(c factor.Cell) (cpu, queue float64) {
		cpu, queue = 1000e6, 900e6
		if c["cpu_quota@host"] == "20%" {
			cpu = 200e6
		}

		if c["queue"] == "pfifo limit 2" {
			queue = 80e6
		}

		return cpu, queue
	}
	tests := []struct {
		name string
		of   model
		want string
	}{
		{"two limits in a row", func(c factor.Cell) (float64, float64, bool) {
			cpu, queue := capacity(c)
			return min(cpu, queue), 2e6, false
		}, "fq_codel off"},
		{"two limits of which each hides the other", func(c factor.Cell) (float64, float64, bool) {
			cpu, queue := capacity(c)
			if cpu < 1000e6 || queue < 900e6 {
				return 80e6, 2e6, false
			}
			return 900e6, 2e6, false
		}, "fq_codel off"},
		{"nothing matters", func(factor.Cell) (float64, float64, bool) { return 500e6, 2e6, false }, ""},
		{"less than what matters", func(c factor.Cell) (float64, float64, bool) {
			if c["napi_threaded"] == "on" {
				return 505e6, 2e6, false
			}
			return 500e6, 2e6, false
		}, ""},
		{"what helps harms the delay", func(c factor.Cell) (float64, float64, bool) {
			if c["queue"] == "pfifo limit 1000" {
				return 900e6, 200e6, false
			}
			return 500e6, 2e6, false
		}, ""},
		{"what helps loses the path", func(c factor.Cell) (float64, float64, bool) {
			return 500e6, 2e6, c["cpus"] == "0-1"
		}, ""},
		{"a lower delay at the same rate", func(c factor.Cell) (float64, float64, bool) {
			if c["queue"] == "fq_codel" {
				return 500e6, 3e6, false
			}
			return 500e6, 40e6, false
		}, "fq_codel"},
		{"one makes the other needless", func(c factor.Cell) (float64, float64, bool) {
			if c["napi_threaded"] == "on" || c["cpus"] == "0-1" {
				return 800e6, 2e6, false
			}
			return 500e6, 2e6, false
		}, "0-1 on"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := run(t, test.of, fqCodel, longFIFO, fullCPU, steering, threaded)
			patch := s.Kept.Patch()
			var got []string
			for _, name := range []string{"queue", "cpu_quota@host", "cpus", "napi_threaded"} {
				level := patch[name]
				if level != "" {
					got = append(got, level)
				}
			}

			if strings.Join(got, " ") != test.want {
				t.Errorf("kept %s, want %q", s.Kept, test.want)
			}

			helped := s.Final != nil && s.Final.Verdict == Helps
			if helped != (test.want != "") {
				t.Errorf("final: %+v", s.Final)
			}
		})
	}
}

// Copies of the same router differ by noise alone: nothing may be proposed, whatever the noise is.
func TestNothingIsProposedForTheSame(t *testing.T) {
	proposed := 0
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		noise := func(factor.Cell) (float64, float64, bool) {
			return 500e6 * (1 + .08*rng.NormFloat64()), 2e6 * (1 + .2*rng.Float64()), false
		}
		s := run(t, noise, fqCodel, fullCPU, steering, threaded)
		if len(s.Kept) > 0 {
			proposed++
		}
	}

	if proposed > 2 {
		t.Errorf("%d of 200 searches proposed something where nothing differs", proposed)
	}
}

// The gain that is told comes from blocks that did not choose the change.
func TestFinalIsMeasuredAfresh(t *testing.T) {
	s := run(t, func(c factor.Cell) (float64, float64, bool) {
		if c["queue"] == "fq_codel" {
			return 800e6, 2e6, false
		}
		return 400e6, 2e6, false
	}, fqCodel, threaded)
	if s.Final == nil || s.Final.Gain < 1.9 || s.Final.Gain > 2.1 || len(s.Final.Against) != 0 {
		t.Fatalf("final %+v", s.Final)
	}

	i := slices.IndexFunc(s.Tried, func(j Scored) bool { return j.Set.Key() == s.Kept.Key() })
	if i < 0 || s.Tried[i].Gain == s.Final.Gain {
		t.Errorf("the gain %v is the one that chose it", s.Final.Gain)
	}
}

func TestImpossibleArms(t *testing.T) {
	arms := []Arm{{Cells: []factor.Cell{plainCell}}, {Set: Set{fqCodel}, Why: "the kernel has no fq_codel"}}
	m := func(factor.Cell) (float64, float64, bool) { return 1e9, 1e6, false }
	got := Score(document(m, arms, rand.New(rand.NewPCG(1, 1))), arms, []Pair{{1, 0}}, []float64{1e6}, budget)
	if got[0].Verdict != Impossible || got[0].Why != "the kernel has no fq_codel" {
		t.Errorf("%+v", got)
	}
}

func TestCommandsOfEverySystem(t *testing.T) {
	tests := []struct {
		change Change
		system string
		want   string
	}{
		{change("queue@router.wan", "fq_codel"), "linux", "tc qdisc replace dev WAN root fq_codel"},
		{change("queue@router.wan", "fq_codel"), "routeros", "kind=fq-codel"},
		{change("queue", "pfifo limit 1000"), "routeros", "kind=pfifo pfifo-limit=1000"},
		{change("queue", "tbf rate 50M burst 16384 limit 250000"), "routeros", "max-limit=50M/50M"},
		{change("cpus", "0-3"), "linux", "echo f | tee"},
		{change("cpus", "0,3"), "openwrt", "packet_steering=1"},
		{change("napi_threaded", "on"), "linux", "echo 1 > /sys/class/net/DEVICE/threaded"},
		{change("gro_flush_timeout", "20us"), "linux", "echo 20000 >"},
		{change("shape@router.wan", "50M"), "openwrt", "upload=50000"},
		{change("sysctl:net.core.netdev_budget@router", "600"), "linux", "net.core.netdev_budget = 600"},
		{change("governor", "performance"), "linux", "frequency-set -g performance"},
		{change("mss_clamp", "pmtu"), "routeros", "new-mss=clamp-to-pmtu"},
		{change("cpu_quota@host", "off"), "routeros", "cpu-frequency="},
	}
	for _, test := range tests {
		found := false
		for _, p := range test.change.Commands(plainCell) {
			found = found || p.System == test.system &&
				strings.Contains(strings.Join(p.Commands, "\n"), test.want)
		}

		if !found {
			t.Errorf("%s on %s: no %q in %+v", test.change, test.system, test.want,
				test.change.Commands(plainCell))
		}
	}

	for _, system := range Systems {
		for name, lines := range recipes {
			for _, l := range lines[system] {
				if strings.ContainsAny(filler(name, "x", "router.wan", "50M").Replace(l), "{") &&
					!strings.Contains(l, "{ ") {
					t.Errorf("%s on %s: a gap is not filled in: %s", name, system, l)
				}
			}
		}
	}
}

func TestResultsExpire(t *testing.T) {
	d := &analysis.Document{
		Topologies: []record.Topology{{Routers: []string{"router"}}},
		Environment: []record.Environment{{
			Node: "router",
			Facts: map[string]string{"kernel": "Linux 6.1",
				"device:wan:driver": "virtio_net", "uptime": "3"},
		}, {
			Node: "client",
			Facts: map[string]string{
				"kernel": "Linux 6.6"},
		}},
	}
	now := HoldsFor(d, []factor.Cell{plainCell})
	r := Result{Plan: "p", Lab: "vm", Holds: now}
	if got := r.Expired(maps.Clone(now)); got != nil {
		t.Errorf("expired at once: %v", got)
	}

	for _, name := range []string{"router kernel", "router device:wan:driver", "workload"} {
		later := maps.Clone(now)
		later[name] = "other"
		got := fmt.Sprint(r.Expired(later))
		if !strings.Contains(got, name+": ") {
			t.Errorf("%s changed: %s", name, got)
		}
	}

	if len(now) != 3 {
		t.Errorf("holds for %v", now)
	}
}

// TestSearchEndsInTime: however few sets there is time for, no more are measured, what is proposed was
// checked in blocks that did not choose it, and what was left out is told.
func TestSearchEndsInTime(t *testing.T) {
	router := func(c factor.Cell) (float64, float64, bool) {
		rate := 500e6
		for _, name := range []string{"cpus", "napi_threaded"} {
			if c[name] != "" {
				rate *= 1.3
			}
		}
		return rate, 2e6, false
	}
	all := []Change{threaded, steering, fullCPU, fqCodel}
	proposed := 0
	for sets := range 40 {
		s := runWithin(t, router, sets, all...)
		r := Result{Ended: "done", Tried: s.Tried, Kept: s.Kept, Final: s.Final}
		told := strings.Count(r.Text(), noTime)
		if len(s.Candidates)+told < len(all) {
			t.Errorf("%d sets: %d candidates of %d and %d told, want each tried or told", sets,
				len(s.Candidates), len(all), told)
		}

		if len(s.Kept) > 0 {
			proposed++
			if s.Final == nil || s.Final.Verdict != Helps || s.Final.Set.Key() != s.Kept.Key() {
				t.Errorf("%d sets: kept %s, checked %+v", sets, s.Kept, s.Final)
			}
		}

		if sets < 4 && (len(s.Kept) > 0 || !strings.Contains(r.Text(), "a longer --for")) {
			t.Errorf("%d sets: kept %s, said %s, want nothing, for want of time", sets, s.Kept, r.Text())
		}
	}

	if proposed < 30 {
		t.Errorf("proposed %d times of 40, want as soon as one change and its check fit", proposed)
	}
}
