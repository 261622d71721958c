package report

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// diagnose gives a sample's cells a diagnosis: the core inside a tunnel, a shaper on the link without one,
// and nothing that is known of UDP.
func diagnose(d *analysis.Document) {
	for i := range d.Cells {
		c := &d.Cells[i]
		c.Diagnosis = sampleDiagnosis(c)
	}

	d.Verdicts = analysis.Verdicts(d.Cells)
}

func sampleDiagnosis(c *analysis.Cell) *diagnosis.Diagnosis {
	share := func(node, element, label string, x float64, of string) diagnosis.Stage {
		return diagnosis.Stage{Node: node, Element: element, Label: label, Utilisation: &x, Of: of}
	}
	d := &diagnosis.Diagnosis{
		Class:      diagnosis.Unknown,
		Trials:     3,
		Confidence: .71,
		Text:       "the limit is not known: no known cause fits the measurements",
		Excluded: []diagnosis.Exclusion{{
			Class: "receive-window",
			By: evidence.Evidence{
				Metric: "rwnd_limited_ratio",
				Text:   "the receive window limited TCP for 0.4 % of the time",
			},
		}},
		NotExamined: []diagnosis.Gap{{Class: "thermal", Why: "no thermal zone on this machine"},
			{Class: "clock-down", Why: "no thermal zone on this machine"}},
		Path: []diagnosis.Stage{share("client", "generator", "sender", .34, "one core"),
			{Element: "lan", Label: "lan", Why: "the rate of this link is not known"},
			share("router", "wan", "queue wan", .12, "the samples"),
			share("router", "cpu0", "busiest core", .97, "its time"),
			share("", "wan", "wan", .998, "what tbf 100M can carry"),
			share("server", "generator", "receiver", .41, "one core"),
			share(record.HostNode, "cpu1", "busiest core", .98, "its time"),
			share(record.HostNode, "cpu", "all cores", .64, "their time"),
			share(record.HostNode, "cpu1", "softirq", .22, "one core")},
	}
	if packets(c) {
		return d
	}

	value := .97
	cause := diagnosis.Cause{
		Class:      "softirq-one-core",
		Node:       "router",
		Element:    "cpu0",
		Confidence: .86,
		Text: "the router's core 0 is saturated by softirq while core 1 idles for 61 %: one receive " +
			"queue",
		GainAtMost: 1.8,
		Facts: []evidence.Evidence{{
			Metric: "cpu_busy_ratio",
			Value:  &value,
			Text:   "the router's core 0 was busy for 97 % of the window",
		}},
		Remedies: []diagnosis.Remedy{{
			System:   "linux",
			Do:       "spread received packets over all cores",
			Commands: []string{"echo 3 > /sys/class/net/lan/queues/rx-0/rps_cpus"},
			Risk:     "moving packets between cores costs CPU time",
		}},
	}
	at := 3
	if factor.Tunnel.Is(c.Factors, factor.NoTunnel) {
		at = 4
		cause = diagnosis.Cause{
			Class:      "shaper",
			Element:    "wan",
			Confidence: .93,
			Text:       "a shaper at 94.1 Mbit/s on the router's wan port",
			Facts:      cause.Facts,
		}
	}

	d.Path[at].Choke = true
	d.Class = cause.Class
	d.Text = cause.Text
	d.Confidence = cause.Confidence
	d.Causes = []diagnosis.Cause{cause, {Class: "policer", Text: "a policer", Confidence: .06}}
	return d
}

// diagnose says everything that was found: the sentence, numbers, other causes, what was ruled out and by
// what, what was not examined, what to change with its risk, and the gain at most.
func TestDiagnosisSaysAll(t *testing.T) {
	text := strings.Join(strings.Fields(Diagnosis(sampleDocument(), 100, false)), " ")
	for _, want := range []string{"is saturated by softirq while core 1 idles for 61 %: one receive queue, " +
		"86 % sure",
		"the router's core 0 was busy for 97 % of the window", "or: a policer, 6 %",
		"ruled out: each by a number - receive window: the receive window limited TCP for 0.4 % of the time",
		"Not examined · thermal, clock down: no thermal zone on this machine",
		"to change (linux): spread received packets over all cores; risk: moving packets between cores",
		"echo 3 > /sys/class/net/lan/queues/rx-0/rps_cpus", "gain at most: goodput ×1.80, if nothing else",
		"busiest core 97.0 % of its time (choke point)", "link: wan 99.8 % of what tbf 100M can carry " +
			"(choke point)",
		"the limit is not known: no known cause fits the measurements · "} {
		if !strings.Contains(text, want) {
			t.Errorf("diagnose lacks %q:\n%s", want, text)
		}
	}
}

// The picture says every value with its unit, marks one part, and fits a telephone.
func TestPictureOfTheUse(t *testing.T) {
	d := sampleDocument()
	at := slices.IndexFunc(d.Cells, func(c analysis.Cell) bool {
		return c.Diagnosis.Class == "softirq-one-core"
	})
	s := stages(d.Cells[at].Diagnosis.Path)
	for _, width := range []float64{wideWidth, narrowWidth - 28} {
		drawing := s.Draw(width)
		svg := drawing.svg("", "")
		for _, want := range []string{">97 %<", ">34 %<", ">100 %<", ">wan", "▶ busiest core",
			`aria-label="Use of the path: client: sender 34.0 % of one core`, "fill choke", ">98 %<"} {
			if !strings.Contains(svg, want) && (want != ">100 %<" || !strings.Contains(svg, ">wan 100 %<")) {
				t.Errorf("the picture of %v px lacks %s", width, want)
			}
		}

		n := strings.Count(svg, "▶")
		if n != 1 {
			t.Errorf("%d parts are marked at %v px, want 1", n, width)
		}

		if drawing.w != width {
			t.Errorf("the picture is %v px wide, want %v", drawing.w, width)
		}
	}
}

// TestPictureOfAnIdleRouter: a node whose parts were hardly used keeps its box, with the most used part, and
// words in place of a number are whole.
func TestPictureOfAnIdleRouter(t *testing.T) {
	share := func(x float64) *float64 { return &x }
	const why = "1.6 cores' worth of CPU time went to work unrelated to forwarding"
	s := stages{
		{Node: "client", Label: "sender", Utilisation: share(.2)},
		{Element: "lan", Label: "lan"},
		{Node: "router", Label: "queue tun1", Utilisation: share(0)},
		{Node: "router", Label: "conntrack table", Utilisation: share(.001)},
		{Element: "wan", Label: "wan"},
		{Node: "server", Label: "receiver", Utilisation: share(.3)},
		{Node: record.HostNode, Label: "all cores", Utilisation: share(1)},
		{Node: record.HostNode, Label: "other load", Why: why, Choke: true},
	}
	for name, drawing := range map[string]*canvas{
		"wide":          s.Draw(wideWidth),
		"narrow":        s.Draw(narrowWidth - 28),
		"first screen":  strip(s).Draw(widths["half"]),
		"first, narrow": strip(s).Draw(narrowWidth),
	} {
		var words []string
		for _, x := range drawing.shapes {
			if x.kind == "text" {
				words = append(words, x.text)
			}
		}

		text := strings.Join(words, " ")
		for _, want := range []string{"router", "conntrack", why} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the picture lacks %q: %s", name, want, text)
			}
		}

		if strings.Contains(text, "…") || strings.Contains(text, "tun1") {
			t.Errorf("%s: the picture has a cut text, or an idle part: %s", name, text)
		}
	}
}

// TestARefutedFindingIsNotSure: once an experiment has refuted a cause, nobody is told how sure it looked.
func TestARefutedFindingIsNotSure(t *testing.T) {
	for by, want := range map[string]string{"": ", 70 % to 90 % sure",
		diagnosis.Confirmed: ", 70 % to 90 % sure; confirmed by experiment",
		diagnosis.Refuted:   ", refuted by experiment"} {
		f := finding{analysis.Verdict{Confidence: [2]float64{.7, .9}},
			&diagnosis.Diagnosis{
				Class: "shaper",
				Causes: []diagnosis.Cause{{
					Class:  "shaper",
					Proved: by,
				}},
			}, nil, nil}
		got := f.sure()
		if got != want {
			t.Errorf("%q: got %q, want %q", by, got, want)
		}
	}
}

// TestGainOfAllCells: the bound on the gain is that of all cells of a finding, and is left out where one has
// none; what a cause cannot explain of the distance to the same without a tunnel is said.
func TestGainOfAllCells(t *testing.T) {
	for _, tt := range []struct {
		gains, ratios []float64
		gain, rest    string
	}{
		{[]float64{3, 3}, []float64{0, .5}, "×3.00", ""},
		{[]float64{2, 4}, []float64{.02, .1}, "×2.00 to ×4.00, by cell", "; explains at most ×2.00 of the ×50.0 by " +
			"which cell 0 is slower than the same without tunnel"},
		{[]float64{2, 0}, []float64{0, .02}, "", ""},
	} {
		f := finding{Diagnosis: &diagnosis.Diagnosis{}}
		for i, gain := range tt.gains {
			c := &analysis.Cell{Diagnosis: &diagnosis.Diagnosis{
				Class:  diagnosis.Fragmentation,
				Causes: []diagnosis.Cause{{Class: diagnosis.Fragmentation, GainAtMost: gain}},
			}}
			c.Label = fmt.Sprintf("cell %d", i)
			if tt.ratios[i] > 0 {
				c.OfBaseline = &analysis.Share{Ratio: tt.ratios[i], Of: "same without tunnel"}
			}

			f.all = append(f.all, c)
		}

		if got, rest := f.gain(), f.unexplained(); got != tt.gain || rest != tt.rest {
			t.Errorf("%v: got %q and %q, want %q and %q", tt.gains, got, rest, tt.gain, tt.rest)
		}
	}
}

// TestFixOfAllCells: a level in a fix is that of all cells of the finding, or the fix names its cell.
func TestFixOfAllCells(t *testing.T) {
	cell := func(label, do string) *analysis.Cell {
		c := &analysis.Cell{Diagnosis: &diagnosis.Diagnosis{
			Class:  "shaper",
			Causes: []diagnosis.Cause{{Class: "shaper", Remedies: []diagnosis.Remedy{{Do: do}}}},
		}}
		c.Label = label
		return c
	}
	for _, test := range []struct{ a, b, want string }{
		{"a longer queue", "a longer queue", "a longer queue"},
		{"a rate of 50 Mbit/s or more", "a rate of 95 Mbit/s or more", "a rate of 50–95 Mbit/s or more"},
		{"set rate 50M", "set rate 95M", "set rate 50M (in up)"},
	} {
		all := []*analysis.Cell{cell("up", test.a), cell("down", test.b)}
		f := finding{Diagnosis: all[0].Diagnosis, Cell: all[0], all: all}
		if got := f.fix(); got != test.want {
			t.Errorf("%q and %q: got %q, want %q", test.a, test.b, got, test.want)
		}
	}
}

// TestEvidenceNamesItsTrial: numbers of one trial of several say which, and those of another than the first's
// do so too.
func TestEvidenceNamesItsTrial(t *testing.T) {
	d := sampleDocument()
	for i := range d.Cells {
		x := d.Cells[i].Diagnosis
		x.Excluded = append(x.Excluded, diagnosis.Exclusion{
			Class: "thermal",
			By:    evidence.Evidence{Text: "it is cold", Trial: "b3-r01.1"},
		})
		for k := range x.Causes {
			x.Causes[k].Facts = slices.Clone(x.Causes[k].Facts)
			for n := range x.Causes[k].Facts {
				x.Causes[k].Facts[n].Trial = "b2-r07.1"
			}
		}
	}

	text := strings.Join(strings.Fields(Diagnosis(d, 100, false)), " ")
	for _, want := range []string{", trial b2-r07.1, one of 3 - the router's core 0",
		"each by a number of trial b2-r07.1, one of 3, unless another is named",
		"thermal: it is cold (trial b3-r01.1)"} {
		if !strings.Contains(text, want) {
			t.Errorf("diagnose lacks %q:\n%s", want, text)
		}
	}
}

// TestExceededTester: what exceeds the tester's own rate has no share of it, and the page says why.
func TestExceededTester(t *testing.T) {
	d := sampleDocument()
	d.Cells[0].Ceiling.TesterRatio = 1.45
	if got := testerCell(&d.Cells[0]); got.Text != none.Text {
		t.Errorf("got a share of %q", got.Text)
	}

	want := d.Cells[0].Label + ": more than the tester reached without a router"
	if got := Screen(d, 100, false); !strings.Contains(strings.Join(strings.Fields(got), " "), want) {
		t.Errorf("the screen lacks %q:\n%s", want, got)
	}
}

// TestFindingOfAllCells: a finding says the place, the ranges of its cells' quantities and shares, and the
// second cause that is as likely in one of them.
func TestFindingOfAllCells(t *testing.T) {
	cell := func(label, text string, died, first, second float64) *analysis.Cell {
		at := diagnosis.Cause{Class: diagnosis.Shaper, Node: "router", Element: "wan", Confidence: first}
		c := &analysis.Cell{Diagnosis: &diagnosis.Diagnosis{
			Class:   at.Class,
			Text:    text,
			Node:    at.Node,
			Element: at.Element,
			Causes:  []diagnosis.Cause{at, {Text: "a rule drops", Confidence: second}},
			Ledger: &diagnosis.Ledger{
				MissedPackets: []float64{100, 100},
				Data: []diagnosis.Account{{
					Node:    "router",
					Element: "wan",
					Died:    []diagnosis.Death{{Packets: died}},
				}},
			},
		}}
		c.Label = label
		return c
	}
	for _, tt := range []struct {
		all              []*analysis.Cell
		text, or, shares string
	}{
		{[]*analysis.Cell{cell("A", "a shaper at 20.0 Mbit/s on wan", 70, .97, .02),
			cell("B", "a shaper at 30.0 Mbit/s on wan", 90, .97, .02)},
			"a shaper at 20.0–30.0 Mbit/s on wan", "", "; 70.0 % to 90.0 % of the lost packets died there"},
		{[]*analysis.Cell{cell("A", "one thing", 0, .97, .02), cell("B", "another", 0, .5, .49)},
			"label (router, wan)", "; or: a rule drops, 49 % (in B)", ""},
		{[]*analysis.Cell{cell("A", "one thing", 0, .58, .25)}, "one thing", "; or: a rule drops, 25 %", ""},
		{[]*analysis.Cell{cell("A", "one thing", 0, .7, .25)}, "one thing", "", ""},
	} {
		f := finding{Diagnosis: tt.all[0].Diagnosis, all: tt.all}
		f.Verdict.Text = "label"
		if got, or, shares := f.sentence(), f.runnerUp(), f.shares(); got != tt.text || or != tt.or ||
			shares != tt.shares {
			t.Errorf("got %q, %q and %q, want %q, %q and %q", got, or, shares, tt.text, tt.or, tt.shares)
		}
	}

	// What follows a cause is its own: the second one is last.
	c := cell("A", "one thing", 90, .58, .25)
	c.Factors = record.Factors{"tunnel": "none"}
	v := newView(&analysis.Document{
		Cells:    []analysis.Cell{*c},
		Verdicts: []analysis.Verdict{{Cells: []record.Factors{c.Factors}}},
	})
	for _, text := range []string{v.verdictItems()[0].Text, bottleneckFacts(v, 0).Items[0].Value,
		bottleneckFacts(v, 1).Items[0].Value} {
		if !strings.Contains(text, "died there") || !strings.HasSuffix(text, "; or: a rule drops, 25 %") {
			t.Errorf("got %q, want the second cause last", text)
		}
	}
}
