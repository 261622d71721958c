package metrics

import (
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestAbsent: which metrics a cell cannot have, whatever happens there.
func TestAbsent(t *testing.T) {
	tcp := factor.Cell{"protocol": "tcp", "direction": "up"}
	udp := factor.Cell{"protocol": "udp", "direction": "both"}
	cipher := factor.Cell{"engine": "cipher", "block_size": "1420"}
	all := record.Design{Procedure: record.Procedure{
		Measure: record.Measure{LatencyIdle: "block", LatencyLoaded: true, Telemetry: true},
	}}
	search := all
	search.Method.Search = &record.Search{}
	for _, tt := range []struct {
		metric string
		design record.Design
		cell   factor.Cell
		absent bool
	}{
		{Goodput, all, tcp, false},
		{LossRatio, all, tcp, true},
		{LossRatio, all, udp, false},
		{Retransmits, all, udp, true},
		{Retransmits, all, tcp, false},
		{GoodputUp, all, tcp, true},
		{GoodputUp, all, udp, false},
		{ThroughputNDR, all, udp, true},
		{ThroughputNDR, search, udp, false},
		{RTTAdded, all, tcp, false},
		{RTTAdded, record.Design{Procedure: record.Procedure{
			Measure: record.Measure{LatencyIdle: "off", LatencyLoaded: true},
		}}, tcp, true},
		{"rtt_loaded_p99_ns", record.Design{}, tcp, true},
		{"rtt_idle_p99_ns", all, tcp, false},
		{FlowRate, all, tcp, true},
		{FlowRate, all, factor.Cell{"protocol": "tcp", "flow_size": "10000"}, false},
		{"router_busiest_core_ratio", record.Design{}, tcp, true},
		{"router_busiest_core_ratio", all, tcp, false},
		{IPsecDrops, record.Design{}, tcp, true},
		{CipherRate, all, tcp, true},
		{CipherRate, all, cipher, false},
		{CipherOps, all, cipher, true},
		{Goodput, all, cipher, true},
		{"router_busiest_core_ratio", all, cipher, false},
	} {
		why := Absent(tt.metric, tt.design, tt.cell)
		if (why != "") != tt.absent {
			t.Errorf("%s in %v: absent because %q, want %v", tt.metric, tt.cell, why, tt.absent)
		}
	}
}
