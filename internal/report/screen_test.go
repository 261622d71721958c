package report

import (
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// cellsOfPlan makes a view of cells of TCP and UDP with and without a tunnel, as a plan would list them.
func cellsOfPlan() *view {
	d := &analysis.Document{}
	add := func(label string, f record.Factors) {
		d.Cells = append(d.Cells, analysis.Cell{Cell: metrics.Cell{Factors: f, Label: label}})
	}
	for _, tunnel := range []string{"none", "wireguard"} {
		for _, streams := range []string{"1", "4"} {
			for _, direction := range []string{"up", "down"} {
				f := record.Factors{"tunnel": tunnel, "protocol": "tcp", "streams": streams,
					"direction": direction, "nat": "off"}
				words := map[string]string{"none": "no tunnel", "wireguard": "wireguard", "1": "1 stream",
					"4": "4 streams"}
				add(words[tunnel]+" · TCP · "+words[streams]+" · "+direction, f)
			}
		}
	}

	add("no tunnel · TCP · 1 stream · up · masquerade", record.Factors{"tunnel": "none", "protocol": "tcp",
		"streams": "1", "direction": "up", "nat": "masquerade"})
	return newView(d)
}

func TestGroupsOfCells(t *testing.T) {
	var got []string
	v := cellsOfPlan()
	for _, g := range v.groups(v.all) {
		got = append(got, g.head+":")
		for _, r := range g.rows {
			got = append(got, r.label+" = "+r.full)
		}
	}

	want := []string{
		"TCP:",
		"up    1 stream = up 1 stream",
		"      4 streams = up 4 streams",
		"down  1 stream = down 1 stream",
		"      4 streams = down 4 streams",
		"WireGuard TCP:",
		"up    1 stream = up 1 stream",
		"      4 streams = up 4 streams",
		"down  1 stream = down 1 stream",
		"      4 streams = down 4 streams",
		"TCP masquerade:",
		"up  1 stream = up 1 stream",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("groups:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestNamesOfCells: a finding names its cells, and no others, by few words.
func TestNamesOfCells(t *testing.T) {
	v := cellsOfPlan()
	for _, tt := range []struct {
		want  string
		cells []int
	}{
		{"all cells", []int{0, 1, 2, 3, 4, 5, 6, 7, 8}},
		{"WireGuard", []int{4, 5, 6, 7}},
		{"no tunnel, 4 streams", []int{2, 3}},
		{"masquerade", []int{8}},
		{"WireGuard; masquerade", []int{4, 5, 6, 7, 8}},
		{"no tunnel, down; masquerade", []int{1, 3, 8}},
		{"no tunnel, no masquerade, up, 1 stream", []int{0}},
		{"no tunnel, down; WireGuard, up and 1 more", []int{1, 3, 4, 6, 8}},
	} {
		var f finding
		for _, i := range tt.cells {
			f.Cells = append(f.Cells, v.all[i].Factors)
			f.Labels = append(f.Labels, v.all[i].Label)
		}

		if got := v.who(f, 2); got != tt.want {
			t.Errorf("cells %v: %q, want %q", tt.cells, got, tt.want)
		}
	}
}

// TestScreenIsOneScreen: at 80 columns plan quick takes forty lines at most, two of which the program adds
// below, and the first rate stands in the first eight.
func TestScreenIsOneScreen(t *testing.T) {
	lines := strings.Split(strings.TrimRight(Screen(samples()["quick"], 80, false), "\n"), "\n")
	if len(lines) > 37 {
		t.Errorf("the screen has %d lines:\n%s", len(lines), strings.Join(lines, "\n"))
	}

	for i, line := range lines {
		if strings.Contains(line, "bit/s") {
			if i >= 8 {
				t.Errorf("the first rate stands in line %d", i+1)
			}

			return
		}
	}

	t.Error("no rate on the screen")
}
