package main

import (
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func TestRead(t *testing.T) {
	usage := map[string]record.EndUsage{"near": {UserNs: 1e9, MemoryBytes: 5}, "far": {SystemNs: 2e9,
		MemoryBytes: 6}}
	tests := []struct {
		name  string
		flows []record.Flow
		want  figures // none: an error
	}{
		{"two streams", []record.Flow{{ReceivedBytes: 1e9, ReceiverNs: 1e9},
			{ReceivedBytes: 5e8, ReceiverNs: 5e8}},
			figures{goodput: 16e9, gigabytes: 1.5, cpu: 3, memory: 11, flows: 2}},
		{"packets", []record.Flow{{ReceivedBytes: 1e9, ReceiverNs: 1e9, Packets: &record.Packets{Sent: 4,
			Received: 3, Lost: 1}}},
			figures{goodput: 8e9, gigabytes: 1, cpu: 3, memory: 11, flows: 1, packets: 3, loss: .25}},
		{"open accounts", []record.Flow{{ReceivedBytes: 1, ReceiverNs: 1, Packets: &record.Packets{Sent: 4,
			Received: 3}}}, figures{}},
		{"no time", []record.Flow{{ReceivedBytes: 1000}}, figures{}},
		{"no byte", []record.Flow{{ReceiverNs: 1e9}}, figures{}},
		{"no stream", nil, figures{}},
	}
	for _, tt := range tests {
		got, err := read(&record.Traffic{Flows: tt.flows, Ends: usage})
		if err != nil {
			got = figures{}
		}
		if got != tt.want || (err != nil) != (tt.want == figures{}) {
			t.Errorf("%s: got %+v (%v), want %+v", tt.name, got, err, tt.want)
		}
	}
}

func TestRow(t *testing.T) {
	var r result
	for i := range 7 {
		r.runs[0] = append(r.runs[0], figures{value: float64(10 + i)})
		r.runs[1] = append(r.runs[1], figures{value: 10})
	}
	up, down := quantity{unit: "u", scale: 1}, quantity{unit: "u", scale: 1, lower: true}
	for _, tt := range []struct {
		c    comparison
		want []string
	}{
		{comparison{name: "a", of: up, safe: .9, moon: 1}, []string{"| 1.3 |", "1.0–1.6", "13.0, 10.0 u",
			"≥ 0.9", "| moonshot |"}},
		{comparison{name: "a", of: up, safe: .9, moon: 1.1}, []string{"| safe |"}},
		{comparison{name: "a", of: up, safe: 1.2, moon: 1.3}, []string{"| moonshot by the median only |"}},
		{comparison{name: "a", of: up, safe: 1.2, moon: 1.4}, []string{"| safe by the median only |"}},
		{comparison{name: "a", of: up, safe: 2, moon: 3}, []string{"| missed |"}},
		{comparison{name: "a", of: down, safe: 1.6, moon: 1}, []string{"≤ 1.6", "| safe |"}},
		{comparison{name: "a", of: down, safe: 1.5, moon: 1}, []string{"| safe by the median only |"}},
	} {
		for _, want := range tt.want {
			if got := r.row(tt.c); !strings.Contains(got, want) {
				t.Errorf("row %q lacks %q", got, want)
			}
		}
	}
}

func TestEverySuiteIsComplete(t *testing.T) {
	for _, s := range suites() {
		for _, c := range s.rows {
			if c.ours.engine == nil || c.theirs.engine == nil || c.of.of == nil || c.safe == 0 ||
				c.moon == 0 || c.offload == "" {
				t.Errorf("suite %s: row %+v is not complete", s.name, c)
			}
			if (c.moon < c.safe) != c.of.lower {
				t.Errorf("suite %s, %s: the moonshot %v is nearer than the safe %v", s.name, c.name, c.moon,
					c.safe)
			}
		}
	}
}
