package lab

import (
	"fmt"
	"os"

	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// cabling joins the nodes of a lab in the holder's namespace: two namespaces by a veth pair, a namespace
// and a machine by a tap, two machines by two taps in a bridge.
type cabling struct {
	pids    map[string]int // of the namespaces; a node without is a machine
	queues  int
	taps    map[record.TopoPort]*os.File // the machines' ports
	bridges int
}

func (c *cabling) join(link record.TopoLink) error {
	a, b := link.Ends[0], link.Ends[1]
	pa, pb := c.pids[a.Node], c.pids[b.Node]
	switch {
	case pa != 0 && pb != 0:
		return kernel.AddVeth(kernel.VethEnd{Name: a.Port, PID: pa}, kernel.VethEnd{Name: b.Port, PID: pb},
			c.queues)
	case pa != 0:
		return c.tap(b, a.Port, pa)
	case pb != 0:
		return c.tap(a, b.Port, pb)
	}
	c.bridges++
	name := fmt.Sprintf("bridge%d", c.bridges)
	ports := []string{name + "a", name + "b"}
	for i, end := range link.Ends {
		f, err := kernel.AddTap(ports[i])
		if err != nil {
			return err
		}
		c.taps[end] = f
	}
	return kernel.AddBridge(name, ports...)
}

// tap makes a machine's port, whose other end is the port of a namespace.
func (c *cabling) tap(machine record.TopoPort, port string, pid int) error {
	f, err := kernel.AddTap(port)
	if err != nil {
		return err
	}
	c.taps[machine] = f
	return kernel.MoveLink(port, pid)
}

// of are a machine's taps in the order of its ports.
func (c *cabling) of(l agent.Layout) []*os.File {
	files := make([]*os.File, len(l.Ports))
	for i, port := range l.Ports {
		files[i] = c.taps[record.TopoPort{Node: l.Node, Port: port}]
	}
	return files
}

// close leaves the taps to the machines.
func (c *cabling) close() {
	for _, f := range c.taps {
		f.Close()
	}
}
