package plan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/method"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/google/go-cmp/cmp"
)

func readSearch(t *testing.T, search string, sets ...string) (*plan.Plan, error) {
	t.Helper()
	text := "name: x\nmethod: {runs: 1, search: " + search + "}\nmatrix: {protocol: udp, packet_size: 200}\n"
	return plan.Read("x.yaml", []byte(text), words(), sets)
}

func TestSearchTakesItsGoalsFromThePreset(t *testing.T) {
	for _, name := range method.PresetNames() {
		p, err := readSearch(t, name)
		if err != nil {
			t.Fatal(err)
		}

		preset, _ := method.PresetNamed(name)
		s := p.Design.Method.Search
		if s.Preset != name || len(s.Goals) != len(preset.Goals) ||
			s.Goals[0] != preset.Goals[0] || s.CountPauses != preset.Overhead {
			t.Errorf("%s: got %+v, want the preset's goals", name, s)
		}
	}

	p, err := readSearch(t, "{max: 1M, width: 3 %}")
	if err != nil {
		t.Fatal(err)
	}

	if s := p.Design.Method.Search; s.Preset != "quick" || s.MaxPPS != 1e6 || s.MinPPS != 1000 ||
		s.Goals[1].Width != .03 {
		t.Errorf("got %+v, want quick up to 1 Mpps with a width of 3 %%", s)
	}

	// What one plan changes is not another's.
	again, _ := method.PresetNamed("quick")
	if again.Goals[1].Width != .01 {
		t.Errorf("got a preset of width %v after a plan changed its own", again.Goals[1].Width)
	}
}

// TestAPlanSetsAttributesOfAllGoals: those of RFC 9971 that decide how much a search forgives.
func TestAPlanSetsAttributesOfAllGoals(t *testing.T) {
	p, err := readSearch(t, "{final_trial_duration: 20ms, duration_sum: 5s, exceed_ratio: 90 %}")
	if err != nil {
		t.Fatal(err)
	}

	preset, _ := method.PresetNamed("quick")
	for i, g := range p.Design.Method.Search.Goals {
		want := preset.Goals[i]
		want.FinalDuration = 20 * time.Millisecond
		want.DurationSum = 5 * time.Second
		want.ExceedRatio = .9
		want.InitialDuration = 20 * time.Millisecond // never longer than the final one
		diff := cmp.Diff(want, g)
		if diff != "" {
			t.Errorf("goal %s (-want +got):\n%s", g.Name, diff)
		}
	}

	got := p.Design.Method.Search.MinHz
	if got != 50 {
		t.Errorf("got a least load of %v connections a second, want 50: one in each trial", got)
	}

	if p, err = readSearch(t, "{final_trial_duration: 2s}"); err != nil ||
		p.Design.Method.Search.Goals[0].InitialDuration != time.Second {
		t.Errorf("longer final trials: got %v, want initial ones as the preset has them", err)
	}
}

func TestSearchesThatCannotBeAreRefused(t *testing.T) {
	for search, want := range map[string]string{
		"fast":                          `"fast" is not`,
		"{min: 0}":                      "is not a rate",
		"{max: 500}":                    "are no range above zero",
		"{width: 0.5}":                  "is not a share",
		"{latency: {repeats: 2}}":       "does not say how long",
		"{frame_loss: {duration: 1ms}}": "is not a duration",
		"{final_trial_duration: 1ms}":   "is not a duration",
		"{final_trial_duration: 12s}":   "less than one final trial",
		"{duration_sum: 500ms}":         "less than one final trial",
		"{exceed_ratio: 0.5}":           "is not a share",
		"{exceed_ratio: 100 %}":         "is not a share",
		"{final_trial_duration: 50ms, min_connections: 5}": "less than one frame",
		"{speed: 1}":             `search has no key "speed"`,
		"[quick]":                "must be a map",
		"{max_added_delay: 1ms}": "needs 368 probes",
	} {
		if p, err := readSearch(t, search); err == nil || p != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("search: %s: got %v, want an error with %q", search, err, want)
		}
	}

	if _, err := readSearch(t, "{max_added_delay: 1ms}", "measure.latency_idle=off"); err == nil ||
		!strings.Contains(err.Error(), "needs both latencies") {
		t.Errorf("without idle latency: got %v", err)
	}
}

func TestRFC2544TakesMinutesAndStrictHours(t *testing.T) {
	p, err := plan.ReadBuiltIn("rfc2544", words(), nil)
	if err != nil {
		t.Fatal(err)
	}

	var want []string
	// RFC 2544, section 9.1
	for _, size := range []string{"64", "128", "256", "512", "1024", "1280", "1518"} {
		want = append(want, "frame_size="+size)
	}

	diff := cmp.Diff(want, pick(p.Cells(), "frame_size"))
	if diff != "" {
		t.Errorf("sizes (-want +got):\n%s", diff)
	}

	if got := p.Estimate(400 * time.Millisecond); got < 5*time.Minute || got > 15*time.Minute {
		t.Errorf("shortened: got %s, want about ten minutes", got)
	}

	sets, ok := plan.Strict("rfc2544")
	if !ok {
		t.Fatal("rfc2544 has no strict times")
	}

	if p, err = plan.ReadBuiltIn("rfc2544", words(), sets); err != nil {
		t.Fatal(err)
	}

	s := p.Design.Method.Search
	if s.Goals[0].FinalDuration != time.Minute || s.Goals[0].ExceedRatio != 0 || s.Latency.Repeats != 20 ||
		s.BackToBack.Repeats != 50 || p.Design.Method.Warmup != 0 {
		t.Errorf("strict: got %+v, want the standard's times", s)
	}

	if got := p.Estimate(0); got < 12*time.Hour {
		t.Errorf("strict: got %s, want hours", got)
	}

	if _, ok := plan.Strict("quick"); ok {
		t.Error("quick follows no standard")
	}
}

// In a plan with a search, cells that take a share of what is found are fixed loads behind it, and count as
// such in the estimate.
func TestSharesOfASearch(t *testing.T) {
	p, err := readSearch(t, "quick", "matrix.rate=90% of found,flat,20M,10% of found", "method.duration=10s",
		"method.runs=2")
	if err != nil {
		t.Fatal(err)
	}

	s := p.Skipped()
	if len(s) != 1 || !strings.Contains(s[0].Reason, "leave out rate, or write a share") {
		t.Errorf("skipped %v, want the fixed rate alone", s)
	}

	got := p.Searches()
	if got != 1 || len(p.Cells()) != 3 {
		t.Errorf("%d cells, %d searches, want 1 of 3", len(p.Cells()), got)
	}

	for block := 1; block <= 2; block++ {
		var loads []string
		for _, r := range p.Block(block) {
			if r.Kind == record.RowLoad {
				loads = append(loads, r.Factors["rate"])
			}

			want := r.Kind == record.RowLoad && r.Factors["rate"] == "flat"
			if p.Design.Searches(r.Assignment) != want {
				t.Errorf("row %s, %s: searched %v, want %v", r.ID, r.Cell(), !want, want)
			}
		}

		if len(loads) != 3 || loads[0] != "flat" {
			t.Errorf("block %d: %v, want the search first", block, loads)
		}
	}

	alone, err := readSearch(t, "quick", "method.duration=10s", "method.runs=2")
	if err != nil {
		t.Fatal(err)
	}

	m := p.Design.Method
	if more, want := p.Estimate(0)-alone.Estimate(0), 4*(m.Warmup+m.Duration+m.Cooldown); more != want {
		t.Errorf("four fixed loads are estimated at %s, want %s", more, want)
	}
}

// Paced TCP is searched by added delay; shares of its rate are paced, and a pace of its own cannot be
// looked for.
func TestPacedSharesOfASearch(t *testing.T) {
	read := func(search string) *plan.Plan {
		t.Helper()
		p, err := plan.Read("x.yaml", []byte("name: x\nmethod: {runs: 1, search: "+search+
			"}\nmatrix: {protocol: tcp}\n"+
			"include: [{protocol: tcp, pacing: 50% of found}, {protocol: tcp, pacing: 5M}, {protocol: udp, "+
			"packet_size: 200}]\nmeasure: {probe_interval: 2ms}\n"), words(), nil)
		if err != nil {
			t.Fatal(err)
		}

		return p
	}
	p := read("{max_added_delay: 5ms}")
	s := p.Skipped()
	if p.Searches() != 2 || len(p.Cells()) != 3 || len(s) != 1 ||
		!strings.Contains(s[0].Reason, "leave out pacing") {
		t.Errorf("%d searches of %d cells, skipped %v; want 2 of 3 and a pace of its own skipped",
			p.Searches(), len(p.Cells()), s)
	}

	if p = read("quick"); p.Searches() != 1 || len(p.Cells()) != 1 || len(p.Skipped()) != 3 {
		t.Errorf("without a bound on delay: %d searches of %d cells, skipped %v; want UDP alone",
			p.Searches(), len(p.Cells()), p.Skipped())
	}
}
