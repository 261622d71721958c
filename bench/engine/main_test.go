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
		{comparison{name: "a", of: up, target: .9, stretch: 1}, []string{"| 1.3 |", "1.0–1.6", "13.0, 10.0 u",
			"≥ 0.9", "| stretch |"}},
		{comparison{name: "a", of: up, target: .9, stretch: 1.1}, []string{"| target |"}},
		{comparison{name: "a", of: up, target: 1.2, stretch: 1.3},
			[]string{"| stretch by the median only |"}},
		{comparison{name: "a", of: up, target: 1.2, stretch: 1.4}, []string{"| target by the median only |"}},
		{comparison{name: "a", of: up, target: 2, stretch: 3}, []string{"| missed |"}},
		{comparison{name: "a", of: down, target: 1.6, stretch: 1}, []string{"≤ 1.6", "| target |"}},
		{comparison{name: "a", of: down, target: 1.5, stretch: 1}, []string{"| target by the median only |"}},
		{comparison{name: "a", of: up, within: .7}, []string{"1 ± 70 %", "| agrees |"}},
		{comparison{name: "a", of: up, within: .5}, []string{"| DISAGREES |"}},
	} {
		for _, want := range tt.want {
			if got, _ := r.row(tt.c); !strings.Contains(got, want) {
				t.Errorf("row %q lacks %q", got, want)
			}
		}
	}
}

func TestEverySuiteIsComplete(t *testing.T) {
	for _, s := range suites() {
		for _, c := range s.rows {
			if c.within > 0 {
				c.target, c.stretch = 1, 1
			}
			if c.ours.engine == nil || c.theirs.engine == nil || c.of.of == nil || c.target == 0 ||
				c.stretch == 0 || c.offload == "" {
				t.Errorf("suite %s: row %+v is not complete", s.name, c)
			}
			if c.within == 0 && (c.stretch < c.target) != c.of.lower {
				t.Errorf("suite %s, %s: the stretch %v is nearer than the target %v", s.name, c.name,
					c.stretch,
					c.target)
			}
		}
	}
}
