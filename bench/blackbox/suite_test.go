// Package blackbox_test measures how often the class of limit is right that two ends alone tell of a path.
//
//	go -C bench test ./blackbox -timeout 0 -run TestRecord -binary FILE -keep DIR [-per-class 4] [-lock F]
//	go -C bench test ./blackbox -v -run TestAccuracy [-half tuning] [-update]
//
// In labs of virtual routers the program, which is also the guest's agent, must be linked statically:
// CGO_ENABLED=0 go build -o FILE ./cmd/chokepoint.
// A recording that was stopped goes on where it stopped. What is kept of a run is what its ends measured of
// each cell, so that the rules are scored again without a lab.
package blackbox_test

import (
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

var (
	half   = flag.String("half", "test", "the half that is scored: tuning, test or all")
	update = flag.Bool("update", false, "rewrite the page's figures")
)

const (
	suiteSeed = 19
	stored    = "testdata/runs.jsonl.gz"
	page      = "../../docs/howto/black-box.md"
)

// instance is a path with one limit planted in one direction; what the other shows is the lab's own.
type instance struct {
	ID        string `json:"id"`
	Lab       string `json:"lab"`
	Direction string `json:"direction"`
	Class     string `json:"class"`
	Factor    string `json:"factor,omitempty"` // with its place; none where raw tools plant
	Level     string `json:"level,omitempty"`  // of the factor, or the rule of nft that the router gets
}

// recorded is an instance with what the ends measured.
type recorded struct {
	instance
	Cells []diagnosis.Cell `json:"cells"`
}

// planted are the classes, the labs on which each can be made, and its level.
var planted = []struct {
	class string
	labs  []string
	place func(direction string) string
	level func(d *rand.Rand) string
}{
	{"shaper", []string{"local", "vm"}, egress, func(d *rand.Rand) string { return "link_rate=" + rate(d, 8, 90) }},
	{"policer", []string{"vm"}, ingress, func(d *rand.Rand) string { return "policer=" + rate(d, 10, 80) }},
	{"random-loss", []string{"vm"}, egress, func(d *rand.Rand) string {
		return "loss=" + strconv.FormatFloat(math.Round(5+40*d.Float64())/10, 'f', -1, 64) + "%"
	}},
	{"reordering", []string{"vm"}, egress, func(d *rand.Rand) string { return fmt.Sprintf("reorder=%d%%", 10+d.IntN(30)) }},
	{"per-packet-limit", []string{"vm"}, func(string) string { return "fault@router" }, func(d *rand.Rand) string {
		return fmt.Sprintf("rules=%d", 500+d.IntN(2500))
	}},
	{"slow-sender", []string{"local"}, sender, func(d *rand.Rand) string { return "slow_writer=" + rate(d, 10, 60) }},
	{"slow-reader", []string{"local"}, receiver, func(d *rand.Rand) string { return "slow_reader=" + rate(d, 10, 60) }},
	{"receive-window", []string{"local"}, receiver, func(d *rand.Rand) string { return fmt.Sprintf("receive_buffer=%d", 8192+d.IntN(16384)) }},
	{"conntrack-full", []string{"vm"}, func(string) string { return "fault@router" }, func(d *rand.Rand) string {
		return fmt.Sprintf("conntrack_max=%d", 60+d.IntN(60))
	}},
	{diagnosis.Tester, []string{"local"}, nil, nil},
}

// ruled lists the classes that a rule of the packet filter plants, with the rule for packets that come in by
// a port.
var ruled = []struct {
	class string
	rule  func(d *rand.Rand, port string) string
}{
	{"per-flow-limit", func(d *rand.Rand, port string) string {
		return fmt.Sprintf("add set inet x m { type ipv4_addr . inet_service . inet_service; flags "+
			"dynamic; }; add rule inet x c iifname %s update @m { ip saddr . th sport . th dport limit "+
			"rate over %d kbytes/second burst 64 kbytes } drop", port, 2000+d.IntN(6000))
	}},
	{diagnosis.Policer, func(d *rand.Rand, port string) string {
		return fmt.Sprintf("add rule inet x c iifname %s limit rate over %d kbytes/second burst 64 kbytes "+
			"drop", port, 15_000+d.IntN(20_000))
	}},
}

func egress(direction string) string {
	return "fault@router." + map[string]string{record.Up: "wan", record.Down: "lan"}[direction]
}

// ports names the router's port that receives the data, by direction.
var ports = map[string]string{record.Up: "lan", record.Down: "wan"}

// ingress is the port that the data comes in by: a policer drops what arrives.
func ingress(direction string) string { return "fault@router." + ports[direction] }

func sender(direction string) string {
	return "fault@" + map[string]string{record.Up: "client", record.Down: "server"}[direction]
}

func receiver(direction string) string {
	return "fault@" + map[string]string{record.Up: "server", record.Down: "client"}[direction]
}

func rate(d *rand.Rand, low, high float64) string {
	return strconv.FormatFloat(math.Round(low*math.Pow(high/low, d.Float64())), 'f', 0, 64) + "M"
}

// instances are so many of each class, in rounds, drawn from the seed.
func instances(perClass int) []instance {
	d := rand.New(rand.NewPCG(suiteSeed, 1))
	var out []instance
	for n := range perClass {
		for _, p := range planted {
			x := instance{
				ID:        fmt.Sprintf("%s#%02d", p.class, n),
				Lab:       p.labs[n/2%len(p.labs)],
				Class:     p.class,
				Direction: []string{record.Up, record.Down}[d.IntN(2)],
			}
			if p.level != nil {
				x.Factor, x.Level = p.place(x.Direction), p.level(d)
			}

			out = append(out, x)
		}
	}

	d = rand.New(rand.NewPCG(suiteSeed, 2))
	for n := range perClass {
		for _, p := range ruled {
			x := instance{
				ID:        fmt.Sprintf("%s#nft%02d", p.class, n),
				Lab:       "local",
				Class:     p.class,
				Direction: []string{record.Up, record.Down}[d.IntN(2)],
			}
			x.Level = p.rule(d, ports[x.Direction])
			out = append(out, x)
		}
	}

	return out
}

// tuning says on which half an instance is: of each class one, in turn. What was planted by hand while the
// rules were written is on it as well.
func (x instance) tuning() bool {
	_, n, _ := strings.Cut(x.ID, "#")
	number, err := strconv.Atoi(strings.TrimPrefix(n, "nft"))
	return err != nil || number%2 == 1
}

// readRuns are the instances of the file.
func readRuns(t testing.TB) (all []recorded) {
	t.Helper()
	f, err := os.Open(stored)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}

	for lines := json.NewDecoder(z); lines.More(); {
		var r recorded
		if err := lines.Decode(&r); err != nil {
			t.Fatal(err)
		}

		all = append(all, r)
	}

	return all
}

// said returns the first two classes that the rules name for the direction of the limit; "none" where they
// name none.
func (r recorded) said() (class, second string) {
	class, second = "none", "none"
	p := diagnosis.Blackbox(r.Cells)
	if p != nil {
		for _, d := range p.Directions {
			if d.Direction != r.Direction {
				continue
			}

			class = d.Class
			if len(d.Causes) > 1 {
				second = d.Causes[1].Class
			}
		}
	}

	return class, second
}

// minRight is the share of the stored runs, of both halves, below which a change of the rules has lowered
// accuracy.
const minRight = .85

func TestAccuracy(t *testing.T) {
	all := readRuns(t)
	right, n := 0, 0
	matrix := map[string]map[string]int{}
	for _, r := range all {
		if *half != "all" && r.tuning() != (*half == "tuning") {
			continue
		}

		class, second := r.said()
		if matrix[r.Class] == nil {
			matrix[r.Class] = map[string]int{}
		}

		matrix[r.Class][class]++
		if n++; class == r.Class {
			right++
		} else {
			t.Logf("%s %s %s %s: said %s, then %s", r.ID, r.Lab, r.Direction, r.Level, class, second)
		}
	}

	low, high := rig.Wilson(right, n)
	if n == 0 {
		t.Fatalf("no run of the %s half is stored", *half)
	}

	text := fmt.Sprintf("Right in %d of %d runs of the %s half: %.0f %% (95 %% interval %.0f to "+
		"%.0f %%).\n\n", right, n, *half, 100*float64(right)/float64(n), 100*low, 100*high) + table(matrix)
	t.Log(text)
	if float64(right) < minRight*float64(n) {
		t.Errorf("right in %d of %d runs: below %.0f %%", right, n, 100*minRight)
	}

	onPage(t, text)
}

// table is the confusion matrix: what was planted, and how often what was said of it.
func table(matrix map[string]map[string]int) string {
	var b strings.Builder
	b.WriteString("| planted | diagnosed |\n|---|---|\n")
	classes := []string{ruled[0].class}
	for _, p := range planted {
		classes = append(classes, p.class)
	}

	for _, planted := range classes {
		var said []string
		for class, n := range matrix[planted] {
			said = append(said, fmt.Sprintf("%s %d", class, n))
		}

		if slices.Sort(said); len(said) > 0 {
			b.WriteString("| " + planted + " | " + strings.Join(said, ", ") + " |\n")
		}
	}

	return b.String()
}

// onPage holds the page to the figures of the test half.
func onPage(t *testing.T, text string) {
	t.Helper()
	if *half != "test" {
		return
	}

	const begin = "<!-- figures: written by go -C bench test ./blackbox -update -->\n\n"
	const end = "\n<!-- end -->"
	body, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}

	before, rest, ok := strings.Cut(string(body), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no place for the figures", page)
	}

	want := before + begin + text + end + after
	switch {
	case *update:
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	case want != string(body):
		t.Errorf("%s has other figures: run go -C bench test ./blackbox -run TestAccuracy -update", page)
	}
}
