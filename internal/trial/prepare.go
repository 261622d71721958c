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

// Prepare brings up the labs that the plan needs and checks everything that could fail later. It sets
// Run.Topologies, Run.Environments and Run.LabNote, and appends cells that cannot be measured in this lab to
// Run.Skipped. Only conclusive answers count: after an inconclusive check, the cell is measured, and may then
// fail with its own reason.
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

// reportSkipped reports each reason for skipping once, with the cells that it concerns.
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

// skipped reports whether a row is left out because its cell or all cells that share its path are skipped.
func (c *Campaign) skipped(row record.Row) bool {
	if row.OfCell() {
		return c.skip[row.Cell()]
	}
	return len(c.cellsOf(row)) == 0
}

// cellsOf returns the cells that share a row's path and are not skipped.
func (c *Campaign) cellsOf(row record.Row) []record.Factors {
	path := c.Run.Design.Path(row.Factors).Key()
	return slices.DeleteFunc(slices.Clone(c.Plan.Cells()), func(cell record.Factors) bool {
		return c.skip[cell.Key()] || c.Run.Design.Path(cell).Key() != path
	})
}

// impossible returns the reason why a cell cannot be measured in this lab, with a hint, or a zero Answer
// if it can be measured.
func (c *Campaign) impossible(ctx context.Context, cell record.Factors,
	answers map[string]check.Answer) (can check.Answer, err error) {
	b, err := c.testbed(ctx, cell)
	if no, ok := errors.AsType[*lab.NoTopology](err); ok {
		return check.Not("lab %s: %v", c.Run.Lab, no).Hinted("%s", check.HintOf(err)), nil
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
	if err != nil { // a level is invalid at the place that the cell names
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

		if !there { // checked later, when the firmware has been installed
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
			what := s.Knob + "=" + s.Value + " on " + s.Node + " of lab " + c.Run.Lab
			if n, err := l.Node(ctx, s.Node); err == nil && n.Facts.Fixed != "" && a.Reason == n.Facts.Fixed {
				what = s.Knob + " on " + s.Node // the knob cannot be set to any value
			}
			return check.Not("%s: %s", what, a.Reason).Hinted("%s", a.Hint), nil
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

// tunnelHint returns a hint on how to make a tunnel possible. If this machine's kernel lacks something, a
// topology in which tunnels end on routers may work, because routers have their own kernels.
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

// fingerprint records the environment of each node, once per run. If cells need guests of different sizes,
// it removes the facts that differ between sizes and records the reason.
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
					continue // because the facts are the same for every guest size
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
					at = 0 // this machine comes first, because it runs the other nodes
				}

				c.Run.Environments = slices.Insert(c.Run.Environments, at, e)
			}
		}
	}
	return nil
}

// kernelOf returns the facts of a node. They include the first node that shares the node's kernel.
// kernelOf compares boot ids only of real machines, because all other nodes share this machine's kernel or
// are guests.
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
		put(&c.kernels, boot, n.Name)
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

// leaveOutOthers compares a node's facts with other, the node's environment in a lab with guests of another
// size. It removes the facts that differ and records the reason.
func (c *Campaign) leaveOutOthers(other record.Environment) {
	i := slices.IndexFunc(c.Run.Environments, func(e record.Environment) bool { return e.Node == other.Node })
	e := &c.Run.Environments[i]
	for name, fact := range e.Facts {
		if is, ok := other.Facts[name]; ok && is != fact {
			delete(e.Facts, name)
			put(&e.Missing, name, fmt.Sprintf("guests differ by cell: %s, %s", fact, is))
		}
	}
}

// firmwareFact is the name of the fact that contains the version of a real router's system.
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

// inventoryOf reads a node's inventory through the node's driver.
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

// inventoryTime limits the time to read all inventories after the last trial.
const inventoryTime = 20 * time.Second

// inventoriesAfter reads and stores the inventory of each node after the last trial. It skips nodes for which
// Prepare found none.
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

// Found reads the inventory of a node. It returns nil if the node cannot report an inventory. For each part
// that cannot be read, the inventory contains the reason.
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

// namePorts sets the names of the ports in an inventory's devices.
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
		e := record.Environment{Node: n.Name, Missing: map[string]string{}}
		if !l.OwnNetwork() {
			e.Facts = c.between(n.Name).Facts
		}

		rest := "all"
		if by, ok := n.Driver.(driver.Describing); ok {
			rest = "others"
			facts, err := by.Facts(ctx, n.Reads())
			if err != nil {
				e.Missing["system"] = err.Error()
			}

			if e.Facts == nil {
				e.Facts = map[string]string{}
			}

			maps.Copy(e.Facts, facts)
		}

		e.Missing[rest] = cmp.Or(n.Unagented, "the node has no agent")
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
