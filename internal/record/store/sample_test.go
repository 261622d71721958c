package store

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

var sampleStart = time.Date(2026, 11, 21, 15, 30, 12, 0, time.UTC)

// sampleRun is a realistic head: the shape of a small plan on the local lab.
func sampleRun(id string) record.Run {
	ports := func(a, ap, b, bp string) [2]record.TopoPort {
		return [2]record.TopoPort{{Node: a, Port: ap}, {Node: b, Port: bp}}
	}
	return record.Run{
		RunHead: record.RunHead{
			ID:         id,
			Device:     "Example R1, openwrt 24.10.0",
			Notes:      []string{"fan off"},
			Started:    sampleStart,
			Status:     record.RunRunning,
			Lab:        "local",
			Command:    "chokepoint run quick --set method.seed=7",
			Version:    "0.1.0",
			BinaryHash: "00",
		},
		Kernel: "6.1.0-18-amd64",
		Design: record.Design{
			Procedure: record.Procedure{
				Method: record.Method{
					Duration: 2 * time.Second,
					Warmup:   300 * time.Millisecond,
					Runs:     3,
					Order:    "blocks",
					Seed:     7,
				},
				Measure: record.Measure{
					LatencyIdle:   "block",
					LatencyLoaded: true,
					ProbeInterval: 5 * time.Millisecond,
					Telemetry:     true,
				},
			},
			Name:    "quick",
			Source:  "built-in",
			Text:    "name: quick\n",
			Factors: []record.FactorLevels{{Name: "tunnel", Levels: []string{"none", "wireguard"}}},
		},
		Topologies: []record.Topology{{
			Name:    "forward",
			Near:    "client",
			Far:     "server",
			Tunnel:  [2]string{"client", "router"},
			Routers: []string{"router"},
			Nodes:   []record.TopoNode{{Name: "client"}, {Name: "router", Router: true}, {Name: "server"}},
			Links: []record.TopoLink{
				{Name: "lan", Ends: ports("client", "lan", "router", "lan")},
				{Name: "wan", Ends: ports("router", "wan", "server", "wan")}},
		}},
		Environments: []record.Environment{{
			Node:    "host",
			Facts:   map[string]string{"kernel": "6.1.0-18-amd64", "cpu_model": "Example CPU", "cores": "4"},
			Missing: map[string]string{"governor": "no cpufreq in this machine"},
		}},
		Ceilings: []record.Ceiling{{Kind: "tcp loopback", Value: 21.4e9, Unit: "bit/s"}},
	}
}

func sampleHeadline() *record.Headline {
	return &record.Headline{
		Metric: "goodput_bps",
		Value:  5.6e9,
		Unit:   "bit/s",
		Cell:   "no tunnel",
		Grade:  "valid",
	}
}

// sampleTrial is the trial of one row, a function of its index alone.
func sampleTrial(run string, index int) record.Trial {
	r := rand.New(rand.NewPCG(uint64(index), 42))
	origin := int64(1e12) + int64(index)*3e9
	row := record.Row{
		Assignment: record.Assignment{
			Block:   (index-1)/10 + 1,
			Index:   index,
			Kind:    record.RowLoad,
			Factors: record.Factors{"tunnel": []string{"none", "wireguard"}[index%2], "direction": "up"},
		},
		ID: fmt.Sprintf("b%d-r%02d", (index-1)/10+1, index),
	}
	t := record.Trial{
		Row: row,
		TrialHead: record.TrialHead{
			ID:      row.ID + ".1",
			Started: sampleStart.Add(time.Duration(index) * 3 * time.Second),
			Phases:  []record.Phase{{Name: record.PhaseWarmup, Start: origin, End: origin + 3e8}},
		},
		Run:     run,
		Attempt: 1,
		Status:  record.TrialOK,
		Origin:  origin,
		Ended:   origin + 2_600_000_000,
		Window:  record.Window{Begin: origin, Start: origin + 3e8, End: origin + 2_300_000_000},
		Traffic: &record.Traffic{
			Engine: "native",
			Raw:    fmt.Appendf(nil, `{"row": %q}`, row.ID),
			Flows:  []record.Flow{sampleFlow(r, origin)},
		},
		Loaded: &record.Latency{IntervalNs: 5e6, Size: 64, Stamps: "kernel"},
		Nodes: map[string]record.NodeData{"host": {Samples: []record.Samples{
			{Probe: "cpu", Scope: record.ScopeHost, Table: sampleCPU(r, origin)},
			{Probe: "power", Scope: record.ScopeHost, Unavailable: "no RAPL in this machine"}}}},
	}
	for i := range 100 {
		rtt := int64(800_000 + r.ExpFloat64()*200_000)
		if i == 50 {
			rtt = -1
		}

		t.Loaded.RTT = append(t.Loaded.RTT, rtt)
		t.Loaded.SentAt = append(t.Loaded.SentAt, origin+int64(i)*5e6)
	}

	return t
}

func sampleFlow(r *rand.Rand, origin int64) record.Flow {
	f := record.Flow{
		Direction: record.Up,
		Local:     "198.18.1.2:40000",
		Remote:    "198.18.2.2:5201",
		Sent:      record.NewTable("bytes", "packets"),
		Received:  record.NewTable("bytes", "packets"),
		TCP: &record.TCP{
			Congestion:  "cubic",
			MSS:         1448,
			Retransmits: new(r.Int64N(50)),
			Series:      record.NewTable("rtt_ns", "cwnd_segments"),
		},
	}
	sum := 0.0
	for i := range 23 {
		sum += 70e6 + math.Round(r.NormFloat64()*1e6)
		at := origin + int64(i)*1e8
		f.Sent.Append(at, sum+1e5, math.NaN())
		f.Received.Append(at+9_000, sum, math.Floor(sum/1448))
		f.TCP.Series.Append(at, math.Round(9e5+r.NormFloat64()*1e4), 80)
	}

	f.SentBytes, f.ReceivedBytes = int64(sum+1e5), int64(sum)
	return f
}

func sampleCPU(r *rand.Rand, origin int64) *record.Table {
	t := record.NewTable("cpu0/user_ns", "cpu0/softirq_ns", "cpu1/user_ns", "cpu1/softirq_ns")
	var v [4]float64
	for i := range 23 {
		for j := range v {
			v[j] += math.Round(r.Float64()*5) * 1e7
		}

		t.Append(origin+int64(i)*1e8, v[:]...)
	}

	return t
}
