package report

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Screen renders a document on one screen of a terminal. It shows the rates, what limits them and what to
// change, latency under load, and the limitations of the numbers. Text shows the rest.
func Screen(d *analysis.Document, width int, colour bool) string {
	v := newView(d)
	for dense := range densest + 1 {
		text := screenText(v, dense, width, colour)
		if strings.Count(text, "\n") <= screenLines {
			return text
		}
	}

	return screenText(v, overfull, width, colour) // the tables alone have too many lines
}

// screenText renders the screen. A higher value of dense saves lines.
func screenText(v *view, dense, width int, colour bool) string {
	t := newTerminal(width, colour)
	t.sections(screenSections(v, dense))
	text := strings.TrimRight(t.b.String(), "\n") + "\n"
	if dense > 0 {
		text = strings.ReplaceAll(text, "\n\n  · ", "\n  · ")
	}

	return text
}

// screenLines is the maximum number of lines. Commands add further lines with the path of the page and with
// other commands.
const screenLines = 38

// densest is the last density that is tried to make the screen fit. overfull is the density of a screen that
// does not fit at any density.
const (
	densest  = 8
	overfull = 6
)

// screenSections returns the sections of the screen. The first section has no markup except its title. A
// higher value of dense saves lines:
//   - From 1, remedies are on the line of their cause.
//   - From 2, only the first caution is shown, and the others are counted.
//   - From 3, only the first reason and the first skipped cell are shown, and the others are counted.
//   - At 4, only the first two findings have a remedy. From 5, only the first finding has one.
//   - At 6, 7 and 8, only the first three, two and one findings are shown, without the gain and without what
//     the cause leaves unexplained.
//   - From 7, the second cause is not shown.
func screenSections(v *view, dense int) []Section {
	out := outline{headSection(v, runWords(v))}
	out.list("Requirements", filter(thresholdItems(v), func(it Item) bool { return it.Tone == Bad }))
	out.add("", screenTables(v, dense)...)
	if facts := bottleneckFacts(v, dense); len(facts.Items) > 0 {
		out.add("Bottleneck", facts)
	}

	out.list("Ciphers", cipherLines(v))
	out.list("Soak", each(v.Soaks, soakItem))
	rest := Facts{RunIn: true}
	rest.say("Experiment", each(v.experiments(), func(p diagnosis.Proof) string { return p.Text })...)
	rest.say("Latency", v.worstAdded())
	cautions, skipped := cautionLines(v), skippedCounts(v)
	if dense > 1 {
		cautions = firstOf(cautions, 1)
	}

	if dense > 2 {
		skipped = firstOf(skipped, 1)
	}

	rest.say("Caution", cautions...)
	rest.say("Skipped", skipped...)
	out.add("", rest)
	return out
}

// outline holds the sections of a text without a page's charts.
type outline []Section

// add appends a section with blocks.
func (o *outline) add(title string, blocks ...Block) {
	if len(blocks) > 0 {
		*o = append(*o, Section{Title: title, Blocks: blocks})
	}
}

// list appends a section with items.
func (o *outline) list(title string, items []Item) { o.add(title, listed("", items)...) }

// firstOf returns the first n lines, followed by a line with the number of omitted lines.
func firstOf(lines []string, n int) []string {
	if len(lines) <= n {
		return lines
	}
	return append(lines[:n:n], moreLines(len(lines)-n))
}

func moreLines(n int) string { return fmt.Sprintf("%d more: --full", n) }

// say adds lines under a name. Without lines, it adds nothing.
func (f *Facts) say(name string, lines ...string) {
	lines = once(nil, lines...)
	if len(lines) > 0 {
		f.Items = append(f.Items, Fact{Name: name, Value: lines[0], Below: strings.Join(lines[1:], "\n")})
	}
}

// headSection names the run and its machines.
func headSection(v *view, title string) Section {
	texts := []string{machine(v.Environment), around("router: ", firmware(v.Environment), "")}
	for _, c := range v.Caveats {
		if slices.Contains(scopes, c.Kind) {
			texts = append(texts, c.Text)
		}
	}

	words := append([]string{sentences(texts...)}, each(v.Ways, analysis.Way.Words)...)
	return Section{Title: title, Blocks: []Block{Prose{once(nil, words...)}, List{Items: pathLines(v)}}}
}

// scopes lists the caveats about what was measured. They are shown in the head.
var scopes = []string{"shared-cores", "emulated"}

// sentences joins texts as sentences with a capital and a full stop.
func sentences(texts ...string) string {
	return joined(" ", each(texts, func(s string) string {
		return around("", upperFirst(strings.TrimRight(s, ".")), ".")
	})...)
}

// runWords identifies the run on one line.
func runWords(v *view) string {
	where := around("lab ", v.Run.Lab, "")
	switch {
	case v.importedFrom() != "":
		where = "measured by " + v.importedFrom()
	case len(v.Ways) > 0:
		where = "two machines"
		for _, n := range v.Nodes {
			if n.Driven != "" && slices.ContainsFunc(v.Topologies, func(t record.Topology) bool {
				return slices.Contains(t.Routers, n.Name)
			}) {
				where = "real machines"
			}
		}
	}

	took := ""
	if v.Run.Ended.After(v.Run.Started) {
		took = v.Run.Ended.Sub(v.Run.Started).Round(time.Second).String()
	}

	unfinished := v.Run.Status
	if unfinished == record.RunDone {
		unfinished = ""
	}

	return joined(" · ", v.Run.Name, v.Run.Device, v.Run.Plan, around("run ", v.Run.ID, ""), where, took,
		extent(v), unfinished)
}

// screenTables returns the tables of results, of searches or of cells.
func screenTables(v *view, dense int) (out []Block) {
	add := func(tables []Table) {
		for _, t := range tables {
			t.Caption = ""
			out = append(out, t)
		}
	}
	if searches := v.openTables(); len(searches) > 0 {
		add(searches)
	} else {
		most := maxReasons
		if dense > 2 {
			most = 1
		}

		marks, notes := v.marks(most)
		add(v.byLibrary(func(cells []*analysis.Cell) Table { return v.screenTable(cells, marks) }))
		out = append(out, List{Items: notes})
	}

	add(briefTables(v))
	return out
}

// These limits are in characters. The words of a group are on the line of its first row if they are no longer
// than maxShort, or if the group has a single row and the words and its label are shorter than maxLabel.
const (
	maxShort = 4
	maxLabel = 22
)

// maxReasons is the maximum number of reasons below the table.
const maxReasons = 4

// screenTable returns a table with one line per cell, in groups.
func (v *view) screenTable(cells []*analysis.Cell, marks map[*analysis.Cell]string) Table {
	head := "rate"
	if strings.Join(distinct(cells, rateOf), "") == goodput {
		head = "goodput"
	}

	t := Table{
		ID: "screen-table",
		Columns: columns("", "#"+head, "#"+v.intervalHead(cells), "#of plain", "#loss", "#RTT idle→load",
			"#core", "#power", "#cycles", ""),
	}
	for place, i := range []int{8, 7, 6, 3, 5, 4} {
		t.Columns[i].Drop = place + 1
	}

	owner := coreOwner(cells)
	for _, g := range v.groups(cells) {
		indent := "  "
		switch n := utf8.RuneCountInString(g.head + g.rows[0].label); {
		case g.head == "":
			indent = ""
		case utf8.RuneCountInString(g.head) <= maxShort || len(g.rows) == 1 && n < maxLabel:
			indent = g.head + " "
		default:
			t.Rows = append(t.Rows, TableRow{Cells: []TableCell{{Text: g.head}}})
		}

		for _, r := range g.rows {
			c := r.cell
			label := strings.TrimRight(indent+r.label, " ")
			indent = strings.Repeat(" ", utf8.RuneCountInString(indent))

			rate := rateCell(v, c)
			if c.Grade == evidence.GradeFailed || c.Grade == evidence.GradeNotReached {
				rate = graded(c.Grade)
			}

			row := t.row(label, TableCell{Text: rate.Text, Num: rate.Num, Tone: rate.Tone}, rate.Sub,
				plainRatio(c), v.lossText(c), v.rttText(c), v.coreText(c, owner, 2), v.short(c, powerLoaded),
				v.short(c, metrics.CyclesPerByte), TableCell{Text: marks[c], Tone: Doubt})
			row.Name = strings.TrimSpace(g.head + " " + r.full)
			row.Cell = c
		}
	}

	t.dropEmpty()
	return t
}

// short formats a cell's median, or returns "" if there is none.
func (v *view) short(c *analysis.Cell, metric string) string {
	if !has(c, metric) {
		return ""
	}
	return v.text(metric, c.Metrics[metric].Median)
}

// intervalHead returns the heading of the intervals. It includes the number of runs unless the head of the
// screen states it.
func (v *view) intervalHead(cells []*analysis.Cell) string {
	kinds, runs := intervalKinds(cells, rateOf)
	words := distinct(kinds, func(kind string) string {
		if kind != "range" {
			return "interval"
		}
		return kind
	})
	if every(v.all, func(c *analysis.Cell) bool { return strconv.Itoa(c.Runs) == runs }) {
		runs = ""
	}

	return cmp.Or(strings.Join(words, " or "), "interval") + bracket(around("n=", runs, ""))
}

// plainRatio formats the rate as a share of the baseline, if the baseline is the same cell without something,
// such as a tunnel or a filter. Otherwise, it returns "".
func plainRatio(c *analysis.Cell) string {
	if c.OfBaseline == nil || !strings.HasPrefix(c.OfBaseline.Of, "same without ") &&
		!strings.HasPrefix(c.OfBaseline.Of, "same with no ") {
		return ""
	}
	return unit.Percent(c.OfBaseline.Ratio)
}

// lossText formats the loss ratio of a UDP cell, or returns "" if nothing was lost.
func (v *view) lossText(c *analysis.Cell) string {
	if !packets(c) || c.Metrics[lossRatio].Median == 0 {
		return ""
	}
	return v.short(c, lossRatio)
}

// rttText formats the median round-trip times idle and under load, in the same unit.
func (v *view) rttText(c *analysis.Cell) string {
	idle, load := c.Metrics[idleP50].Median, c.Metrics[loadedP50].Median
	if idle == 0 || load == 0 {
		return cmp.Or(v.short(c, loadedP50), v.short(c, idleP50))
	}

	s := v.scale(loadedP50, load)
	return unit.Significant(idle/s.Div, 2) + "→" + s.Text(load)
}

// marks returns a mark for each cell with a reason for doubt, and notes that explain the marks. Cells with
// the same reason share a note. The number of explained marks is limited to most.
func (v *view) marks(most int) (marks map[*analysis.Cell]string, notes []Item) {
	marks = map[*analysis.Cell]string{}
	var shared sharedNotes
	for i, c := range v.all {
		for _, r := range c.Reasons {
			shared.add(i, reasonItem(c.Grade, r), false)
		}
	}

	for k, note := range shared {
		sign := "!"
		if len(shared) > 1 {
			sign += mark(k)
		}

		for _, i := range note.rows {
			marks[v.all[i]] = joined(" ", marks[v.all[i]], sign)
		}

		if k == most {
			notes = append(notes, Item{Text: "more reasons: --full", Tone: Quiet})
		}

		if k < most {
			item := note.merged()
			grades := distinct(note.rows, func(i int) string { return v.all[i].Grade })
			item.Kind = sign + " " + strings.Join(grades, " or ") + ", " + item.Kind
			notes = append(notes, item)
		}
	}

	return marks, notes
}

// group holds cells whose labels differ only in the words of their rows.
type group struct {
	head string
	rows []groupRow
}

// groupRow is a cell with the words that distinguish it within its group. label consists of these words,
// without words that repeat the row above.
type groupRow struct {
	cell              *analysis.Cell
	words             []string
	head, full, label string
}

// groups groups the cells by tunnel, protocol and settings, in the order of the plan.
func (v *view) groups(cells []*analysis.Cell) []group {
	rows := each(cells, func(c *analysis.Cell) groupRow {
		head, words := v.headAndRest(c)
		return groupRow{cell: c, head: strings.Join(head, " "), words: words, full: strings.Join(words, " ")}
	})
	heads, by := grouped(rows, func(r groupRow) string { return r.head })
	return each(heads, func(head string) group {
		g := group{head, by[head]}
		g.order()
		return g
	})
}

// order sorts the rows of a group by their words, in order of first occurrence. It aligns the words in
// columns, and leaves out words that repeat the row above.
func (g *group) order() {
	var places [][]string // the words of each column
	for _, r := range g.rows {
		for k, w := range r.words {
			if k == len(places) {
				places = append(places, nil)
			}

			index(&places[k], w)
		}
	}

	slices.SortStableFunc(g.rows, func(a, b groupRow) int {
		for k := range min(len(a.words), len(b.words)) {
			if a.words[k] != b.words[k] {
				return slices.Index(places[k], a.words[k]) - slices.Index(places[k], b.words[k])
			}
		}
		return 0
	})
	var above []string
	for i := range g.rows {
		r := &g.rows[i]
		same := true
		for k, w := range r.words {
			same = same && k < len(above) && above[k] == w && k < len(r.words)-1
			if same {
				w = ""
			}

			r.label += fmt.Sprintf("%-*s  ", widest(places[k]), w)
		}

		r.label = strings.TrimRight(r.label, " ")
		above = r.words
	}
}

// headAndRest splits the words of a cell's label. head has the words of its group, and rest has the words
// that vary within the group.
func (v *view) headAndRest(c *analysis.Cell) (head, rest []string) {
	left := strings.Split(c.Label, " · ")
	var tunnel, protocol, first, direction []string
	for _, name := range v.sorted(c.Factors) {
		d := v.Catalogue.Of(name)
		level := c.Factors[name]
		i := slices.Index(left, d.Label(level))
		if i < 0 {
			continue
		}

		word := left[i]
		left = slices.Delete(left, i, i+1)
		switch factor.Name(name) {
		case factor.Tunnel:
			if level != factor.NoTunnel {
				tunnel = []string{v.TunnelWords(c)}
			}
		case factor.Direction:
			direction = []string{word}
		case factor.Protocol:
			protocol = []string{word}
		default:
			if v.swept[name] {
				rest = append(rest, word)
			} else {
				first = append(first, word)
			}
		}
	}

	return slices.Concat(tunnel, protocol, first, left), append(direction, rest...)
}

// setFactors returns two sets of factors. swept has the factors with at least two levels, not counting off.
// switched has the factors that are on in at least one cell, each with one of its levels.
func setFactors(cells []*analysis.Cell) (swept map[string]bool, switched record.Factors) {
	swept = map[string]bool{}
	switched = record.Factors{}
	for _, c := range cells {
		for name, level := range c.Factors {
			if !ordinary(level) {
				first, ok := switched[name]
				switched[name] = cmp.Or(first, level)
				swept[name] = swept[name] || ok && first != level
			}
		}
	}
	return swept, switched
}

// bottleneckFacts names the cause in each group of cells, its probability, and the remedy.
func bottleneckFacts(v *view, dense int) Facts {
	var facts Facts
	found := v.found()
	for i, f := range found {
		if dense > 5 && i == maxFindings+6-dense {
			facts.Items = append(facts.Items, Fact{Value: moreLines(len(found) - i)})
			break
		}

		fact := Fact{
			Name:  v.who(f, 0),
			Value: f.Verdict.Text + f.shares(),
			Aside: f.sureWords(),
			Below: f.fixes(),
		}
		if dense > 5 {
			fact.Value, fact.Below = f.Verdict.Text, around("fix: ", f.fix(), "")
		}

		if dense > 3 && i >= max(1, 6-dense) {
			fact.Below = ""
		}

		if dense > 0 {
			fact.Value = joined("; ", fact.Value, fact.Below)
			fact.Below = ""
		}

		if dense < 7 {
			fact.Value += f.runnerUp() // added last, because the text before it is about the first cause
		}

		facts.Items = append(facts.Items, fact)
	}
	return facts
}

// maxFindings is the number of findings that are shown at density 6.
const maxFindings = 3

// sureWords formats the range of probabilities of a cause, or the outcome of an experiment.
func (f finding) sureWords() string {
	if f.Named() && f.Causes[0].Proved != "" {
		return f.Causes[0].Proved
	}

	return strings.Replace(strings.TrimSuffix(f.certainty(), " sure"), " % to ", "–", 1)
}

// fixes describes the remedy, and how to test an uncertain cause.
func (f finding) fixes() string {
	var test string
	fix := around("fix: ", f.fix(), bracket(around("gain ≤ ", f.gain(), "")))
	if f.Named() && f.proposal() != "" {
		test = "test: diagnose --prove"
	}

	return joined("; ", fix, test)
}

// cellNames holds the words used to name the cells that have a load.
type cellNames struct {
	at    map[string]int // key of a cell → index
	all   cellSet
	cells [][]string // words of each cell, in the order of its label
	words []string   // all different words
	with  []cellSet  // for each word, the cells that have it
}

// names returns the names of all cells with a load. They are built only once, because every finding needs
// them.
func (v *view) names() *cellNames {
	if v.named != nil {
		return v.named
	}

	all := v.cells(loaded)
	n := &cellNames{at: map[string]int{}, all: newCellSet(len(all))}
	for i, c := range all {
		n.at[c.Factors.Key()] = i
		n.all.add(i)
		words := append(v.cellWords(c), v.offWords(c)...)
		n.cells = append(n.cells, words)
		for _, word := range words {
			k := index(&n.words, word)
			if k == len(n.with) {
				n.with = append(n.with, newCellSet(len(all)))
			}

			n.with[k].add(i)
		}
	}

	v.named = n
	return n
}

// who names the cells of a finding by the fewest words that match only these cells. If most is not 0, it
// limits the number of sets of cells that are named. The words of a set are joined by a dot, as in labels,
// and the sets by a semicolon. If it is shorter to name the cells that are not in the finding, who returns
// "all but" and the name of those cells.
func (v *view) who(f finding, most int) string {
	n := v.names()
	wanted, others := newCellSet(len(n.cells)), slices.Clone(n.all)
	known := true
	for _, k := range f.Cells {
		i, ok := n.at[k.Key()]
		known = known && ok
		if ok {
			wanted.add(i)
		}
	}

	others.remove(wanted)
	left := others.count()
	names := f.Labels // if a few words do not suffice, use whole labels
	if known {
		if left == 0 && len(n.cells) > 1 {
			return "all cells"
		}

		if sets := n.sets(wanted); sets != nil {
			names = sets
		}

		if left < len(names) {
			if but := n.sets(others); len(but) == 1 {
				return "all but " + but[0]
			}
		}
	}

	more := ""
	if most > 0 && len(names) > most {
		more = fmt.Sprintf(" and %d more", len(names)-most)
		names = names[:most]
	}

	return strings.Join(names, "; ") + more
}

// sets returns the names of sets of cells that together make up wanted. It returns nil if a few words do not
// suffice.
func (n *cellNames) sets(wanted cellSet) (names []string) {
	for nameless := slices.Clone(wanted); nameless.count() > 0; {
		words, covered := n.cover(wanted, nameless)
		if covered == nil || len(names) == maxSets {
			return nil
		}

		names = append(names, strings.Join(n.inOrder(words), " · "))
		nameless.remove(covered)
	}
	return names
}

// offWords returns the switches that are off in a cell and on in other cells, such as "no masquerade".
func (v *view) offWords(c *analysis.Cell) (out []string) {
	for _, name := range v.sorted(c.Factors) {
		on := v.switched[name]
		if on != "" && !v.swept[name] && ordinary(c.Factors[name]) {
			out = append(out, "no "+v.Catalogue.Of(name).Label(on))
		}
	}
	return out
}

// inOrder sorts words in the order of labels.
func (n *cellNames) inOrder(chosen []string) []string {
	for _, words := range n.cells {
		in := filter(words, func(w string) bool { return slices.Contains(chosen, w) })
		if len(in) == len(chosen) {
			return in
		}
	}
	return chosen
}

// maxWords is the maximum number of words that name a set of cells. maxSets is the maximum number of sets
// that name a finding's cells.
const (
	maxWords = 4
	maxSets  = 6
)

// cover returns words that only cells in wanted have, and the cells with these words as covered. It chooses
// the words that match the most cells in nameless. If several choices match equally many, it chooses the one
// with the fewest words. If there are no such words, covered is nil.
func (n *cellNames) cover(wanted, nameless cellSet) (words []string, covered cellSet) {
	most := 1
	var at [maxWords]cellSet // per recursion depth: the cells that match the chosen words
	for i := range at {
		at[i] = newCellSet(len(n.cells))
	}

	var try func(from int, chosen []string, having cellSet)
	try = func(from int, chosen []string, having cellSet) {
		also := at[len(chosen)]
		for i := from; i < len(n.words); i++ {
			also.intersect(having, n.with[i])
			more := also.shared(nameless)
			if more < most { // skip, because more words do not match more cells
				continue
			}

			only := also.shared(wanted) == also.count()
			if only && (more > most || covered == nil || len(chosen)+1 < len(words)) {
				most = more
				words = append(slices.Clone(chosen), n.words[i])
				covered = slices.Clone(also)
			}

			if !only && len(chosen)+1 < maxWords { // more words match fewer cells, perhaps only wanted cells
				try(i+1, append(slices.Clone(chosen), n.words[i]), also)
			}
		}
	}

	try(0, nil, n.all)
	return words, covered
}

// cellSet is a bit set of cells.
type cellSet []uint64

func newCellSet(cells int) cellSet { return make(cellSet, (cells+63)/64) }

func (s cellSet) add(i int) { s[i/64] |= 1 << (i % 64) }

func (s cellSet) count() int { return s.shared(s) }

// shared returns the size of the intersection.
func (s cellSet) shared(other cellSet) (n int) {
	for i := range s {
		n += bits.OnesCount64(s[i] & other[i])
	}
	return n
}

// intersect sets s to the intersection of a and b.
func (s cellSet) intersect(a, b cellSet) {
	for i := range s {
		s[i] = a[i] & b[i]
	}
}

func (s cellSet) remove(other cellSet) {
	for i := range s {
		s[i] &^= other[i]
	}
}

// worstAdded describes the highest RTT that a load adds.
func (v *view) worstAdded() string {
	c, ns := v.HighestAddedRTT()
	if c == nil || c.AddedInNoise() {
		return ""
	}

	head, rest := v.headAndRest(c)
	if len(head) > 1 { // with a tunnel, there is no space for "TCP"
		head = without(head, "TCP")
	}

	doubt := ""
	if suspect(c) {
		doubt = suspectWord
	}

	where := cmp.Or(strings.Join(slices.Concat(head, rest), " "), c.Label)
	return where + ": +" + v.text(rttAdded, ns) +
		bracket(joined(", ", "bufferbloat grade "+metrics.Bufferbloat(ns), doubt))
}

// changes maps the kind of a caveat to the settings or the command that avoid the caveat.
var changes = map[string]string{
	"few-runs":      "--set method.runs=6",
	"super-packets": "--set matrix.offload=wire",
	"incomplete":    "chokepoint resume",
	"time-spent":    "chokepoint resume",
}

// change describes how to avoid a caveat of the run. Settings do not change an imported run, so only the
// caveat few-runs can be avoided there.
func (v *view) change(kind string) string {
	switch {
	case v.importedFrom() == "":
		return changes[kind]
	case kind == "few-runs":
		return "import six or more runs of each cell"
	}
	return ""
}

// cautionLines lists the limitations of the numbers, and what to do about them. It omits limitations that
// users cannot change, and limitations that the head states.
func cautionLines(v *view) []string {
	var out []string
	stopped := slices.ContainsFunc(v.Caveats, func(c record.Caveat) bool { return c.Kind == "incomplete" })
	for _, it := range headOf(v).Alerts {
		said := slices.Contains(inNotes, it.Kind) || stopped && it.Kind == v.Run.Status
		if !said {
			out = append(out, strings.TrimRight(it.Text, "."))
		}
	}

	for _, c := range v.Caveats {
		if !slices.Contains(scopes, c.Kind) && c.Kind != "unchecked" {
			out = append(out, joined(": ", c.Text, v.change(c.Kind)))
		}
	}

	remarks := distinct(caveatsOf(v.all), func(c record.Caveat) string {
		return evidence.KindOf(c.Kind).Words()
	})
	return append(out, around("in some cells (--full): ", strings.Join(remarks, "; "), ""))
}

// inNotes lists the alerts that are shown by marks or in another section of the screen.
var inNotes = []string{evidence.GradeSuspect, evidence.GradeFailed, alertNotReached, alertMissed}

// skippedCounts groups skipped cells by the reason why they were not measured. For each reason, it names the
// first cell and counts the others.
func skippedCounts(v *view) []string {
	reasons, by := grouped(v.Skipped, func(k record.Skipped) string { return k.Reason })
	return append(each(reasons, func(reason string) string {
		n := len(by[reason])
		first := cmp.Or(each(by[reason], func(k record.Skipped) string { return k.Label })...)
		if first == "" || n == 1 {
			return cmp.Or(first, unit.Count(n, "cell")) + ": " + reason
		}
		return fmt.Sprintf("%s and %d more: %s", first, n-1, reason)
	}), v.Run.Cuts...)
}
