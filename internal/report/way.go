package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// way draws a ledger: for each stage on the path of the load's packets, how many packets entered, left and
// were lost there, and how long they waited.
type way struct{ *diagnosis.Ledger }

func stageName(a diagnosis.Account) string {
	switch a.Stage {
	case diagnosis.StageIP:
		return "network stack"
	case diagnosis.StageSocket:
		return a.Stage
	case diagnosis.StageLink:
		return "link to " + a.Element
	}
	return a.Element + " " + a.Stage // the queue or filter of a device
}

// rows returns the stages with counted packets or delay. The first stage is the sender's stack. If its
// counters do not balance, the number that entered it does not count packets, so rows omits this number.
func (l way) rows() (out []diagnosis.Account) {
	for i, a := range l.Data {
		if (a.In == nil || a.Out == nil) && a.DiedPackets() == 0 && a.WaitedNs == 0 {
			continue
		}

		if i == 0 && !balanced(a) {
			a.In = nil
		}

		out = append(out, a)
	}
	return out
}

// balanced reports whether the packets that entered a stage equal those that left, were lost or stayed there.
// It allows for a difference of 2 % or 20 packets, because counters are not read at the same time.
func balanced(a diagnosis.Account) bool {
	return a.In == nil || a.Out == nil ||
		math.Abs(*a.In-*a.Out-a.DiedPackets()-a.Held) <= max(*a.In/50, 20)
}

// gap names the first stage whose counters do not balance, or returns "" if all do.
func (l way) gap() string {
	for _, a := range l.rows() {
		if !balanced(a) {
			return fmt.Sprintf("no picture: at the %s's %s %s packets came in, %s left and %s died, so "+
				"its counters do not fit together", a.Node, stageName(a), packetsText(a.In),
				packetsText(a.Out), unit.Whole(a.DiedPackets()))
		}
	}
	return ""
}

// caption explains the columns.
func (l way) caption() string {
	text := "Packets of the window as they are on the wire. Counters are read one after the other, so in " +
		"and out may differ a little. A queue's time is its mean backlog ÷ its rate."
	if len(l.Data) > 0 && !balanced(l.Data[0]) {
		text += " What went into the sender's network stack is not shown: the kernel counted batches " +
			"there, before it cut them into packets (GSO), or at other times."
	}
	return text
}

// packetsText formats a number of packets.
func packetsText(n *float64) string {
	if n == nil {
		return "–"
	}
	return unit.Whole(*n)
}

func waitedText(a diagnosis.Account) string {
	switch {
	case a.Stage != diagnosis.StageQueue:
		return ""
	case a.WaitedNs < 1e3:
		return "0"
	}
	return unit.Nanoseconds(a.WaitedNs)
}

// Dimensions of the picture.
const (
	wayRow  = 22.0
	wayHead = 26.0
)

// Draw lists the stages from the sender to the receiver.
func (l way) Draw(width float64) *canvas {
	rows := l.rows()
	label := "Packets at each stage: " + strings.Join(ledgerLines(l.Ledger), "; ")
	k := &canvas{w: width, h: 20, label: label}
	columns := [4]float64{width * .51, width * .7, width * .82, width - 4} // right edges
	for i, name := range []string{"in", "out", "died", "waited"} {
		k.text("ax", "end", columns[i], 14, name)
	}

	most, longest := 0.0, 0.0
	for _, a := range rows {
		most, longest = max(most, a.DiedPackets()), max(longest, a.WaitedNs)
	}

	node := ""
	for _, a := range rows {
		if a.Node != node {
			node = a.Node
			k.text("t node-name", "start", 4, k.h+17, shorten(node, 13, width*.5))
			k.h += wayHead
		}

		y := k.h + 15
		k.open(stageWordsOf(a))
		k.upright("link", 9, k.h, k.h+wayRow)
		died := a.DiedPackets()
		k.circle("fill "+marked(died > 0 && died == most, "free", " choke"), 9, y-4, 3.5)
		room := columns[0] - textWidth(packetsText(a.In), 12.5) - 26
		k.text("ax", "start", 20, y, shorten(stageName(a), 11.5, room))
		k.text("v", "end", columns[0], y, packetsText(a.In))
		k.text("v", "end", columns[1], y, packetsText(a.Out))
		class := "ax"
		if died >= 1 {
			class = "v choke-word"
		}

		k.text(class, "end", columns[2], y, unit.Whole(died))
		class = "ax"
		if a.WaitedNs > 0 && a.WaitedNs == longest {
			class = "v"
		}

		k.text(class, "end", columns[3], y, waitedText(a))
		k.close()
		k.h += wayRow
	}

	k.h += 4
	return k
}

// stageWordsOf describes a stage in words.
func stageWordsOf(a diagnosis.Account) string {
	text := fmt.Sprintf("%s, %s: %s packets in, %s out", a.Node, stageName(a), packetsText(a.In),
		packetsText(a.Out))
	for _, d := range a.Died {
		text += fmt.Sprintf("; %s died by %s", unit.Whole(d.Packets), d.By)
	}

	if a.WaitedNs > 0 {
		text += "; a packet waited " + unit.Nanoseconds(a.WaitedNs)
	}

	return text
}

// ledgerLines lists where packets were lost, and where they waited.
func ledgerLines(l *diagnosis.Ledger) (out []string) {
	var died, waited []string
	for _, a := range l.Data {
		for _, d := range a.Died {
			if math.Round(d.Packets) > 0 {
				died = append(died, fmt.Sprintf("%s at the %s's %s, by %s", unit.Whole(d.Packets),
					a.Node, stageName(a), d.By))
			}
		}
	}

	for _, side := range []struct {
		all []diagnosis.Account
		of  string
	}{{l.Data, ""}, {l.Acks, " (acknowledgements)"}} {
		for _, a := range side.all {
			if a.WaitedNs > math.Max(1e5, l.WaitedNs/50) {
				waited = append(waited, fmt.Sprintf("%s in the %s's %s%s", unit.Nanoseconds(a.WaitedNs),
					a.Node, stageName(a), side.of))
			}
		}
	}

	if missed := l.MissedPackets; len(missed) == 2 {
		text := "the ends miss " + between(unit.Whole(missed[0]), unit.Whole(missed[1])) + " packets"
		if len(died) > 0 {
			text += "; died: " + strings.Join(died, ", ")
		}

		if l.RestWhere != "" {
			text += fmt.Sprintf("; %s differ %s", unit.Whole(math.Abs(l.RestPackets)), l.RestWhere)
		}

		out = append(out, text)
	}

	if l.AddedNs != nil {
		text := "the load adds " + unit.Nanoseconds(*l.AddedNs) + " to its RTT"
		if len(waited) > 0 {
			text += ": " + strings.Join(waited, ", ")
		}

		rest := *l.AddedNs - l.WaitedNs
		if l.WaitedWhere != "" {
			text += "; " + unit.Nanoseconds(rest) + " " + l.WaitedWhere
		} else if rest > .1**l.AddedNs && len(waited) > 0 {
			text += "; " + unit.Nanoseconds(rest) + " in no queue"
		}

		out = append(out, text)
	}

	return out
}

// between formats a range, or one number if both bounds look the same.
func between(low, high string) string {
	if low == high {
		return low
	}
	return low + " to " + high
}
