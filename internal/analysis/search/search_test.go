package search

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/method"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/quick"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func TestPayloadBitsOfAMix(t *testing.T) {
	trial := &record.Trial{
		Row: record.Row{Assignment: record.Assignment{
			Factors: record.Factors{"ip": "4", "packet_size": factor.IMIX},
		}},
		TrialHead: record.TrialHead{
			Search: &record.SearchTrial{SearchLimits: record.SearchLimits{Unit: record.UnitPackets}},
		},
	}
	if got, want := PayloadBits(trial), 8*(4030.0/12-28); math.Abs(got-want) > 1e-9 {
		t.Errorf("IPv4: got %v bits, want %v", got, want)
	}

	trial.Row.Factors["ip"] = "6"
	if got, want := PayloadBits(trial), 8*(4170.0/12-48); math.Abs(got-want) > 1e-9 {
		t.Errorf("IPv6: got %v bits, want %v", got, want)
	}
}

func counted(flows ...record.Packets) *record.Traffic {
	t := &record.Traffic{Load: record.Load{Protocol: "udp"}}
	for _, p := range flows {
		t.Flows = append(t.Flows, record.Flow{Packets: &p, ReceiverNs: 1e9, SenderNs: 1e9})
	}
	return t
}

func TestLossOfASearchTrial(t *testing.T) {
	for name, c := range map[string]struct {
		traffic *record.Traffic
		test    string
		want    float64
	}{
		"none": {counted(record.Packets{Sent: 1000, Received: 1000}),
			record.TestThroughput, 0},
		"in transit": {counted(record.Packets{Sent: 1000, Received: 900, Lost: 100}),
			record.TestThroughput, .1},
		"of two flows": {counted(record.Packets{Sent: 100, Received: 50, Lost: 50},
			record.Packets{Sent: 300, Received: 300}), record.TestThroughput, .125},
		"unsent is lost": {counted(record.Packets{Sent: 500, Unsent: 500, Received: 500}),
			record.TestThroughput, .5},
		"unsent at the edges": {counted(record.Packets{Sent: 9990, Unsent: 10, Received: 9990}),
			record.TestThroughput, 0},
		"more than at the edges": {counted(record.Packets{Sent: 9980, Unsent: 20, Received: 9980}),
			record.TestThroughput, .002},
		"a burst is what is sent": {counted(record.Packets{Sent: 500, Unsent: 500, Received: 500}),
			record.TestBackToBack, 0},
		"nothing sent": {counted(record.Packets{}), record.TestThroughput, 1},
		"not counted":  {&record.Traffic{Flows: []record.Flow{{}}}, record.TestThroughput, 1},
		"no traffic":   {nil, record.TestThroughput, 1},
	} {
		trial := &record.Trial{
			TrialHead: record.TrialHead{Search: &record.SearchTrial{
				TrialInput: record.TrialInput{
					Load:     1000,
					Duration: time.Second,
				},
				Test: c.test,
			}},
			Traffic: c.traffic,
		}
		got := SearchTrial(quick.SearchMethod(), trial, nil)
		want := method.Trial{
			TrialInput: record.TrialInput{Load: 1000, Duration: time.Second},
			Effective:  1500 * time.Millisecond,
			Loss:       c.want,
		}
		diff := cmp.Diff(want, got)
		if diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestAddedDelayNeedsEnoughProbes(t *testing.T) {
	rtts := func(n int, ns int64) *record.Latency {
		l := &record.Latency{}
		for range n {
			l.RTT = append(l.RTT, ns)
		}
		return l
	}
	for name, c := range map[string]struct {
		loaded, idle *record.Latency
		want         time.Duration
		ok           bool
	}{
		"enough":          {rtts(368, 5e6), rtts(10, 1e6), 4 * time.Millisecond, true},
		"faster if busy":  {rtts(368, 1e6), rtts(10, 5e6), 0, true},
		"too few":         {rtts(367, 5e6), rtts(10, 1e6), 0, false},
		"too few at idle": {rtts(368, 5e6), rtts(5, 1e6), 0, false},
		"no idle latency": {rtts(368, 5e6), nil, 0, false},
		"lost probes":     {rtts(1000, -1), rtts(10, 1e6), 0, false},
	} {
		if got, ok := addedP99(c.loaded, c.idle); got != c.want || ok != c.ok {
			t.Errorf("%s: got %s, %v, want %s, %v", name, got, ok, c.want, c.ok)
		}
	}
}

func TestLostConnections(t *testing.T) {
	for want, s := range map[float64]*record.ShortFlows{0: {
		Started:    100,
		Completed:  90,
		Unfinished: 10,
		Carried:    6,
	}, .3: {Started: 10, Completed: 9, Failed: 1, Tardy: 2},
		1: {Started: 1, Failed: 1, Tardy: 1}, .25: {
			Started:    100,
			Completed:  70,
			Failed:     10,
			Unfinished: 20,
			Carried:    5,
		}} {
		got := lostConnections(&record.Trial{Traffic: &record.Traffic{ShortFlows: s}})
		if got != want {
			t.Errorf("%+v: got %v, want %v", s, got, want)
		}
	}

	for _, tr := range []*record.Traffic{nil, {}, {ShortFlows: &record.ShortFlows{}}} {
		got := lostConnections(&record.Trial{Traffic: tr})
		if got != 1 {
			t.Errorf("%+v: got %v, want all lost", tr, got)
		}
	}
}
