package plan_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/google/go-cmp/cmp"
)

const hardPlan = `
matrix:
  topology: [forward, to-router]
  cpus: [1, 2]
  streams: [1, 4]
  tunnel: [none, wireguard]
`

var update = flag.Bool("update", false, "rewrite golden files")

// listing formats rows as the golden file holds them.
func listing(rows []record.Row) string {
	var b strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&b, "%3d %s %-6s %s\n", r.Index, r.ID, r.Kind, r.Factors.Key())
	}
	return b.String()
}

// The order of a seed is part of what a stored run means, so it never changes.
func TestExpandGolden(t *testing.T) {
	p, err := plan.ReadBuiltIn("quick", words(), []string{"method.runs=2", "method.seed=1"})
	if err != nil {
		t.Fatal(err)
	}

	got := listing(p.Rows())
	const file = "testdata/quick-seed1.golden"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	diff := cmp.Diff(string(want), got)
	if diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

func TestBlocksArePermutations(t *testing.T) {
	for _, text := range []string{hardPlan, hardPlan + "method: {order: listed}\n", hardPlan +
		"measure: {latency_idle: off, verify: false}\n"} {
		p := read(t, text).WithSeed(7)
		cells := sorted(keys(p.Cells()))
		orders := map[string]bool{}
		index := 0
		for k := 1; k <= 6; k++ {
			var loads []string
			for i, row := range p.Block(k) {
				index++
				if row.Index != index || row.Block != k || row.ID != fmt.Sprintf("b%d-r%02d", k, i+1) {
					t.Errorf("row %d of block %d: got %s, index %d, block %d, want index %d", i+1, k, row.ID,
						row.Index, row.Block, index)
				}

				if row.Kind == record.RowLoad {
					loads = append(loads, row.Cell())
				}
			}

			orders[strings.Join(loads, "\n")] = true
			diff := cmp.Diff(cells, sorted(loads))
			if diff != "" {
				t.Errorf("block %d is no permutation of the cells (-want +got):\n%s", k, diff)
			}
		}

		listed := strings.Contains(text, "listed")
		if listed && len(orders) != 1 || !listed &&
			len(orders) < 5 {
			t.Errorf("got %d different orders in 6 blocks\n%s", len(orders), text)
		}
	}
}

func TestBlockDependsOnSeedAndNumberOnly(t *testing.T) {
	few := read(t, hardPlan, "method.runs=3").WithSeed(7)
	many := read(t, hardPlan, "method.runs=30", "method.duration=1s").WithSeed(7)
	other := few.WithSeed(8)
	for k := 1; k <= 3; k++ {
		diff := cmp.Diff(few.Block(k), many.Block(k))
		if diff != "" {
			t.Errorf("block %d depends on the number of blocks (-few +many):\n%s", k, diff)
		}

		if cmp.Equal(few.Block(k), other.Block(k)) {
			t.Errorf("block %d is the same for two seeds", k)
		}
	}

	if diff := cmp.Diff(few.Block(2), few.Block(2)); diff != "" {
		t.Errorf("block 2 differs when asked again:\n%s", diff)
	}

	var rows []record.Row
	for k := 1; k <= 3; k++ {
		rows = append(rows, few.Block(k)...)
	}

	if diff := cmp.Diff(rows, few.Rows()); diff != "" {
		t.Errorf("Rows() is not all blocks (-want +got):\n%s", diff)
	}
}

// Hard factors change as seldom as they can: topology once per level, and the number of cores once per
// level inside each.
func TestHardFactorsFormGroups(t *testing.T) {
	p := read(t, hardPlan).WithSeed(3)
	diff := cmp.Diff([]string{"topology", "cpus"}, p.Design.Hard)
	if diff != "" {
		t.Errorf("hard factors (-want +got):\n%s", diff)
	}

	first := map[string]int{}
	for k := 1; k <= 40; k++ {
		topologies, cores := 0, 0
		var last record.Factors
		for i, row := range p.Block(k) {
			if i == 0 {
				first[row.Factors["topology"]]++
			}

			if last == nil || last["topology"] != row.Factors["topology"] {
				topologies++
			}

			if last == nil || last["topology"] != row.Factors["topology"] ||
				last["cpus"] != row.Factors["cpus"] {
				cores++
			}

			last = row.Factors
		}

		if topologies != 2 || cores != 4 {
			t.Errorf("block %d: %d stretches of topology and %d of cores, want 2 and 4", k, topologies, cores)
		}
	}

	if first["forward"] < 8 || first["to-router"] < 8 {
		t.Errorf("groups are not shuffled: first topology %v", first)
	}
}

func TestIdleAndVerifyRows(t *testing.T) {
	p := read(t, hardPlan).WithSeed(3)
	for k := 1; k <= 2; k++ {
		idle := map[string]int{}
		verify := map[string]int{}
		ready := map[string]bool{}
		for _, row := range p.Block(k) {
			path := p.Design.Path(row.Factors).Key()
			switch row.Kind {
			case record.RowIdle:
				idle[path]++
				ready[path] = true
				if row.Cell() != path {
					t.Errorf("idle row has traffic factors: %s", row.Cell())
				}
			case record.RowVerify:
				verify[path]++
				f := row.Factors
				if ready[path] || f["protocol"] != "tcp" || f["streams"] != "1" || f["direction"] != "both" ||
					f["engine"] != "native" {
					t.Errorf("verify row: %s, after its idle row: %v", row.Cell(), ready[path])
				}
			case record.RowLoad:
				if !ready[path] {
					t.Errorf("block %d: load before the idle latency of its path: %s", k, row.Cell())
				}
			}
		}

		paths := map[string]int{}
		for _, c := range p.Cells() {
			paths[p.Design.Path(c).Key()] = 1
		}

		if diff := cmp.Diff(paths, idle); diff != "" {
			t.Errorf("block %d: idle rows per path (-want +got):\n%s", k, diff)
		}

		if k > 1 {
			paths = map[string]int{}
		}

		if diff := cmp.Diff(paths, verify); diff != "" {
			t.Errorf("block %d: verify rows per path (-want +got):\n%s", k, diff)
		}
	}
}

// Cells that differ in what is sent alone, by whatever factor, share one idle latency and one verification.
func TestOnePathIsIdleAndVerifiedOnce(t *testing.T) {
	for _, matrix := range []string{
		"pacing: [50M, 100M], mss: [536, 1000, 1448]",
		"socket_buffer: [65536, 131072], ecn: [on, off], copy: [a, b]",
		"protocol: udp, udp_mode: [exact, count], rate: [10M, 20M, 30M]",
		"protocol: udp, udp_gso: [auto, off], frame_size: [128, 512, 1518]",
		"congestion: [cubic, reno], dscp: [0, 10, 46]",
		"engine: [native, iperf3], streams: [1, 2, 4]",
		"engine: flows, flow_size: [1000, 10000], connection_rate: [10, 20, 30]",
		"engine: requests, direction: both, request_size: [100, 200], response_size: [100, 200, 300]",
		"direction: [up, down, both], copy: [a, b]",
	} {
		t.Run(matrix, func(t *testing.T) {
			p := read(t, "matrix: {"+matrix+"}\n").WithSeed(1)
			cells := len(p.Cells())
			for k, want := range []int{cells + 2, cells + 1} {
				got := len(p.Block(k + 1))
				if got != want || cells < 4 {
					t.Errorf("block %d: got %d rows for %d cells on one path, want %d", k+1, got, cells, want)
				}
			}
		})
	}
}

// Every cell stands at every place equally often. The counts of 4000 random permutations of four have both
// margins fixed, so (4−1)/4 of the usual sum is χ² with 9 degrees of freedom; 33.7 is exceeded with
// probability 1e-4.
func TestShuffleIsFair(t *testing.T) {
	p := read(t, "matrix: {streams: [1, 2, 4, 8]}\nmeasure: {latency_idle: off, verify: "+
		"false}\n").WithSeed(99)
	const blocks = 4000
	counts := map[string]*[4]int{}
	for k := 1; k <= blocks; k++ {
		for i, row := range p.Block(k) {
			if counts[row.Factors["streams"]] == nil {
				counts[row.Factors["streams"]] = new([4]int)
			}

			counts[row.Factors["streams"]][i]++
		}
	}

	chi := 0.0
	for _, places := range counts {
		for _, n := range places {
			d := float64(n) - blocks/4
			chi += 3. / 4 * d * d / (blocks / 4)
		}
	}

	if chi > 33.7 {
		t.Errorf("χ² = %.1f, want at most 33.7: %v", chi, counts)
	}
}

// A stored design gives the same rows without its text being read again.
func TestNewFromStoredDesign(t *testing.T) {
	p := read(t, hardPlan).WithSeed(5)
	if err := p.Fit(p.Estimate(0)/2, 0); err != nil {
		t.Fatal(err)
	}

	data, err := json.Marshal(p.Design)
	if err != nil {
		t.Fatal(err)
	}

	var d record.Design
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}

	diff := cmp.Diff(p.Rows(), plan.New(d).Rows())
	if diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// TestFirmwareIsOutermost: all blocks of one come before those of the next, in the order of the plan, and
// cells without any before them.
func TestFirmwareIsOutermost(t *testing.T) {
	p := plan.New(record.Design{
		Procedure: record.Procedure{
			Method:  record.Method{Runs: 2, Order: plan.OrderBlocks, Seed: 4},
			Measure: record.Measure{LatencyIdle: "off", Verify: true},
			Loads:   []string{"streams"},
		},
		Hard: []string{"firmware"},
		Cells: []record.Factors{{"firmware": "B", "streams": "1"},
			{"firmware": "B", "streams": "2"}, {"firmware": "A", "streams": "1"},
			{"firmware": "A", "streams": "2"}, {"streams": "4"}},
	})
	got, index := "", 0
	for _, r := range p.Rows() {
		if index++; r.Index != index {
			t.Errorf("row %s: index %d, want %d", r.ID, r.Index, index)
		}

		got += fmt.Sprintf("%d%s%s ", r.Block, r.Factors["firmware"], r.Kind[:1])
	}

	const want = "1v 1l 2l 1Bv 1Bl 1Bl 2Bl 2Bl 1Av 1Al 1Al 2Al 2Al "
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
