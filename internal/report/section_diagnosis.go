package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

const diagnosisTitle = "What held the traffic back"

const (
	kindRuledOut = "ruled out"
	kindAccounts = "accounts"
	kindPath     = "path"
)

// briefFacts is the maximum number of facts that follow the sentence of a verdict.
const briefFacts = 3

// finding is a verdict on several cells. It has the diagnosis of one of the cells, which represents the
// others.
type finding struct {
	analysis.Verdict
	*diagnosis.Diagnosis
	Cell *analysis.Cell
	all  []*analysis.Cell // cells of the verdict that have a diagnosis
}

// found returns the verdicts on the selected cells.
func (v *view) found() []finding {
	var out []finding
	diagnosed := func(c *analysis.Cell) bool { return c != nil && c.Diagnosis != nil }
	for _, x := range v.Verdicts {
		all := each(x.Cells, func(f record.Factors) *analysis.Cell { return v.cell[f.Key()] })
		if c := all[x.Shown]; diagnosed(c) {
			f := finding{x, c.Diagnosis, c, filter(all, diagnosed)}
			f.Verdict.Text = f.sentence()
			out = append(out, f)
		}
	}
	return out
}

// sentence describes the cause in all cells. If the texts of the cells differ only in quantities, it shows
// these as ranges. Otherwise, it names the class of the cause and the place that all texts have in common.
func (f finding) sentence() string {
	texts := each(f.all, func(c *analysis.Cell) string { return c.Diagnosis.Text })
	if every(f.all, func(c *analysis.Cell) bool { return likeText(c.Diagnosis.Text, texts[0]) }) {
		return ranges(texts)
	}

	if !f.Named() {
		return f.Verdict.Text
	}

	return f.Verdict.Text + bracket(joined(", ", f.Causes[0].Node, f.Causes[0].Element))
}

// The second cause is shown if its probability is within nearTie of the first, or if the first is below
// notSure and the second is at least minSecond.
const (
	nearTie   = .10
	notSure   = .60
	minSecond = .20
)

// runnerUp describes the second cause and its probability, if it is nearly as likely as the first. If several
// cells have such a second cause, runnerUp uses the cell with the closest probabilities.
func (f finding) runnerUp() string {
	text := ""
	nearest := 1.0
	for _, c := range f.all {
		causes := c.Diagnosis.Causes
		if len(causes) < 2 || causes[0].Proved != "" {
			continue
		}

		first, second := causes[0].Confidence, causes[1].Confidence
		near := first-second <= nearTie || first < notSure && second >= minSecond
		if near && first-second < nearest {
			nearest = first - second
			text = "; or: " + causes[1].Text + ", " + whole(second)
			if len(f.all) > 1 {
				text += bracket("in " + c.Label)
			}
		}
	}

	return text
}

// sure describes the probability of the first cause, or returns "" if the cause is unknown.
func (f finding) sure() string {
	if !f.Named() {
		return ""
	}
	return ", " + f.certainty() + f.proposal()
}

// certainty is like sure, but omits the proposed experiment.
func (f finding) certainty() string {
	if !f.Named() {
		return ""
	}

	proved := f.Causes[0].Proved
	if proved == diagnosis.Refuted { // the probability before the experiment no longer means anything
		return "refuted by experiment"
	}

	return between(whole(f.Verdict.Confidence[0]), whole(f.Verdict.Confidence[1])) + " sure" +
		around("; ", proved, " by experiment")
}

// wellSure is the confidence below which a verdict proposes an experiment.
const wellSure = .8

// proposal describes the first experiment that could confirm an uncertain cause, or returns "" if there is
// none.
func (f finding) proposal() string {
	tests := f.Causes[0].Experiments
	if f.Causes[0].Proved != "" || f.Verdict.Confidence[0] >= wellSure || len(tests) == 0 {
		return ""
	}
	return fmt.Sprintf("; to test it, chokepoint diagnose --prove sets %s to %s", tests[0].Factor,
		cmp.Or(strings.Join(tests[0].Steps, ", then "), tests[0].Fix))
}

// smallShare is the minimum share of a loss or delay that the report mentions.
const smallShare = .05

// fix describes the first remedy. If the texts of the cells differ only in quantities, it shows these as
// ranges. Otherwise, it names the cell that the remedy is for. fix returns "" if the cause is unknown or was
// refuted by an experiment.
func (f finding) fix() string {
	first := func(d *diagnosis.Diagnosis) string {
		if !d.Named() || d.Causes[0].Proved == diagnosis.Refuted || len(d.Causes[0].Remedies) == 0 {
			return ""
		}
		return d.Causes[0].Remedies[0].Do
	}
	own := first(f.Diagnosis)
	texts := distinct(f.all, func(c *analysis.Cell) string { return first(c.Diagnosis) })
	switch {
	case own == "" || len(texts) < 2:
		return own
	case slices.ContainsFunc(texts, func(text string) bool { return !likeText(text, own) }):
		return own + bracket("in "+f.Cell.Label)
	}

	return ranges(texts)
}

// outlook describes the shares that a known cause explains, the maximum gain from removing the cause, and the
// remedy.
func (f finding) outlook() string {
	if !f.Named() {
		return ""
	}

	return f.shares() + around("; gain at most ", f.gain(), "") + around("; to change: ", f.fix(), "")
}

// gainOf returns the maximum gain from removing the first cause in a cell, or 0 if the cause is unknown.
func gainOf(c *analysis.Cell) float64 {
	if !c.Diagnosis.Named() {
		return 0
	}
	return c.Diagnosis.Causes[0].GainAtMost
}

// gain formats the range of the maximum gains in the finding's cells, or returns "" if one of the gains is
// unknown.
func (f finding) gain() string {
	all := each(f.all, gainOf)
	if len(all) == 0 || slices.Min(all) <= 1 {
		return ""
	}

	low, high := unit.Times(slices.Min(all)), unit.Times(slices.Max(all))
	if low == high {
		return low
	}

	return low + " to " + high + ", by cell"
}

// minUnexplained is the smallest unexplained slowdown that the report mentions. The unexplained slowdown is
// the slowdown relative to the baseline, divided by the maximum gain from removing the cause.
const minUnexplained = 1.5

// unexplained describes how much of the slowdown relative to the baseline the cause leaves unexplained. The
// baseline is, for example, a cell without a tunnel. If the finding has several cells, unexplained describes
// the cell with the largest unexplained part.
func (f finding) unexplained() string {
	text := ""
	most := minUnexplained
	for _, c := range f.all {
		gain := gainOf(c)
		if gain <= 1 || plainRatio(c) == "" || c.OfBaseline.Ratio <= 0 {
			continue
		}

		slower := 1 / c.OfBaseline.Ratio
		rest := slower / gain
		if rest <= most {
			continue
		}

		most = rest
		text = fmt.Sprintf("; explains at most %s of the %s by which %s is slower than the %s",
			unit.Times(gain), unit.Times(slower), c.Label, c.OfBaseline.Of)
	}

	return text
}

// shares describes how much of the lost packets, of the added delay and of the slowdown a known cause
// explains.
func (f finding) shares() string {
	if !f.Named() {
		return ""
	}

	var lost, delay []float64
	for _, c := range f.all {
		d := c.Diagnosis
		if d.Ledger == nil {
			return f.unexplained()
		}

		died, waited := d.Ledger.SharesAt(d.Node, d.Element)
		lost, delay = append(lost, died), append(delay, waited)
	}

	return sharesText(lost, " of the lost packets died there") +
		sharesText(delay, " of the added RTT passed there") + f.unexplained()
}

// sharesText formats the range of a share over the cells of a finding, or returns "" if all are below
// smallShare.
func sharesText(all []float64, words string) string {
	if len(all) == 0 || slices.Max(all) < smallShare {
		return ""
	}

	return "; " + between(unit.Percent(slices.Min(all)), unit.Percent(slices.Max(all))) + words
}

// whole formats a probability in whole per cent. It shows at most 99 %, because no cause is certain.
func whole(p float64) string { return fmt.Sprintf("%.0f %%", min(p, .99)*100) }

// facts returns the evidence for the first cause. If the cause is unknown, this is the most likely cause.
func (f finding) facts() []evidence.Evidence {
	if len(f.Causes) == 0 {
		return nil
	}
	return f.Causes[0].Facts
}

// factWords formats a fact with its number.
func (v *view) factWords(e evidence.Evidence) string {
	if e.Text != "" || e.Value == nil {
		return e.Text
	}

	text := metrics.Label(e.Metric) + " " + v.text(e.Metric, *e.Value)
	if e.Baseline != nil {
		text += " against " + v.text(e.Metric, *e.Baseline)
	}

	return text
}

// factLine formats a fact. It names the trial of the fact unless it is the given trial.
func (v *view) factLine(e evidence.Evidence, trial string) string {
	if e.Trial == trial {
		return v.factWords(e)
	}
	return v.factWords(e) + bracket(around("trial ", e.Trial, ""))
}

func (v *view) factLines(facts []evidence.Evidence, trial string) []string {
	return distinct(facts, func(e evidence.Evidence) string { return v.factLine(e, trial) })
}

// ofTrial names the trial that evidence comes from, if the cell has several trials.
func (f finding) ofTrial(trial string) string {
	if f.Diagnosis.Trials < 2 || trial == "" {
		return ""
	}
	return fmt.Sprintf("trial %s, one of %d", trial, f.Diagnosis.Trials)
}

// trialOf returns the trial of the first fact.
func trialOf(facts []evidence.Evidence) string {
	if len(facts) == 0 {
		return ""
	}
	return facts[0].Trial
}

// generatorWords returns the CPU time of the load generator, if it shares the router's cores.
func (f finding) generatorWords() []string {
	if f.Cell.GeneratorShare == 0 {
		return nil
	}
	return []string{"the load generator took " + unit.Percent(f.Cell.GeneratorShare) +
		" of all CPU time that was used"}
}

// verdictItems returns one line for each verdict, with its first facts.
func (v *view) verdictItems() []Item {
	var out []Item
	for _, f := range v.found() {
		trial := trialOf(f.facts())
		facts := v.factLines(f.facts(), trial)
		facts = append(facts[:min(len(facts), briefFacts)], f.generatorWords()...)
		if len(facts) > 0 {
			cell := ""
			if len(f.Labels) > 2 {
				cell = f.Cell.Label
			}

			facts[0] = joined(": ", joined(", ", cell, f.ofTrial(trial)), facts[0])
		}

		out = append(out, Item{
			Kind:     v.who(f, 0),
			Text:     f.Verdict.Text + f.sure() + f.outlook() + f.runnerUp(),
			Evidence: facts,
		})
	}
	return out
}

// picture shows the utilisation along the path of the i-th finding.
func (f finding) picture(i int, draw Drawing) []Block {
	if len(f.Path) == 0 {
		return nil
	}
	return []Block{Figure{
		ID:      fmt.Sprintf("use-%d", i+1),
		Draw:    draw,
		Title:   "Use of the path: " + f.Cell.Label,
		Cells:   []*analysis.Cell{f.Cell},
		Unsaved: true,
	}}
}

// diagnosisSection shows what held the traffic back, and what would change that.
func diagnosisSection(v *view, s *Section) {
	for i, f := range v.found() {
		title := upperFirst(f.Verdict.Text) + bracket(v.who(f, 0)+f.sure())
		if i > 0 { // because the first screen shows the sentence of the first finding
			s.fold(title, append(f.picture(i, strip(f.Path)), List{Items: v.details(f)})...)
			continue
		}

		var shown, folded []Item
		for _, it := range v.details(f) {
			switch it.Kind {
			case kindRuledOut, kindAccounts:
				folded = append(folded, it)
			case kindPath: // shown in the picture below
			default:
				shown = append(shown, it)
			}
		}

		s.add(List{Title: title, Items: shown})
		if w := (way{f.Diagnosis.Ledger}); w.Ledger != nil && len(w.rows()) > 0 {
			if gap := w.gap(); gap != "" {
				folded = append(folded, items(kindAccounts, Plain, gap)...)
			} else {
				s.add(Figure{
					ID:      "way",
					Path:    true,
					Draw:    w,
					Title:   "Packets at each stage: " + f.Cell.Label,
					Cells:   []*analysis.Cell{f.Cell},
					Caption: w.caption(),
				})
			}
		}

		s.fold("Use of every part of the path", f.picture(i, stages(f.Path))...)
		s.fold("Accounts, and what is ruled out", listed("", folded)...)
	}

	s.fold("Not examined", listed("", v.unexamined())...)
	if len(s.Blocks) > 0 {
		s.Lead = "How sure: the probability of the cause, lowest and highest of the cells. The " +
			"numbers are those of the cell that is named; chokepoint diagnose has every cell's."
	}
}

// details lists everything about a finding: numbers, other causes, excluded causes, unknowns, and remedies
// with the gain from them.
func (v *view) details(f finding) []Item {
	var out []Item
	add := func(kind string, texts ...string) {
		if len(texts) > 0 {
			out = append(out, Item{Kind: kind, Text: strings.Join(texts, "; ")})
		}
	}
	trial := trialOf(f.facts())
	numbers := append(v.factLines(f.facts(), trial), f.generatorWords()...)
	if len(numbers) > 0 {
		text := joined(", ", f.Cell.Label, f.ofTrial(trial))
		out = append(out, Item{Kind: "numbers", Text: text, Evidence: numbers})
	}

	parts := stageLines(f.Path)
	if len(parts) > 0 && f.Diagnosis.Trials > 1 {
		parts[0] = fmt.Sprintf("medians of %d trials: %s", f.Diagnosis.Trials, parts[0])
	}

	add(kindPath, parts...)
	l := f.Diagnosis.Ledger
	if l != nil && len(l.Data) > 0 {
		lines := ledgerLines(l)
		if len(lines) > 0 {
			lines[0] = joined(": ", f.ofTrial(l.Trial), lines[0])
		}

		add(kindAccounts, lines...)
	}

	others := f.Causes
	if f.Named() {
		others = others[1:]
	}

	for _, c := range others {
		add("or", c.Text+", "+whole(c.Confidence))
	}

	if len(f.Excluded) > 0 {
		if trial == "" {
			trial = f.Excluded[0].By.Trial
		}

		out = append(out, Item{
			Kind: kindRuledOut,
			Text: "each by a number" + around(" of ", f.ofTrial(trial), ", unless another is named"),
			Evidence: each(f.Excluded, func(x diagnosis.Exclusion) string {
				return classWords(x.Class) + ": " + v.factLine(x.By, trial)
			}),
		})
	}

	if f.Named() {
		for _, r := range f.Causes[0].Remedies {
			out = append(out, Item{
				Kind:     "to change" + bracket(r.System),
				Text:     joined("; risk: ", r.Do, r.Risk),
				Tone:     Good,
				Evidence: r.Commands,
			})
		}

		if gain := f.gain(); gain != "" {
			add("gain at most", "goodput "+gain+", if nothing else limits before")
		}

		for _, p := range f.Causes[0].Proofs {
			add("put to the test", v.proofWords(p)...)
		}
	}

	return out
}

// unexamined lists the causes that could not be examined in any cell. After them, it lists the causes that
// could not be examined in some cells.
func (v *view) unexamined() []Item {
	all := v.found()
	count := map[diagnosis.Gap]int{}
	for _, f := range all {
		for _, g := range f.NotExamined {
			count[g]++
		}
	}

	everywhere := func(g diagnosis.Gap) bool { return count[g] == len(all) }
	var out []Item
	for i, f := range all {
		if i == 0 {
			out = items("", Plain, gaps(filter(f.NotExamined, everywhere))...)
		}

		own := filter(f.NotExamined, func(g diagnosis.Gap) bool { return !everywhere(g) })
		out = append(out, items(v.who(f, 0), Plain, gaps(own)...)...)
	}

	return out
}

// experiments returns the outcomes of experiments that are not shown beside a cause. These are the outcome of
// the run itself, if the run is an experiment, and the outcomes for causes that the diagnosis no longer
// lists.
func (v *view) experiments() (out []diagnosis.Proof) {
	if v.Proof != nil {
		out = append(out, *v.Proof)
	}
	return append(out, v.Proofs...)
}

// proofWords describes the outcome of an experiment: its verdict, the result of each step, and the
// predicted and measured gain.
func (v *view) proofWords(p diagnosis.Proof) []string {
	out := []string{p.Text}
	answers := each(p.Answers, func(a diagnosis.Answer) string {
		return unit.Percent(a.Resource) + " → " + unit.Percent(a.Ratio.Median)
	})
	switch untouched := v.text(p.Metric, p.Untouched); {
	case len(answers) > 0:
		out = append(out, "resource → rate: "+strings.Join(answers, ", ")+" of "+untouched)
	case p.Untouched > 0:
		out = append(out, "untouched: "+untouched)
	}

	if p.Gain != nil && p.Predicted > 0 {
		bound := "at most "
		if p.Headroom > 0 {
			bound = ""
		}

		out = append(out, "gain predicted "+bound+unit.Times(p.Predicted)+" ("+p.PredictedBy+"), real "+
			unit.Times(p.Gain.Median))
	}

	return append(out, "run "+p.By)
}

func classWords(class string) string { return strings.ReplaceAll(class, "-", " ") }

// gaps lists the classes of causes that could not be examined, grouped by reason.
func gaps(all []diagnosis.Gap) []string {
	reasons, by := grouped(all, func(g diagnosis.Gap) string { return g.Why })
	return each(reasons, func(why string) string {
		classes := each(by[why], func(g diagnosis.Gap) string { return classWords(g.Class) })
		return strings.Join(classes, ", ") + ": " + why
	})
}

// Diagnosis renders the diagnoses of the selected cells for the diagnose command.
func Diagnosis(d *analysis.Document, width int, colour bool) string {
	v := newView(d)
	t := newTerminal(width, colour)
	for _, f := range v.found() {
		t.wrap("", "  ", v.who(f, 0)+": "+f.Verdict.Text+f.sure(), bold)
		if len(f.Labels) > 2 {
			t.wrap("  ", "  ", "in "+strings.Join(f.Labels, ", "), dim)
		}

		for _, it := range v.details(f) {
			below := it.Evidence
			it.Evidence = nil
			t.item("  ", it)
			for _, l := range below {
				if it.Tone == Good { // do not wrap a command, so that it can be copied
					t.line("      " + printable(l))
					continue
				}

				t.wrap("    - ", "      ", l, "")
			}
		}

		t.gap()
	}

	var rest outline
	rest.list("Not examined", v.unexamined())
	if len(v.found()) == 0 {
		rest.add("", Prose{[]string{"Run " + v.Run.ID + " has no cell with a load that was measured."}})
		rest.list("Failed", items("", Plain, distinct(v.Trials, func(x analysis.TrialView) string {
			if x.Failure == nil {
				return ""
			}
			return joined("; ", "in "+x.Failure.Phase+": "+x.Failure.Error, x.Failure.Hint)
		})...))
	}

	t.sections(rest)
	return t.b.String()
}
