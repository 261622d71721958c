// Package quick provides runs like those of the plan quick, for tests of code that reads runs.
package quick

import (
	"slices"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/method"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
)

// Factors returns a cell of the plan with some levels changed. Arguments alternate between names and
// levels.
func Factors(changes ...string) record.Factors {
	f := record.Factors{
		"topology": "forward", "tunnel": "none", "ip": "4", "nat": "off", "offload": "wire",
		"protocol": "tcp", "streams": "1", "direction": "up", "congestion": "cubic", "engine": "native",
	}
	for i := 0; i+1 < len(changes); i += 2 {
		f[changes[i]] = changes[i+1]
	}

	if f["tunnel"] != "none" && f["mtu"] == "" {
		f["mtu"] = "1420"
	}

	if f["protocol"] == "udp" {
		delete(f, "congestion")
		f["rate"] = "flat"
		if f["packet_size"] == "" {
			f["packet_size"] = "64"
		}
	}

	return f
}

// Catalogue returns the factors of every plan and of all knobs.
func Catalogue() *factor.Catalogue {
	return &factor.Catalogue{Factors: slices.Concat(factor.Base(factor.Options{}), factor.Further(),
		knob.Factors(node.Knobs()))}
}

// Design returns the design of a run with these cells.
func Design(cells ...record.Factors) record.Design {
	c := Catalogue()
	return record.Design{
		Procedure: record.Procedure{Loads: c.Loads(cells)},
		Catalogue: c,
		Cells:     cells,
	}
}

// Run returns a run with these cells in the lab "local", without trials.
func Run(cells ...record.Factors) record.Run {
	run := record.Run{
		RunHead: record.RunHead{
			ID:      "r1",
			Status:  record.RunDone,
			Version: "1",
			Command: "chokepoint run",
		},
		Topologies: []record.Topology{Forward()},
		Ceilings: []record.Ceiling{{Kind: "tcp loopback, 1 stream", Value: 30e9, Unit: "bit/s"},
			{Kind: "udp loopback, 64-byte packets", Value: 1e6, Unit: "pps"}},
		Design: Design(cells...),
	}
	run.Design.Name = "quick"
	run.Design.Description = "this machine acting as a router"
	run.Design.Method = record.Method{Duration: 10 * time.Second, Runs: 3, Seed: 7, Order: "blocks"}
	InLab(&run, "local")
	return run
}

// InLab changes the lab of a run to the named one, and sets the facts of that lab's nodes.
func InLab(run *record.Run, lab string) {
	shared := record.NodeFacts{
		Driven: record.DrivenByAgent,
		CPUs:   record.CPUsShared,
		Clock:  record.ClockSame,
	}
	own := record.NodeFacts{
		Driven:    record.DrivenByAgent,
		OwnKernel: true,
		CPUs:      record.CPUsOwn,
		Clock:     record.ClockRelated,
	}
	unreached := record.NodeFacts{
		OwnKernel:   true,
		CPUs:        record.CPUsOwn,
		Unreachable: "nothing of chokepoint runs on it",
	}
	driven := record.NodeFacts{Driven: record.DrivenByAgent}
	facts, found := map[string][2]record.NodeFacts{ // facts of the endpoints and the host, then of the router
		record.LabPair: {own, unreached},
		record.LabSSH:  {driven, driven},
	}[lab]
	if !found {
		facts = [2]record.NodeFacts{shared, shared}
	}

	_, guests := record.GuestArch(lab)
	if guests {
		router := own
		router.CPUs = record.CPUsEmulated
		facts[1] = router
	}

	run.Lab = lab
	run.Nodes = nil
	for _, name := range []string{"client", "router", "server", record.HostNode} {
		n := facts[0]
		if name == "router" {
			n = facts[1]
		}

		n.Name = name
		run.Nodes = append(run.Nodes, n)
	}
}

// Forward returns a topology with a router between client and server.
func Forward() record.Topology {
	return record.Topology{
		Name:    "forward",
		Near:    "client",
		Far:     "server",
		Tunnel:  [2]string{"client", "router"},
		Routers: []string{"router"},
		Nodes:   []record.TopoNode{{Name: "client"}, {Name: "router", Router: true}, {Name: "server"}},
		Links: []record.TopoLink{
			{
				Name: "lan",
				Ends: [2]record.TopoPort{{Node: "client", Port: "lan"},
					{Node: "router", Port: "lan"}},
			},
			{
				Name: "wan",
				Ends: [2]record.TopoPort{{Node: "router", Port: "wan"},
					{Node: "server", Port: "wan"}},
			},
		},
	}
}

// ShortFlows returns a thousand flows, of which 980 completed: 900 small flows in 1 to 9 ms, and 80 larger
// flows in 50 ms. 5 flows failed and 15 did not finish.
func ShortFlows() *record.ShortFlows {
	s := &record.ShortFlows{
		RateHz:     500,
		Started:    1000,
		Completed:  980,
		Failed:     5,
		Unfinished: 15,
		Carried:    20,
		Asked:      7,
		Confirmed:  7,
		Connect:    []record.TimeCount{{FromNs: 1000, Flows: 600}, {FromNs: 3000, Flows: 380}},
		Late:       []record.TimeCount{{FromNs: 0, Flows: 980}, {FromNs: 77, Flows: 20}},
		Classes: []record.FlowClass{{FromBytes: 0, Started: 910}, {
			FromBytes: 100e3,
			Started:   90,
			Times:     []record.TimeCount{{FromNs: 50e6, Flows: 80}},
		}, {FromBytes: 10e6}},
	}
	for i := range int64(9) {
		s.Classes[0].Times = append(s.Classes[0].Times, record.TimeCount{FromNs: (i + 1) * 1e6, Flows: 100})
	}
	return s
}

// SearchMethod returns the method of a short search for a packet rate, with preset quick.
func SearchMethod() record.Method {
	p, _ := method.PresetNamed("quick")
	return record.Method{
		Warmup:   200 * time.Millisecond,
		Cooldown: 300 * time.Millisecond,
		Search: &record.Search{
			Preset:      p.Name,
			Goals:       p.Goals,
			MinPPS:      1000,
			Warmup:      p.Warmup,
			CountPauses: p.Overhead,
		},
	}
}
