package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// stages draws the path of a diagnosis: the nodes with the utilisation of their parts, the links, and the
// choke point.
type stages []diagnosis.Stage

// groups returns the stages of each node and link in path order, and the stages of the host, which all
// nodes share.
func (s stages) groups() (path []stages, shared stages) {
	node := "" // node of the last group
	for _, x := range s {
		switch {
		case x.Node == record.HostNode:
			shared = append(shared, x)
		case x.Link() || node != x.Node:
			path = append(path, stages{x})
			node = x.Node
		default:
			path[len(path)-1] = append(path[len(path)-1], x)
		}
	}
	return path, shared
}

// telling omits stages with a utilisation below 0.5 %, but keeps the most used stage of each node.
func (s stages) telling() stages {
	return filter(s, func(x diagnosis.Stage) bool {
		idle := x.Utilisation != nil && *x.Utilisation < .005 && !x.Choke && !x.Link()
		same := filter(s, func(y diagnosis.Stage) bool { return y.Node == x.Node })
		return !idle || stages(same).top() == x
	})
}

// short formats a stage's utilisation for a picture.
func short(x diagnosis.Stage) string {
	if x.Utilisation == nil {
		return "–"
	}

	if *x.Utilisation > 0 && *x.Utilisation < .005 {
		return "< 1 %"
	}
	return fmt.Sprintf("%.0f %%", *x.Utilisation*100)
}

// stageWords describes a stage in words.
func stageWords(x diagnosis.Stage) string {
	words := x.Label
	switch {
	case x.Utilisation != nil:
		words += " " + unit.Percent(*x.Utilisation) + around(" of ", x.Of, "")
	case !x.Choke:
		words += " not known"
	}

	return words + marked(x.Choke, "", " (choke point)")
}

// stageLines describes the stages node by node.
func stageLines(all []diagnosis.Stage) []string {
	path, shared := stages(all).groups()
	if len(shared) > 0 {
		path = append(path, shared)
	}

	var out []string
	for _, g := range path {
		var parts []string
		for _, x := range g {
			if x.Utilisation != nil || x.Choke {
				parts = append(parts, stageWords(x))
			}
		}

		if len(parts) > 0 {
			out = append(out, g.name()+": "+strings.Join(parts, ", "))
		}
	}

	return out
}

func (s stages) name() string {
	switch {
	case s[0].Link():
		return "link"
	case s[0].Node == record.HostNode:
		return "this machine, which carries all nodes"
	}
	return s[0].Node
}

// Dimensions of the picture.
const (
	stageRow  = 34.0
	stageLine = 14.0 // height of a line of wrapped text
	stageHead = 24.0
	linkWide  = 92.0
)

// height returns the height of a box with the given width.
func (s stages) height(wide float64) float64 {
	high := stageHead + 4
	for _, x := range s {
		high += stageHigh(x, wide-20)
	}
	return high
}

// Draw draws nodes as boxes side by side or, on a phone, one below the other.
func (s stages) Draw(width float64) *canvas {
	path, shared := s.telling().groups()
	nodes := filter(path, func(g stages) bool { return !g[0].Link() })
	links := len(path) - len(nodes)
	wide := (width - 4 - float64(links)*linkWide) / float64(max(len(nodes), 1))
	if wide < 130 {
		return s.drawDown(width)
	}

	wide = min(wide, 250)
	tallest := slices.Max(append([]float64{0}, each(nodes, func(g stages) float64 {
		return g.height(wide)
	})...))
	k := &canvas{w: width, h: tallest + 6, label: s.aria()}
	x := 2.0
	for _, g := range path {
		if g[0].Link() {
			g.drawLink(k, x, tallest/2, linkWide)
			x += linkWide
			continue
		}

		g.box(k, x, (tallest-g.height(wide))/2+2, wide)
		x += wide
	}

	if len(shared) > 0 {
		k.h += 14
		shared.strip(k, 2, k.h, x-2)
	}

	return k
}

// drawDown draws the path from top to bottom.
func (s stages) drawDown(width float64) *canvas {
	path, shared := s.telling().groups()
	k := &canvas{w: width, h: 2, label: s.aria()}
	for _, g := range path {
		if g[0].Link() {
			x := g[0]
			k.upright(linkClass(x), width/2, k.h, k.h+34)
			k.text(textClass("ax", x), "start", width/2+10, k.h+21, shorten(linkText(x), 11.5, width/2-14))
			k.h += 34
			continue
		}

		g.box(k, 2, k.h, width-4)
		k.h += g.height(width - 4)
	}

	if len(shared) > 0 {
		k.h += 14
		shared.box(k, 2, k.h, width-4)
		k.h += shared.height(width - 4)
	}

	k.h += 4
	return k
}

func (s stages) aria() string { return "Use of the path: " + strings.Join(stageLines(s), "; ") }

func linkText(x diagnosis.Stage) string {
	if x.Utilisation == nil {
		return x.Label
	}
	return x.Label + " " + short(x)
}

// marked returns class, with mark appended if yes is set.
func marked(yes bool, class, mark string) string {
	if yes {
		return class + mark
	}
	return class
}

func linkClass(x diagnosis.Stage) string { return marked(x.Choke, "link", " choke") }

func textClass(class string, x diagnosis.Stage) string { return marked(x.Choke, class, " choke-word") }

func (s stages) drawLink(k *canvas, x, y, wide float64) {
	k.open(stageWords(s[0]) + bracket(s[0].Why))
	k.line(linkClass(s[0]), x, y, x+wide, y)
	k.text(textClass("ax", s[0]), "middle", x+wide/2, y-8, shorten(s[0].Label, 11.5, wide-4))
	if s[0].Utilisation != nil {
		k.text(textClass("v", s[0]), "middle", x+wide/2, y+18, short(s[0]))
	}

	if s[0].Choke {
		k.text("choke-word ax", "middle", x+wide/2, y+34, "choke point")
	}

	k.close()
}

// frame draws the outline and the name of a node.
func (s stages) frame(k *canvas, x, y, wide, high float64) {
	choked := slices.ContainsFunc(s, func(x diagnosis.Stage) bool { return x.Choke })
	k.box(marked(choked, "node", " choke"), x, y, wide, high, 6)
	k.text("t node-name", "start", x+10, y+17, shorten(s.name(), 13, wide-20))
}

// box draws a node with a bar for each of its stages.
func (s stages) box(k *canvas, x, y, wide float64) {
	s.frame(k, x, y, wide, s.height(wide))
	y += stageHead
	for _, stage := range s {
		drawStage(k, stage, x+10, y, wide-20)
		y += stageHigh(stage, wide-20)
	}
}

// strip draws a box with its stages side by side at the bottom of a picture. Stages with words get more
// space than those with numbers.
func (s stages) strip(k *canvas, x, y, wide float64) {
	const gap = 16
	room := wide - 20 + gap
	words := float64(len(filter(s, wordy)))
	each := room / float64(len(s))
	if words > 0 {
		each = min(each, 150)
	}

	more := (room - each*(float64(len(s))-words)) / max(words, 1)
	wides := make([]float64, len(s))
	high := 0.0
	for i, stage := range s {
		if wides[i] = each; wordy(stage) {
			wides[i] = more
		}

		high = max(high, stageHigh(stage, wides[i]-gap))
	}

	s.frame(k, x, y, wide, stageHead+high+4)
	x += 10
	for i, stage := range s {
		drawStage(k, stage, x, y+stageHead, wides[i]-gap)
		x += wides[i]
	}

	k.h += stageHead + high + 8
}

// top returns the choke point or, if there is none, the most used stage.
func (s stages) top() diagnosis.Stage {
	weight := func(x diagnosis.Stage) float64 {
		switch {
		case x.Choke:
			return math.Inf(1)
		case x.Utilisation == nil:
			return -1
		}
		return *x.Utilisation
	}
	return slices.MaxFunc(s, func(a, b diagnosis.Stage) int { return cmp.Compare(weight(a), weight(b)) })
}

// strip draws the path of a diagnosis in a few lines, for the first screen. It shows only the top stage of
// each node.
type strip stages

// Dimensions of the strip.
const (
	stripHigh = 58.0
	stripNode = 100.0 // preferred width of a node
	stripEdge = 6.0
)

// Draw puts the nodes side by side, even on a phone.
func (s strip) Draw(width float64) *canvas {
	path, shared := stages(s).groups()
	nodes := float64(len(filter(path, func(g stages) bool { return !g[0].Link() })))
	links := float64(len(path)) - nodes
	gap := min(max((width-4-stripNode*nodes)/max(links, 1), 10), 64)
	wide := (width - 4 - gap*links) / max(nodes, 1)
	high := stripHigh
	for _, g := range path {
		if top := g.top(); !g[0].Link() && (top.Choke || top.Utilisation != nil) {
			high = max(high, stripHigh+float64(len(smallLabel(top, wide))-1)*stageLine)
		}
	}

	k := &canvas{w: width, h: high + 4, label: stages(s).aria()}
	x := 2.0
	for _, g := range path {
		if !g[0].Link() {
			g.drawSmall(k, x, wide, high)
			x += wide
			continue
		}

		k.open(stageWords(g[0]) + bracket(g[0].Why))
		k.line(linkClass(g[0]), x, high/2, x+gap, high/2)
		if g[0].Utilisation != nil || g[0].Choke {
			k.h = high + 20
			k.text(textClass("ax", g[0]), "middle", x+gap/2, high+15,
				shorten(chokeSign(g[0])+linkText(g[0]), 11.5, gap+wide-8))
		}

		k.close()
		x += gap
	}

	if len(shared) > 0 {
		one := shared.top()
		if one.Utilisation != nil { // otherwise, the stage is not the cores, but what uses them
			one.Label += ", shared by all nodes"
		}

		high := stageHigh(one, width-24)
		k.box(marked(one.Choke, "node", " choke"), 2, k.h+4, width-4, high, 6)
		drawStage(k, one, 12, k.h+6, width-24)
		k.h += high + 6
	}

	return k
}

// smallLabel breaks the label of a stage into lines for a small box.
func smallLabel(x diagnosis.Stage, wide float64) []string {
	return broken(chokeSign(x)+x.Label, func(line string) bool {
		return textWidth(line, 11.5) <= wide-2*stripEdge
	})
}

// drawSmall draws a node with its name, and with the label and the number of its top stage.
func (s stages) drawSmall(k *canvas, x, wide, high float64) {
	y := 2.0
	top := s.top()
	choked := top.Choke
	left := x + stripEdge
	room := wide - 2*stripEdge
	k.open(stageWords(top) + bracket(top.Why))
	defer k.close()
	k.box(marked(choked, "node", " choke"), x, y, wide, high-2, 6)
	k.text("v", "start", left, y+15, shorten(s.name(), 12.5, room))
	if !choked && top.Utilisation == nil {
		return
	}

	number := short(top)
	if top.Utilisation == nil {
		number = "choke point"
	}

	for _, l := range smallLabel(top, wide) {
		y += stageLine
		k.text(textClass("ax", top), "start", left, y+15, shorten(l, 11.5, room))
	}

	k.text(textClass("v", top), "start", left, y+29, shorten(number, 12.5, room))
	if top.Utilisation != nil {
		drawUse(k, top, left, y+33, room, 4)
	}
}

// drawUse draws a bar that is filled up to the utilisation of a stage.
func drawUse(k *canvas, x diagnosis.Stage, left, y, wide, high float64) {
	k.rect("track", left, y, wide, high)
	if x.Utilisation != nil {
		class := "fill free"
		if x.Choke {
			class = "fill choke"
		}

		k.rect(class, left, y, wide*min(max(*x.Utilisation, 0), 1), high)
	}
}

// chokeSign returns the mark of a choke point, for readers who cannot see its colour.
func chokeSign(x diagnosis.Stage) string { return marked(x.Choke, "", "▶ ") }

// wordy reports whether a stage shows words instead of a number.
func wordy(x diagnosis.Stage) bool { return x.Choke && x.Utilisation == nil }

// stageWide returns the width available for the label of a stage.
func stageWide(x diagnosis.Stage, wide float64) float64 {
	if wordy(x) {
		return wide
	}
	return wide - textWidth(short(x), 12.5) - 8
}

// stageTexts breaks the label of a stage, and the words that it shows instead of a number, into lines.
func stageTexts(x diagnosis.Stage, wide float64) (label, why []string) {
	in := func(size, room float64) func(string) bool {
		return func(line string) bool { return textWidth(line, size) <= room }
	}
	size := 11.5
	if x.Choke { // drawn bold
		size *= boldWider
	}

	label = broken(chokeSign(x)+x.Label, in(size, stageWide(x, wide)))
	if wordy(x) {
		why = broken(x.Why, in(11.5, wide))
	}

	return label, why
}

// stageHigh returns the height of a stage.
func stageHigh(x diagnosis.Stage, wide float64) float64 {
	label, why := stageTexts(x, wide)
	lines := len(label) + max(len(why), 1)
	return stageRow + float64(lines-2)*stageLine
}

// drawStage draws a label, a number and a bar.
func drawStage(k *canvas, x diagnosis.Stage, left, y, wide float64) {
	k.open(stageWords(x) + bracket(x.Why))
	defer k.close()
	label, why := stageTexts(x, wide)
	if !wordy(x) {
		k.text(textClass("v", x), "end", left+wide, y+13, short(x))
	}

	for _, l := range label {
		k.text(textClass("ax", x), "start", left, y+13, shorten(l, 11.5, stageWide(x, wide)))
		y += stageLine
	}

	if wordy(x) {
		for _, l := range why {
			k.text("ax", "start", left, y+13, shorten(l, 11.5, wide))
			y += stageLine
		}
		return
	}

	drawUse(k, x, left, y+5, wide, 6)
}
