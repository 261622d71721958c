package probe

import (
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/qdisc"
)

// queueDump is an answer with one queueing discipline or class of device 3, whose own statistics are given.
func queueDump(message16 uint16, kind string, own []byte) []byte {
	body := make([]byte, tcHeader)
	binary.NativeEndian.PutUint32(body[4:], 3)
	binary.NativeEndian.PutUint32(body[8:], 0x10010)
	binary.NativeEndian.PutUint32(body[12:], qdisc.HandleRoot)
	body = append(body, attr(tcaKind, append([]byte(kind), 0))...)
	body = append(body, attr(tcaStats2|0x8000, attr(statsApp, own))...)
	return append(message(message16, body), message(nlmsgDone, make([]byte, 4))...)
}

func numbers(v ...uint32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.NativeEndian.AppendUint32(b, x)
	}
	return b
}

func TestParseQueues(t *testing.T) {
	tin := func(n uint64) []byte {
		return append(attr(3, binary.NativeEndian.AppendUint64(nil, n)), attr(18, numbers(7))...)
	}
	tests := []struct {
		name   string
		dump   []byte
		shaped []int32
		want   map[string]float64
	}{
		{"fq_codel", queueDump(newQdisc, "fq_codel", numbers(0, 1514, 1, 2, 3, 4, 5, 6, 7, 8)), nil,
			map[string]float64{
				"overlimit_drops": 1, "ecn_marks": 2, "new_flows": 3, "flows_new": 4, "flows_old": 5,
				"ce_marks": 6, "memory_bytes": 7, "overmemory_drops": 8}},
		{"its class", queueDump(newClass, "fq_codel", numbers(1, 2, 3)), nil, map[string]float64{}},
		{"cake", queueDump(newQdisc, "cake", append(attr(4, numbers(9)),
			attr(cakeTins, append(attr(1, tin(1<<40)), attr(2, tin(5))...))...)), nil,
			map[string]float64{"memory_bytes": 9, "1 bytes": 1 << 40, "1 peak_delay_ns": 7e3, "2 bytes": 5,
				"2 peak_delay_ns": 7e3}},
		{"htb", queueDump(newQdisc, "htb", numbers(1, 2)), []int32{3}, map[string]float64{}},
		{"htb class", queueDump(newClass, "htb", numbers(11, 12, 13, 14, 15)), nil,
			map[string]float64{"lends": 11, "borrows": 12, "giants": 13,
				"bytes": 0, "packets": 0, "drops": 0, "overlimits": 0, "requeues": 0, "backlog_bytes": 0,
				"qlen_packets": 0}},
		{"pfifo", queueDump(newQdisc, "pfifo", numbers(1)), nil, map[string]float64{}},
	}
	for _, tt := range tests {
		var s queuesSampler
		done, err := kernel.EachMessage(tt.dump, s.take)
		got := map[string]float64{}
		for _, v := range s.now {
			name := queuesMetrics[v.key.metric].Name
			if v.key.tin > 0 {
				name = string(rune('0'+v.key.tin)) + " " + name
			}

			got[name] = v.value
		}

		d := cmp.Diff(tt.want, got)
		if d != "" || !done || err != nil || !cmp.Equal(s.shaped, tt.shaped) {
			t.Errorf("%s: done %v, error %v, shaped %v (-want +got):\n%s", tt.name, done, err, s.shaped, d)
		}
	}
}
