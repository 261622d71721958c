package diagnosis

import (
	"math"
	"slices"
	"testing"
)

// TestScoreIsTheSumOfItsTerms: a class has its base where all it requires is met and nothing contradicts it,
// and scores less than an unknown cause where one condition fails; the term that subtracts most rules it out.
func TestScoreIsTheSumOfItsTerms(t *testing.T) {
	w := Weights{"x": {Base: 3, "wide": 7, "hint": .5}}
	hole := fact("hole", "router", "", 1, "a hole")
	for _, tt := range []struct {
		name  string
		terms []Term
		score float64
		by    string
	}{
		{"all met", []Term{requires("wide", 1).by(hole), contradicts("other", 0)}, 3, ""},
		{"supported", []Term{requires("wide", 1).by(hole), supports("hint", 1)}, 3.5, ""},
		{"half met", []Term{requires("wide", .5).by(hole)}, -.5, ""},
		{"hardly met", []Term{requires("wide", .2).by(hole)}, -2.6, "hole"},
		{"a term without a weight", []Term{requires("new", 0).by(hole)}, -2.5, "hole"},
		{"contradicted", []Term{requires("wide", .9).by(fact("a", "", "", 0, "")),
			contradicts("other", 1).by(hole)}, 3 - .7 - 5.5, "hole"},
		{"explained by another class", []Term{requires("wide", 1), contradicts(Explained, 1).by(hole)}, 1,
			"hole"},
	} {
		j := Candidate{Cause: Cause{Class: "x"}, Terms: tt.terms}
		j.rate(w)
		by := ""
		if j.Against != nil {
			by = j.Against.Metric
		}

		if math.Abs(j.Score-tt.score) > 1e-9 || by != tt.by {
			t.Errorf("%s: got score %.2f, ruled out by %q, want %.2f, %q", tt.name, j.Score, by, tt.score,
				tt.by)
		}
	}
}

// TestMetAsFarAsTheLeast: a group of terms is met as far as the least required one, and not if another
// contradicts; of two candidates likelier takes the one met further, and never one that was not examined.
func TestMetAsFarAsTheLeast(t *testing.T) {
	a := []Term{requires("a", .7), requires("b", .9), supports("c", 0), contradicts("d", .5)}
	if got := met(a...); math.Abs(got-.35) > 1e-9 {
		t.Errorf("got %v, want .7 × (1 − .5)", got)
	}

	far := candidate(requires("a", .9)).text("far")
	near := candidate(a...).text("near")
	for _, pair := range [][2]Candidate{{far, near}, {near, far}, {missing("not read"), far},
		{far, missing("not read")}} {
		got := likelier(pair[0], pair[1])
		if got.Text != "far" {
			t.Errorf("of %q and %q: got %q", pair[0].Text, pair[1].Text, got.Text)
		}
	}

	if degree(5, 0, 10) != .5 || degree(5, 10, 0) != .5 || degree(-1, 0, 10) != 0 || degree(11, 0, 10) != 1 ||
		degree(11, 10, 0) != 0 {
		t.Error("a degree goes from 0 at its first bound to 1 at its second, and stays there")
	}
}

// TestEveryWeightHasAClass: every fitted weight belongs to an existing class, and every class has its base.
func TestEveryWeightHasAClass(t *testing.T) {
	for class, terms := range weights() {
		_, known := RuleOf(class)
		if !known {
			t.Errorf("weights of %s, which is no class: go -C bench test ./diagnosis -run TestFit -update",
				class)
		}

		if _, ok := terms[Base]; !ok {
			t.Errorf("%s has no base", class)
		}
	}
}

// TestNoCauseIsRuledOut: evidence for a cause, packets lost at its place, and another full queue rule nothing
// out. The other evidence is of the trial of the first cause, where that rules the class out too.
func TestNoCauseIsRuledOut(t *testing.T) {
	at := func(node, element string, packets float64, text string) Fact {
		return fact("tx_dropped", node, element, packets, text)
	}
	tun := at("client", "tun1", 300, "tun1 dropped 300 packets")
	tun.Trial = "b2"
	cause := Cause{Class: WireguardQueue, Node: "client", Element: "tun1", Facts: factList{tun}}
	d := &Diagnosis{Causes: []Cause{cause}, Excluded: []Exclusion{
		{VPNProcess, tun},
		{SmallQueue, at("", "", 0, "no FIFO dropped a packet")},
		{RandomLoss, at("client", "tun1", 7, "tun1 dropped 7")},
		{LinkLayer, at("client", "tun1", 0, "none")},
		{RuleList, at("router", "", 0, "0 rules")},
	}}

	nameless := &Diagnosis{Node: "client", Element: "tun1", Excluded: slices.Clone(d.Excluded)}
	if nameless.exclude(nil); len(nameless.Excluded) != 3 {
		t.Errorf("beside a place whose class is not known: %+v", nameless.Excluded)
	}

	of := func(trial string) Candidate {
		return Candidate{Cause: Cause{Class: RuleList}, Score: -1, Against: &Fact{Text: trial, Trial: trial}}
	}
	d.exclude(map[string][]Candidate{RuleList: {of("b1"), of("b2"), of("b3")}})
	got := ""
	for _, x := range d.Excluded {
		got += x.Class + " by " + x.By.Text + ", "
	}

	if want := "link-layer by none, rule-list by b2, "; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
