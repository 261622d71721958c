package analysis

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestHeadline: the greatest goodput through a router stands for a run, or what it has instead.
func TestHeadline(t *testing.T) {
	cell := func(label, topology string, values map[string]float64) Cell {
		c := Cell{Cell: metrics.Cell{
			Label:   label,
			Grade:   "valid",
			Factors: record.Factors{"topology": topology},
			Metrics: map[string]statistics.Value{},
		}}
		for name, v := range values {
			c.Metrics[name] = statistics.Value{Median: v}
		}
		return c
	}
	direct := cell("direct", "direct", map[string]float64{metrics.Goodput: 9e9})
	slow := cell("slow", "forward", map[string]float64{metrics.Goodput: 1e9})
	fast := cell("fast", "forward", map[string]float64{metrics.Goodput: 2e9})
	packets := cell("packets", "forward", map[string]float64{metrics.Goodput: 8e9, metrics.PacketRate: 1e6})
	searched := cell("searched", "forward",
		map[string]float64{metrics.Goodput: 1e6, metrics.ThroughputNDR: 2e5})
	ciphers := cell("aes", "", map[string]float64{metrics.CipherRate: 3e9})
	for _, tc := range []struct {
		name   string
		cells  []Cell
		metric string
		of     Cell
	}{
		{"goodput", []Cell{direct, slow, packets, fast}, metrics.Goodput, fast},
		{"packets alone", []Cell{packets, direct}, metrics.PacketRate, packets},
		{"a search", []Cell{fast, searched}, metrics.ThroughputNDR, searched},
		{"ciphers", []Cell{ciphers}, metrics.CipherRate, ciphers},
		{"no router", []Cell{direct}, metrics.Goodput, direct},
	} {
		d := &Document{Cells: tc.cells}
		want := &record.Headline{
			Metric: tc.metric,
			Value:  tc.of.Metrics[tc.metric].Median,
			Unit:   metrics.Of(tc.metric).Unit,
			Cell:   tc.of.Label,
			Grade:  "valid",
		}
		diff := cmp.Diff(want, d.Headline())
		if diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}

	if h := (&Document{Cells: []Cell{cell("empty", "forward", nil)}}).Headline(); h != nil {
		t.Errorf("without a number: got %+v, want none", h)
	}
}

// TestDeviceOfRuns: another device explains a difference, unless its fingerprint, whose facts are compared,
// named it.
func TestDeviceOfRuns(t *testing.T) {
	found := func(release string) *Document {
		facts := map[string]string{"product": "R1", "distribution": "openwrt"}
		facts["distribution_release"] = release
		d := &Document{Environment: []record.Environment{{Node: "router", Facts: facts}}}
		d.Run.Device = record.DeviceOf(facts, true)
		return d
	}
	typed := func(device string) *Document {
		d := &Document{}
		d.Run.Device = device
		return d
	}
	for _, tc := range []struct {
		name  string
		a, b  *Document
		cause string
	}{
		{"typed", typed("R1"), typed("R2"), "device: R1 → R2"},
		{"found", found("23.05"), found("24.10"), "distribution_release on router: 23.05 → 24.10"},
		{"one unknown", typed("R1"), typed(""), ""},
	} {
		var want []string
		if tc.cause != "" {
			want = []string{tc.cause}
		}

		diff := cmp.Diff(want, causesOf(changes(tc.a, tc.b)))
		if diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}
