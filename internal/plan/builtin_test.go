package plan_test

import (
	"os"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/google/go-cmp/cmp"
)

func TestBuiltInsParse(t *testing.T) {
	cells := map[string]int{
		"quick": 10, "path": 16, "blackbox": 23, "wireguard": 11, "queues": 14, "firewall": 24,
		"forwarding": 12, "openvpn": 36,
		"site-to-site": 8, "to-router": 12, "latency": 7,
		"rfc2544": 7, "ramp": 12, "soak": 1, "crypto": 6, "crypto-full": 106,
	}
	for _, name := range plan.BuiltIns() {
		p, err := plan.ReadBuiltIn(name, words(), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}

		if p.Design.Name != name || p.Design.Source != plan.BuiltInSource {
			t.Errorf("%s: got name %q and source %q", name, p.Design.Name, p.Design.Source)
		}

		got := len(p.Cells())
		if got != cells[name] {
			t.Errorf("%s: got %d cells, want %d", name, got, cells[name])
		}

		if len(p.Skipped()) > 0 {
			t.Errorf("%s: got skipped cells %v, want none", name, p.Skipped())
		}

		if p.SeedGiven {
			t.Errorf("%s: got a fixed seed, want it drawn", name)
		}
	}

	files, err := os.ReadDir("plans")
	if err != nil {
		t.Fatal(err)
	}

	if got, want := len(files), len(plan.BuiltIns()); got != want {
		t.Errorf("files in plans: got %d, want %d, one for each name", got, want)
	}
}

func TestQuickHasItsTenCells(t *testing.T) {
	p, err := plan.ReadBuiltIn("quick", words(), nil)
	if err != nil {
		t.Fatal(err)
	}

	tcp := "congestion=cubic direction=%d engine=native ip=4%m nat=%n offload=wire protocol=tcp streams=%s " +
		"topology=forward tunnel=%t"
	line := func(tunnel, streams, direction, nat string) string {
		mtu := ""
		if tunnel != "none" {
			mtu = " mtu=1420"
		}
		return strings.NewReplacer("%d", direction, "%m", mtu, "%n", nat, "%s", streams, "%t",
			tunnel).Replace(tcp)
	}
	want := []string{
		line("none", "1", "up", "off"), line("none", "1", "down", "off"),
		line("none", "4", "up", "off"), line("none", "4", "down", "off"),
		line("wireguard", "1", "up", "off"), line("wireguard", "1", "down", "off"),
		line("wireguard", "4", "up", "off"), line("wireguard", "4", "down", "off"),
		line("none", "1", "up", "masquerade"),
		"direction=up engine=native ip=4 nat=off offload=wire packet_size=64 protocol=udp rate=flat " +
			"streams=1 topology=forward tunnel=none",
	}
	diff := cmp.Diff(want, keys(p.Cells()))
	if diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}

	first, _, _ := strings.Cut(p.Design.Description, "\n")
	if !strings.Contains(first,
		"his machine acting as a router") {
		t.Errorf("first line of the description: got %q", first)
	}

	got := p.Estimate(0)
	if got < 60*time.Second || got > 75*time.Second {
		t.Errorf("measuring takes %v, want about 70s", got)
	}

	if p.Design.Method.Runs != 3 || !p.Design.Measure.LatencyLoaded ||
		p.Design.Measure.LatencyIdle != plan.IdleBlock {
		t.Errorf("got method %+v and measure %+v", p.Design.Method, p.Design.Measure)
	}
}

// The complete plan of the guide uses every key, so none goes undocumented.
func TestCompletePlanIsComplete(t *testing.T) {
	data, err := os.ReadFile("testdata/complete.yaml")
	if err != nil {
		t.Fatal(err)
	}

	p, err := plan.Read("complete.yaml", data, words(), nil)
	if err != nil {
		t.Fatal(err)
	}

	for _, key := range strings.Fields("name description method duration warmup cooldown idle adaptive min " +
		"max until runs order seed matrix include exclude measure latency_idle latency_loaded probe " +
		"probe_interval probe_spacing verify telemetry tester_ceiling require conditions steps when prompt") {
		if !strings.Contains(string(data), key+":") {
			t.Errorf("the key %s is missing", key)
		}
	}

	d := p.Design
	want := record.Method{
		Duration: 20 * time.Second,
		Warmup:   2 * time.Second,
		Cooldown: 500 * time.Millisecond,
		Idle:     5 * time.Second,
		Runs:     20,
		Adaptive: &record.Adaptive{Min: 6, Max: 20, Width: 0.02},
		Order:    "blocks",
		Seed:     42,
	}
	if diff := cmp.Diff(want, d.Method); diff != "" {
		t.Errorf("method (-want +got):\n%s", diff)
	}

	wantRequire := []record.Requirement{
		{
			Text:   "goodput >= 250M where tunnel=none, protocol=tcp",
			Metric: "goodput_bps",
			Op:     ">=",
			Value:  250e6,
			Where:  map[string]string{"tunnel": "none", "protocol": "tcp"},
		},
		{
			Text:   "loss <= 0.1 % where protocol=udp",
			Metric: "loss_ratio",
			Op:     "<=",
			Value:  0.001,
			Where:  map[string]string{"protocol": "udp"},
		},
		{
			Text:   "rtt_loaded_p99 <= 20ms where tunnel=wireguard",
			Metric: "rtt_loaded_p99_ns",
			Op:     "<=",
			Value:  20e6,
			Where:  map[string]string{"tunnel": "wireguard"},
		},
		{
			Text:   "validity = valid where protocol=tcp",
			Metric: "validity",
			Op:     "=",
			Where:  map[string]string{"protocol": "tcp"},
		},
	}
	if diff := cmp.Diff(wantRequire, d.Requirements); diff != "" {
		t.Errorf("require (-want +got):\n%s", diff)
	}

	got := len(p.Cells())
	if got != 10 {
		t.Errorf("got %d cells, want 8 of the matrix − 1 excluded + 3 included", got)
	}

	if diff := cmp.Diff([]string{"mtu: there is no tunnel (4 combinations)"}, p.Notes()); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}

	if !p.SeedGiven || len(d.Steps) != 2 || d.Conditions["ambient"] != "22 °C" ||
		d.Conditions["watts"] != "6.1" {
		t.Errorf("got seed given %v, steps %v, conditions %v", p.SeedGiven, d.Steps, d.Conditions)
	}
}

func keys(cells []record.Factors) []string {
	out := make([]string, len(cells))
	for i, c := range cells {
		out[i] = c.Key()
	}
	return out
}

func sorted(list []string) []string {
	sort.Strings(list)
	return list
}
