package diagnosis

import (
	_ "embed"
	"encoding/json"
	"math"
	"slices"
	"sync"
)

// Term is one condition of a class, with the degree to which a trial meets it: 0 = not at all, 1 = fully.
type Term struct {
	Name string // unique within its class; key of the table of weights
	Kind TermKind
	Met  float64
	By   *Fact // evidence; shown if the term excludes the class
}

// TermKind determines how a term affects the score of its class.
type TermKind int

// A required term subtracts its weight from the score if it is not met. A contradicting term subtracts its
// weight if it is met. A supporting term adds its weight if it is met.
const (
	Requires TermKind = iota
	Supports
	Contradicts
)

var requires, supports, contradicts = Requires.term, Supports.term, Contradicts.term

// term returns a term. It is met to degree(x, bounds[0], bounds[1]) or, without bounds, to the degree x.
func (kind TermKind) term(name string, x float64, bounds ...float64) Term {
	if len(bounds) == 2 {
		x = degree(x, bounds[0], bounds[1])
	}
	return Term{Name: name, Kind: kind, Met: x}
}

// by sets the fact behind the term's degree.
func (t Term) by(e Fact) Term {
	t.By = &e
	return t
}

// Part returns the factor by which the score multiplies the term's weight.
func (t Term) Part() float64 {
	switch t.Kind {
	case Supports:
		return t.Met
	case Contradicts:
		return -t.Met
	default:
		return t.Met - 1
	}
}

// degree maps x linearly from a (0) and b (1) to 0…1, and clamps it.
func degree(x, a, b float64) float64 { return min(max((x-a)/(b-a), 0), 1) }

// yes returns 1 for true and 0 for false.
func yes(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// met returns the degree to which a group of terms is met: the smallest degree of a required term, reduced by
// the largest degree of a contradicting term.
func met(terms ...Term) float64 {
	lowest, highest := 1.0, 0.0
	for _, t := range terms {
		switch t.Kind {
		case Requires:
			lowest = min(lowest, t.Met)
		case Contradicts:
			highest = max(highest, t.Met)
		}
	}
	return lowest * (1 - highest)
}

// Base is the key, in the table of weights, of the score of a class whose required terms are all met.
const Base = "base"

// Explained is the name of the term that is met if another class explains this class.
const Explained = "explained"

//go:embed weights.json
var weightsTable []byte

// weights returns the weights that TestFit in bench/diagnosis fitted to recorded trials.
var weights = sync.OnceValue(func() Weights {
	var w Weights
	if err := json.Unmarshal(weightsTable, &w); err != nil {
		panic("weights.json: " + err.Error())
	}
	return w
})

// Weights maps a class and the name of a term to the term's weight. A term that is missing has its prior
// weight.
type Weights map[string]map[string]float64

// Of returns the weight of a term.
func (w Weights) Of(class string, t Term) float64 {
	if v, ok := w[class][t.Name]; ok {
		return v
	}

	prior, aboveBase := Prior(t)
	if aboveBase {
		prior += w.Of(class, Term{Name: Base})
	}

	return prior
}

// Prior returns a term's weight before any trial was recorded. If aboveBase is true, the weight of Base is
// added to it, so that a class whose requirements are not met is less likely than an unknown cause.
func Prior(t Term) (weight float64, aboveBase bool) {
	switch {
	case t.Name == Base:
		return 2.5, false
	case t.Kind == Supports:
		return 1, false
	case t.Name == Explained:
		return 2, false
	default:
		return 2.5, true
	}
}

// rulesOut is the degree, 0 to 1, to which a term must count against a class for its fact to exclude the
// class.
const rulesOut = .75

// rate computes a candidate's score from its terms, and sets the strongest evidence against it.
func (j *Candidate) rate(w Weights) {
	if j.NotExamined != "" {
		j.Score = math.NaN()
	}

	if len(j.Terms) == 0 {
		return
	}

	j.Score = w.Of(j.Class, Term{Name: Base})
	j.Against = nil
	lowest := 0.0
	for _, t := range j.Terms {
		by := w.Of(j.Class, t) * t.Part()
		j.Score += by
		if by < lowest && t.Part() <= -rulesOut && t.By != nil {
			lowest = by
			j.Against = t.By
		}
	}
}

// likelier returns the candidate whose terms are met to a higher degree. It prefers an examined candidate to
// a candidate that was not examined.
func likelier(a, b Candidate) Candidate {
	if a.NotExamined != "" || b.NotExamined == "" && met(b.Terms...) > met(a.Terms...) {
		return b
	}
	return a
}

// likeliest returns the likeliest of the candidates that check returns. otherwise is the reason why the class
// counts as not examined if there is nothing to check.
func likeliest[T any](otherwise string, all []T, check func(T) Candidate) Candidate {
	best := missing(otherwise)
	for _, one := range all {
		best = likelier(best, checked(check, one))
	}
	return best
}

// greatest returns the first of the elements with the largest value, or a zero element if no value is
// positive.
func greatest[T any](all []T, of func(T) float64) (best T) {
	most := 0.0
	for _, one := range all {
		if v := of(one); v > most {
			best, most = one, v
		}
	}
	return best
}

// place is a node and, if Element is set, a part of the node, such as a core, device, queue or process.
type place struct{ Node, Element string }

// wholePath is the place of a limit that cannot be located at a node.
var wholePath = place{Element: "path"}

// fact returns a fact about the place.
func (p place) fact(metric string, value float64, text string, args ...any) Fact {
	return fact(metric, p.Node, p.Element, value, text, args...)
}

// candidate returns a candidate without a place.
func candidate(terms ...Term) Candidate { return Candidate{Terms: terms} }

// candidate returns a candidate at the place.
func (p place) candidate(terms ...Term) Candidate { return candidate(terms...).at(p) }

// at returns the candidate at another place.
func (j Candidate) at(p place) Candidate {
	j.Node = p.Node
	j.Element = p.Element
	return j
}

// text sets the text of the candidate, formatted by say.
func (j Candidate) text(sentence string, values ...any) Candidate {
	j.Text = say(sentence, values...)
	return j
}

// gain sets an upper bound of the gain from removing the limit.
func (j Candidate) gain(atMost float64) Candidate {
	j.GainAtMost = atMost
	return j
}

// facts adds facts that belong to no term.
func (j Candidate) facts(more ...Fact) Candidate {
	j.Facts = slices.Concat(j.Facts, more)
	return j
}

// evidence returns the facts of the terms, followed by the candidate's other facts, without duplicates.
func (j Candidate) evidence() (out factList) {
	var all factList
	for _, t := range j.Terms {
		if t.By != nil {
			all = append(all, *t.By)
		}
	}

	for _, e := range append(all, j.Facts...) {
		if !slices.ContainsFunc(out, func(x Fact) bool { return x.Text == e.Text }) {
			out = append(out, e)
		}
	}

	return out
}

// with returns a copy of the candidate with additional terms.
func (j Candidate) with(terms ...Term) Candidate {
	j.Terms = append(slices.Clone(j.Terms), terms...)
	return j
}
