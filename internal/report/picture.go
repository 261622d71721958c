package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// chain is a topology whose nodes are in the order of the path.
type chain struct {
	Nodes  []chainNode
	Links  []string // Links[i] joins Nodes[i] and Nodes[i+1]
	Tunnel [2]int   // indexes of the nodes at the ends of the tunnel; equal if there is no tunnel
	Name   string   // name of the tunnel
	Class  string   // colour of the tunnel
}

type chainNode struct {
	Name   string
	Router bool
	Note   string
}

// chainOfWay joins the endpoints of a path between two machines. One node represents all routers on the
// path.
func chainOfWay(w analysis.Way, topologies []record.Topology) (c chain) {
	near, far := "client", "server"
	for _, t := range topologies {
		near = t.Near
		far = t.Far
	}

	wire := fmt.Sprintf("IPv%d", w.IP)
	if w.MTU > 0 {
		wire += fmt.Sprintf(", MTU %d", w.MTU)
	}

	c.Nodes = []chainNode{{Name: near, Note: w.Near}}
	c.Links = []string{wire}
	if w.Hops == nil || *w.Hops > 0 {
		first := cmp.Or(w.Routers...)
		if len(w.Routers) > 1 {
			first += " …"
		}

		c.Nodes = append(c.Nodes, chainNode{
			Name:   w.Passes(),
			Router: true,
			Note:   joined(", ", first, w.Translates()),
		})
		c.Links = append(c.Links, "")
	}

	c.Nodes = append(c.Nodes, chainNode{Name: far, Note: w.Far})
	return c
}

// chainOf follows the links of a topology from the near node. ok is false if chainOf omitted nodes because
// they are not on this path.
func chainOf(t record.Topology, tunnel string) (c chain, ok bool) {
	routers := map[string]bool{}
	for _, n := range t.Nodes {
		routers[n.Name] = n.Router
	}

	at := t.Near
	used := make([]bool, len(t.Links))
	c.Nodes = append(c.Nodes, chainNode{Name: at, Router: routers[at]})
	for found := true; found; {
		found = false
		for i, l := range t.Links {
			for side := range l.Ends {
				if !found && !used[i] && l.Ends[side].Node == at {
					at = l.Ends[1-side].Node
					used[i] = true
					found = true
					c.Links = append(c.Links, l.Name)
					c.Nodes = append(c.Nodes, chainNode{Name: at, Router: routers[at]})
				}
			}
		}
	}

	for i, n := range c.Nodes {
		for side, name := range t.Tunnel {
			if n.Name == name && name != "" {
				c.Tunnel[side] = i
			}
		}
	}

	slices.Sort(c.Tunnel[:])
	c.Name = tunnel
	if tunnel == "" {
		c.Tunnel = [2]int{}
	}

	return c, len(c.Nodes) == len(t.Nodes)
}

func (c chain) inTunnel(link int) bool { return link >= c.Tunnel[0] && link < c.Tunnel[1] }

// lines draws the chain as text. A double line represents a tunnel.
func (c chain) lines() []string {
	rows := make([]string, 4)
	add := func(parts ...string) {
		for i, p := range parts {
			rows[i] += p
		}
	}
	for i, n := range c.Nodes {
		n.Name = printable(n.Name)
		w := utf8.RuneCountInString(n.Name) + 2
		mark := ""
		if n.Router {
			mark = "router"
		}

		mark = cmp.Or(printable(n.Note), mark)
		w = max(w, utf8.RuneCountInString(mark)-1)
		bar := strings.Repeat("─", w)
		n.Name = centre(n.Name, w-2)
		add("┌"+bar+"┐", c.edge(i-1, "│┤╡")+" "+n.Name+" "+c.edge(i, "│├╞"), "└"+bar+"┘", centre(mark, w+2))
		if i < len(c.Links) {
			gap := max(len([]rune(c.Links[i]))+2, 8)
			wire, below := "─", ""
			if c.inTunnel(i) {
				wire, below = "═", "tunnel"
			}

			add(centre(c.Links[i], gap), strings.Repeat(wire, gap), centre(below, gap),
				strings.Repeat(" ", gap))
		}
	}

	rows = each(rows, func(r string) string { return strings.TrimRight(r, " ") })
	return filter(rows, func(r string) bool { return r != "" })
}

// edge returns the character for the side of a box at which a link may end. signs contains three characters:
// for no link, for a plain link and for a tunnel.
func (c chain) edge(link int, signs string) string {
	r := []rune(signs)
	switch {
	case link < 0 || link >= len(c.Links):
		return string(r[0])
	case c.inTunnel(link):
		return string(r[2])
	}
	return string(r[1])
}

// aria describes the chain for screen readers.
func (c chain) aria() string {
	s := "Path of the packets: "
	for i, n := range c.Nodes {
		s += n.Name + bracket(n.Note)
		if i < len(c.Links) {
			s += " – " + around("", c.Links[i], " – ")
		}
	}
	return s
}

func centre(s string, width int) string {
	n := len([]rune(s))
	if n >= width {
		return s
	}

	left := (width - n) / 2
	return strings.Repeat(" ", left) + s + strings.Repeat(" ", width-n-left)
}

// Draw draws nodes as boxes, links as lines, and the tunnel as a tube around its links.
func (c chain) Draw(width float64) *canvas {
	const top, height = 26, 46
	k := &canvas{w: width, h: top + height + 26, label: c.aria()}
	n := float64(len(c.Nodes))
	widest := 0.0
	for _, node := range c.Nodes {
		widest = max(widest, textWidth(node.Name, 13)+24, textWidth(node.Note, 11))
	}

	gap := min((width-2-n*widest)/max(n-1, 1), 260)
	if gap < 34 {
		return c.drawDown(width) // too narrow, such as a phone with five nodes
	}

	x := func(i int) float64 { return 1 + float64(i)*(widest+gap) }
	middle := float64(top) + height/2
	for i, name := range c.Links {
		k.line("link", x(i)+widest, middle, x(i+1), middle)
		if !c.inTunnel(i) || gap > 60 {
			k.text("ax", "middle", x(i)+widest+gap/2, middle-12, shorten(name, 11, gap))
		}
	}

	if c.Tunnel[0] != c.Tunnel[1] {
		from := x(c.Tunnel[0]) + widest - 1
		to := x(c.Tunnel[1]) + 1
		k.box("tube "+c.Class, from, middle-7, to-from, 14, 7)
		k.text("tube-name", "middle", (from+to)/2, top+height+18, shorten(c.Name, 12, width))
	}

	for i, node := range c.Nodes {
		k.box(marked(node.Router, "node", " router"), x(i), top, widest, height, 6)
		k.text("t node-name", "middle", x(i)+widest/2, middle+4.5, shorten(node.Name, 13, widest-4))
		if node.Router {
			k.text("ax", "middle", x(i)+widest/2, top-9, shorten("under test", 11, widest+gap))
		}

		if node.Note != "" {
			k.text("ax", "middle", x(i)+widest/2, top+height+18, shorten(node.Note, 11, widest+gap))
		}
	}

	return k
}

// drawDown draws the chain from top to bottom.
func (c chain) drawDown(width float64) *canvas {
	const height, gap = 34.0, 40.0
	k := &canvas{w: width, h: float64(len(c.Nodes))*(height+gap) - gap + 4, label: c.aria()}
	wide := width * 0.4
	left := (width - wide) / 2
	middle := width / 2
	y := func(i int) float64 { return 2 + float64(i)*(height+gap) }
	for i, name := range c.Links {
		k.upright("link", middle, y(i)+height, y(i+1))
		k.text("ax", "start", middle+14, y(i)+height+gap/2+4, shorten(name, 11, width-middle-14))
	}

	if c.Tunnel[0] != c.Tunnel[1] {
		from := y(c.Tunnel[0]) + height - 1
		to := y(c.Tunnel[1]) + 1
		k.box("tube "+c.Class, middle-7, from, 14, to-from, 7)
		k.text("tube-name", "end", middle-14, (from+to)/2+4, shorten(c.Name, 12, middle-14))
	}

	for i, node := range c.Nodes {
		if node.Router {
			k.text("ax", "start", left+wide+8, y(i)+height/2+4, "under test")
		}

		k.box(marked(node.Router, "node", " router"), left, y(i), wide, height, 6)
		name := node.Name
		if node.Note != "" { // show the note: an address or a router's task tells more than the kind
			name = node.Note
		}

		k.text("t node-name", "middle", middle, y(i)+height/2+4.5, shorten(name, 13, wide-6))
	}

	return k
}
