package plan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/google/go-cmp/cmp"
)

const shapedPlan = `
matrix: {streams: [1, 4], queue@router.wan: "tbf rate 50M burst 128k limit 256k", sysctl:net.ipv4.tcp_rmem@client: 4096 131072 6291456}
include: [{protocol: udp, frame_size: 512, rate: 20M, tunnel: wireguard}]
conditions: {link: 1G}
`

func experimentOf(t *testing.T, cell int) (*plan.Plan, plan.Patched) {
	t.Helper()
	base := read(t, shapedPlan)
	steps := []record.SweepStep{{Level: "tbf rate 45M burst 128k limit 256k", Resource: .9},
		{Level: "tbf rate 37500k burst 128k limit 256k", Resource: .75},
		{Level: "tbf rate 25M burst 128k limit 256k", Resource: .5}}
	e := &record.Experiment{
		Run:    "20261124-120000-abcd",
		Class:  "shaper",
		Factor: "queue@router.wan",
		Steps:  steps,
		Expect: 1,
		Fix:    "fifo limit 1000",
		Why:    "the rate follows: at once",
	}
	x := plan.Patched{
		Name:        "prove-shaper",
		Description: "Steps: \"three\" of one resource.",
		Design:      base.Design,
		Cells:       []factor.Cell{base.Cells()[cell]},
		Copies:      3,
		Blocks:      2,
		Window:      2 * time.Second,
		Experiment:  e,
	}
	for _, d := range append(steps, record.SweepStep{Level: "off"}) {
		x.Patches = append(x.Patches, factor.Cell{e.Factor: d.Level})
	}

	x.Patches[3][e.Factor] = e.Fix
	return base, x
}

// TestPatchedTextIsThePlan: what is printed is read as what was meant, for every kind of cell.
func TestPatchedTextIsThePlan(t *testing.T) {
	for cell := range 3 {
		base, x := experimentOf(t, cell)
		text := x.Text(words())
		p, err := plan.Read("x.yaml", []byte(text), words(), nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}

		diff := cmp.Diff(x.Experiment, p.Design.Experiment)
		if diff != "" {
			t.Errorf("experiment (-want +got):\n%s\n%s", diff, text)
		}

		if got := len(p.Cells()); got != 7 {
			t.Errorf("cells: got %d, want 7\n%s", got, text)
		}

		untouched := 0
		for _, c := range p.Cells() {
			if !p.Design.Experiment.Untouched(c) {
				if c["queue@router.wan"] == "" || factor.Copy.In(c) {
					t.Errorf("a step's cell is %v", c)
				}
				continue
			}

			untouched++
			got, want := factor.Copy.With(c, "").Key(), base.Cells()[cell].Key()
			if got != want {
				t.Errorf("untouched: got %s, want %s", got, want)
			}
		}

		d := p.Design
		if untouched != 3 || d.Conditions["link"] != "1G" || d.Method.Duration != 2*time.Second {
			t.Errorf("%d untouched cells in\n%s", untouched, text)
		}
	}
}

func TestAlternatedOrder(t *testing.T) {
	_, x := experimentOf(t, 0)
	p := readNamed(t, x.Text(words()))
	begins := map[bool]bool{}
	orders := map[string]bool{}
	for seed := range uint64(20) {
		rows := p.WithSeed(seed).Block(1)
		order, run := "", 1
		for i, r := range rows {
			order += r.Factors["queue@router.wan"] + r.Factors["copy"] + " "
			if run++; i == 0 || factor.Copy.In(r.Factors) != factor.Copy.In(rows[i-1].Factors) {
				run = 1
			}

			if run > 2 {
				t.Errorf("seed %d: three of a kind in a row: %s", seed, order)
			}
		}

		orders[order] = true
		begins[factor.Copy.In(rows[0].Factors)] = true
	}

	if len(orders) < 15 || len(begins) != 2 {
		t.Errorf("20 seeds gave %d orders, begun by %v", len(orders), begins)
	}
}

func TestExperimentThatCannotBe(t *testing.T) {
	_, x := experimentOf(t, 0)
	good := x.Text(words())
	for _, c := range []struct{ old, new, want string }{
		{"90 %", "100 %", `"100 %" is not a share`},
		{"  class: shaper\n", "", "names no class"},
		{"  factor: queue@router.wan\n", "", "has no factor yet"},
		{`45M burst 128k limit 256k: 90`, `44M burst 128k limit 256k: 90`, "no cell has the level"},
		{"expect: 1 ", "expect: much ", "is not an elasticity"},
		{"tbf rate 50M", "tbf rate 45M", "is untouched"},
	} {
		text := strings.Replace(good, c.old, c.new, 1)
		if text == good {
			t.Fatalf("%q is not in\n%s", c.old, good)
		}

		_, err := plan.Read("x.yaml", []byte(text), words(), nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s instead of %s: got %v, want %q", c.new, c.old, err, c.want)
		}
	}

	const step = "45M burst 128k limit 256k: 90 %"
	const wrong = "44M burst 1k limit 2k: 90 %\n    tbf rate 43M burst 1k limit 2k: 80 %"
	two := strings.Replace(good, step, wrong, 1)
	_, err := plan.Read("x.yaml", []byte(two), words(), nil)
	if err == nil || strings.Count(err.Error(), "no cell has the level") != 2 {
		t.Errorf("two steps that no cell has: got %v, want both errors", err)
	}
}

func readNamed(t *testing.T, text string) *plan.Plan {
	t.Helper()
	p, err := plan.Read("x.yaml", []byte(text), words(), nil)
	if err != nil {
		t.Fatal(err)
	}

	return p
}
