package plan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/method"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
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
		if s.Preset != name || len(s.Goals) != len(preset.Goals) || s.Goals[0] != record.Goal(preset.Goals[0]) || s.CountPauses != preset.Overhead {
			t.Errorf("%s: got %+v, want the preset's goals", name, s)
		}
	}
	p, err := readSearch(t, "{max: 1M, width: 3 %}")
	if err != nil {
		t.Fatal(err)
	}
	if s := p.Design.Method.Search; s.Preset != "quick" || s.MaxPPS != 1e6 || s.MinPPS != 1000 || s.Goals[1].Width != .03 {
		t.Errorf("got %+v, want quick up to 1 Mpps with a width of 3 %%", s)
	}
	// What one plan changes is not another's.
	if again, _ := method.PresetNamed("quick"); again.Goals[1].Width != .01 {
		t.Errorf("got a preset of width %v after a plan changed its own", again.Goals[1].Width)
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
		"{speed: 1}":                    `search has no key "speed"`,
		"[quick]":                       "must be a map",
		"{max_added_delay: 1ms}":        "needs 368 probes",
	} {
		if p, err := readSearch(t, search); err == nil || p != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("search: %s: got %v, want an error with %q", search, err, want)
		}
	}
	if _, err := readSearch(t, "{max_added_delay: 1ms}", "measure.latency_idle=off"); err == nil || !strings.Contains(err.Error(), "needs both latencies") {
		t.Errorf("without idle latency: got %v", err)
	}
}

func TestRFC2544TakesMinutesAndStrictHours(t *testing.T) {
	p, err := plan.ReadBuiltIn("rfc2544", words(), nil)
	if err != nil {
		t.Fatal(err)
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
	if s.Goals[0].FinalDuration != time.Minute || s.Goals[0].ExceedRatio != 0 || s.Latency.Repeats != 20 || s.BackToBack.Repeats != 50 || p.Design.Method.Warmup != 0 {
		t.Errorf("strict: got %+v, want the standard's times", s)
	}
	if got := p.Estimate(0); got < 12*time.Hour {
		t.Errorf("strict: got %s, want hours", got)
	}
	if _, ok := plan.Strict("quick"); ok {
		t.Error("quick follows no standard")
	}
}
