package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Prepare brings up the labs that the plan needs and tries everything that could fail late: it fills
// Run.Skipped with the cells that cannot run here, after those that a resumed run already has,
// Run.Topologies, Run.Environments and Run.LabNote. It remembers only conclusive answers; an inconclusive
// check lets the cell run, and fail with its own reason.
func (c *Campaign) Prepare(ctx context.Context) error {
	c.skip = map[string]bool{}
	if err := c.dropDefaultNAT(ctx); err != nil {
		return err
	}

	known := map[string]bool{}
	for _, s := range c.Run.Skipped {
		known[s.Factors.Key()] = true
	}

	answers := map[string]check.Answer{}
	var skipped []record.Skipped
	for _, cell := range c.Plan.Cells() {
		no, err := c.impossible(ctx, cell, answers)
		if err != nil {
			return err
		}

		if no.Reason != "" {
			c.skip[cell.Key()] = true
			s := record.Skipped{Factors: cell, Reason: no.Reason, Hint: no.Hint}
			if skipped = append(skipped, s); !known[cell.Key()] {
				c.Run.Skipped = append(c.Run.Skipped, s)
			}
		}
	}

	c.reportSkipped(skipped)
	return c.fingerprint(ctx)
}

// reportSkipped reports each reason once, with the cells skipped for it.
func (c *Campaign) reportSkipped(skipped []record.Skipped) {
	var reasons []string
	cells := map[string][]record.Factors{}
	for _, s := range skipped {
		if cells[s.Reason] = append(cells[s.Reason], s.Factors); len(cells[s.Reason]) == 1 {
			reasons = append(reasons, s.Reason)
		}
	}

	for _, reason := range reasons {
		e := record.Event{Event: "warning", Cell: cells[reason][0], Text: "skipped: " + reason}
		n := len(cells[reason])
		if n > 1 {
			e.Cell, e.Text = nil, fmt.Sprintf("%s (%d cells)", e.Text, n)
		}

		c.tell(e)
	}
}

// skipped reports whether a row does not run: its cell cannot, or no cell of its path can.
func (c *Campaign) skipped(row record.Row) bool {
	if row.OfCell() {
		return c.skip[row.Cell()]
	}
	return len(c.cellsOf(row)) == 0
}

// cellsOf returns the cells of a row's path that Prepare did not skip.
func (c *Campaign) cellsOf(row record.Row) []record.Factors {
	path := c.Run.Design.Path(row.Factors).Key()
	return slices.DeleteFunc(slices.Clone(c.Plan.Cells()), func(cell record.Factors) bool {
		return c.skip[cell.Key()] || c.Run.Design.Path(cell).Key() != path
	})
}

// impossible returns the reason why a cell cannot run here, and what would make it possible; none if it can.
func (c *Campaign) impossible(ctx context.Context, cell record.Factors,
	answers map[string]check.Answer) (can check.Answer, err error) {
	b, err := c.testbed(ctx, cell)
	if no, ok := errors.AsType[*lab.NoTopology](err); ok {
		return check.Not("%v", no), nil
	}

	if err != nil {
		return can, err
	}

	l := b.lab
	row := record.Row{
		Assignment: record.Assignment{Kind: record.RowLoad, Factors: cell},
		ID:         "check",
	}
	d, err := c.ask(row, l.Topology, c.Run.Design.Method)
	if err != nil { // a level without meaning at its place
		return check.Not("%v", err), nil
	}

	once := func(key string, ask func() check.Answer) check.Answer {
		key = fmt.Sprint(placeOf(cell), key)
		_, known := answers[key]
		if !known {
			answers[key] = ask()
		}

		return answers[key]
	}
	there := true
	level := factor.Firmware.Of(cell)
	if level != "" {
		if can, there, err = c.canHave(ctx, l, level); can.Reason != "" || err != nil {
			return can, err
		}

		if !there { // ask once the device exists
			d.tunnel = lab.TunnelSpec{Kind: factor.NoTunnel}
			d.settings = nil
		}
	}

	if factor.Sends(cell) {
		a := once(fmt.Sprintf("tunnel %s over IPv%d", d.tunnel.Kind, d.tunnel.Outer),
			func() check.Answer { return l.CheckTunnel(ctx, d.tunnel) })
		if a.State == check.No {
			return check.Not("tunnel %s: %s", d.tunnel.Kind, a.Reason).Hinted("%s",
				tunnelHint(ctx, l, a)), nil
		}
	}

	for _, s := range d.settings {
		a := once(fmt.Sprint(s), func() check.Answer { return l.CheckSetting(ctx, s) })
		if a.State == check.No {
			what := s.Knob + "=" + s.Value
			if n, err := l.Node(ctx, s.Node); err == nil && n.Facts.Fixed != "" && a.Reason == n.Facts.Fixed {
				what = s.Knob // no other value can be set there, either
			}
			return check.Not("%s on %s: %s", what, s.Node, a.Reason).Hinted("%s", a.Hint), nil
		}

		c.warnManagement(ctx, l, s)
	}

	if !factor.Sends(cell) {
		return c.noCipher(ctx, b, cell, once)
	}

	if d.load.Verify && d.load.UDPMode == record.UDPCount {
		return check.Not("count mode looks at no content, which is to be verified in every load").Hinted(
			"set measure.verify: true"), nil
	}

	if no, err := c.noEngine(ctx, l, d); no.Reason != "" || err != nil {
		return no, err
	}

	if reason, err := c.fit(ctx, l, &d); reason != "" || err != nil {
		return check.Not("%s", reason), err
	}

	if d.probeOpener == "far" && c.Run.Design.Measure.Probe == plan.ProbeICMP {
		return check.Not("latency probe icmp: the far end has to open what is sent, and no ping of it is " +
			"led past the router, which would answer itself").Hinted("set measure.probe: echo"), nil
	}

	if !there {
		return can, nil
	}

	return c.noNATOff(ctx, cell)
}

// tunnelHint describes what would make a tunnel possible. Topologies with tunnels that end on routers work if
// the routers' own kernels have what this machine's lacks.
func tunnelHint(ctx context.Context, l *lab.Lab, a check.Answer) string {
	own := func(node string) bool {
		n, err := l.Node(ctx, node)
		return err == nil && n.Facts.OwnKernel && n.Facts.Fixed == ""
	}
	ends := l.Topology.Tunnel
	if !slices.ContainsFunc(l.Topology.Routers, own) || own(ends[0]) && own(ends[1]) {
		return a.Hint
	}

	var better []string
	for _, t := range lab.Topologies() {
		router := func(node string) bool {
			return slices.Contains(t.Nodes, factor.Node{Name: node, Router: true})
		}
		if router(t.Tunnel[0]) && router(t.Tunnel[1]) {
			better = append(better, t.Name)
		}
	}

	hint := "take topology " + strings.Join(better, " or ") + ": there the tunnel ends on routers with " +
		"kernels of their own"
	if a.Hint != "" {
		hint = a.Hint + "; or " + hint
	}

	return hint
}

func (c *Campaign) noEngine(ctx context.Context, l *lab.Lab, d demand) (can check.Answer, err error) {
	engine := c.engine(d.engine)
	if engine == nil {
		return check.Not("no engine %s", d.engine), nil
	}

	var ends [2]traffic.End
	for i, name := range []string{l.Topology.Near, l.Topology.Far} {
		n, err := l.Node(ctx, name)
		if err != nil {
			return can, err
		}

		ends[i] = traffic.End{Node: name, ThirdParty: n.Serves}
		if n.Serves == "" {
			if ends[i].Agent, err = n.AgentFor("end traffic"); err != nil {
				return check.Not("%v", err), nil
			}
		}
	}

	a := engine.Check(ctx, ends[0], ends[1], d.load)
	if a.State == check.No {
		return check.Not("engine %s: %s", d.engine, a.Reason).Hinted("%s", a.Hint), nil
	}

	return can, nil
}

// fingerprint records the facts of each node, once per run. If cells use guests of several sizes, facts that
// differ between those are omitted, with the reason.
func (c *Campaign) fingerprint(ctx context.Context) error {
	seen := map[string]bool{}
	for _, t := range lab.Topologies() {
		for i, b := range c.testbedsOf(t.Name) {
			if i == 0 {
				c.Run.Topologies = append(c.Run.Topologies, b.lab.Topology)
				c.Run.LabNote = b.lab.Note
			}

			guest := b.lab.MachineFacts(ctx)
			for _, name := range b.lab.Nodes() {
				if i == 0 && seen[name] {
					continue
				}

				n, err := b.lab.Node(ctx, name)
				if err != nil {
					return err
				}

				if i > 0 && !n.Facts.Guest() && name != lab.HostNode {
					continue // the same for every guest size
				}

				e, err := c.describe(ctx, b.lab, n)
				if err != nil {
					return err
				}

				if name == lab.HostNode && e.Facts != nil {
					maps.Copy(e.Facts, guest)
				}

				if seen[name] {
					c.leaveOutOthers(e)
					continue
				}

				seen[name] = true
				c.Run.Nodes = append(c.Run.Nodes, c.kernelOf(ctx, n))
				at := len(c.Run.Environments)
				if name == lab.HostNode {
					at = 0 // it carries the others
				}

				c.Run.Environments = slices.Insert(c.Run.Environments, at, e)
			}
		}
	}
	return nil
}

// kernelOf returns the facts of a node, with the first earlier node that shares its kernel. It asks only real
// machines: this machine's nodes have its kernel, or are guests.
func (c *Campaign) kernelOf(ctx context.Context, n *lab.Node) record.NodeFacts {
	facts := n.Describe()
	boot := ""
	if facts.OwnMachine() {
		boot = n.Boot(ctx)
	}

	if boot == "" {
		return facts
	}

	first, known := c.kernels[boot]
	if !known {
		if c.kernels == nil {
			c.kernels = map[string]string{}
		}

		c.kernels[boot] = n.Name
		return facts
	}

	facts.Kernel = first
	for i := range c.Run.Nodes {
		if c.Run.Nodes[i].Name == first {
			c.Run.Nodes[i].Kernel = first
		}
	}

	return facts
}

// testbedsOf returns the testbeds of a topology, in the order of the cells.
func (c *Campaign) testbedsOf(topology string) (out []*testbed) {
	for _, cell := range c.Plan.Cells() {
		b := c.testbeds[placeOf(cell)]
		if factor.Topology.Is(cell, topology) && b != nil && !slices.Contains(out, b) {
			out = append(out, b)
		}
	}
	return out
}

// leaveOutOthers removes the facts of a node's environment that differ in a lab with guests of another size.
func (c *Campaign) leaveOutOthers(other record.Environment) {
	i := slices.IndexFunc(c.Run.Environments, func(e record.Environment) bool { return e.Node == other.Node })
	e := &c.Run.Environments[i]
	for name, fact := range e.Facts {
		if is, ok := other.Facts[name]; ok && is != fact {
			delete(e.Facts, name)
			if e.Missing == nil {
				e.Missing = map[string]string{}
			}

			e.Missing[name] = fmt.Sprintf("guests differ by cell: %s, %s", fact, is)
		}
	}
}

// firmwareFact is the fact about a real router's system.
const firmwareFact = "firmware"

func (c *Campaign) describe(ctx context.Context, l *lab.Lab, n *lab.Node) (record.Environment, error) {
	e, err := c.factsOf(ctx, l, n)
	namePorts(l, n.Name, e.Inventory)
	is := probe.Firmware(e.Facts)
	if is != "" && n.Facts.OwnMachine() &&
		slices.Contains(l.Topology.Routers, n.Name) {
		e.Facts[firmwareFact] = is
	}

	return e, err
}

// inventoryOf asks a node's driver for its inventory.
func inventoryOf(ctx context.Context, n *lab.Node) *record.Inventory {
	by, ok := n.Driver.(driver.Inventorying)
	if !ok {
		return record.NoInventory("driver " + n.Driver.Name() + " does not read it")
	}

	v, err := by.Inventory(ctx, n.Reads())
	if err != nil {
		return record.NoInventory(err.Error())
	}

	return v
}

// inventoryTime bounds the reading of all inventories after the last trial.
const inventoryTime = 20 * time.Second

// inventoriesAfter reads the inventories again, of the nodes that had one in Prepare, and stores them.
func (c *Campaign) inventoriesAfter(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, inventoryTime)
	defer cancel()
	after := map[string]*record.Inventory{}
	for _, t := range lab.Topologies() {
		for _, b := range c.testbedsOf(t.Name) {
			for _, name := range b.lab.Nodes() {
				i := slices.IndexFunc(c.Run.Environments, func(e record.Environment) bool {
					return e.Node == name && e.Inventory != nil
				})
				if i < 0 || after[name] != nil {
					continue
				}

				after[name] = cmp.Or(Found(within, b.lab, name),
					record.NoInventory("the node no longer has one"))
				c.Run.Environments[i].InventoryAfter = after[name]
			}
		}
	}

	if c.LearntAfter == nil || len(after) == 0 {
		return nil
	}

	return c.LearntAfter(ctx, after)
}

// Found reads what is on the path of packets at a node of l. It returns nil if nothing there can report it.
// An unreadable part is a gap.
func Found(ctx context.Context, l *lab.Lab, node string) *record.Inventory {
	n, err := l.Node(ctx, node)
	var v *record.Inventory
	switch {
	case err != nil:
	case n.HasDriver():
		v = inventoryOf(ctx, n)
	case n.HasAgent():
		var e record.Environment
		e, err = probe.Environment(ctx, n.Agent, node)
		v = e.Inventory
	}

	if err != nil {
		return record.NoInventory(err.Error())
	}

	namePorts(l, node, v)
	return v
}

// namePorts renames the devices of a node to its ports in the topology.
func namePorts(l *lab.Lab, node string, v *record.Inventory) {
	if v == nil {
		return
	}

	for _, port := range l.Ports(node) {
		for i := range v.Devices {
			if v.Devices[i].Name == l.Device(node, port) {
				v.Devices[i].Port = port
			}
		}
	}
}

func (c *Campaign) factsOf(ctx context.Context, l *lab.Lab, n *lab.Node) (record.Environment, error) {
	switch {
	case n.HasDriver():
		e := record.Environment{
			Node: n.Name,
			Missing: map[string]string{"all": cmp.Or(n.Unagented,
				"the node has no agent")},
		}
		if !l.OwnNetwork() {
			e.Facts = c.between(n.Name).Facts
		}

		if by, ok := n.Driver.(driver.Describing); ok {
			facts, err := by.Facts(ctx, n.Reads())
			if err != nil {
				e.Missing["system"] = err.Error()
			}

			if e.Facts == nil {
				e.Facts = map[string]string{}
			}

			maps.Copy(e.Facts, facts)
			e.Missing["others"] = e.Missing["all"]
			delete(e.Missing, "all")
		}

		e.Inventory = inventoryOf(ctx, n)
		return e, nil
	case !n.HasAgent():
		return c.between(n.Name), nil
	}

	e, err := probe.Environment(ctx, n.Agent, n.Name)
	if err == nil && n.Facts.OwnMachine() {
		err = c.ofMachine(ctx, l, n, &e)
	}

	return e, err
}
