package probe

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/qdisc"
)

// Constants of linux/netlink.h, rtnetlink.h and gen_stats.h.
const (
	nlHeader, tcHeader, attrHeader = 16, 20, 4
	nlmsgError, nlmsgDone          = 2, 3
	tcaKind, tcaStats2             = 1, 7
	statsBasic, statsQueue         = 1, 3
	statsApp, statsPkt64           = 4, 8
)

// attr is a netlink attribute, padded.
func attr(kind uint16, v []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(attrHeader+len(v)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), v...)
	return append(b, make([]byte, -len(b)&3)...)
}

// dumpOf builds one answer of the kernel as linux/rtnetlink.h lays it out.
func dumpOf(q qdiscLine, kind string) []byte {
	basic := binary.NativeEndian.AppendUint64(nil, uint64(q.values[0]))
	basic = binary.NativeEndian.AppendUint32(basic, uint32(uint64(q.values[1])))
	var queue []byte
	for _, i := range []int{6, 5, 2, 4, 3} { // qlen, backlog, drops, requeues, overlimits
		queue = binary.NativeEndian.AppendUint32(queue, uint32(q.values[i]))
	}
	stats := append(attr(statsBasic, basic), attr(statsQueue, queue)...)
	if q.values[1] > math.MaxUint32 {
		stats = append(stats, attr(statsPkt64, binary.NativeEndian.AppendUint64(nil, uint64(q.values[1])))...)
	}
	body := make([]byte, tcHeader)
	binary.NativeEndian.PutUint32(body[4:], uint32(q.index))
	binary.NativeEndian.PutUint32(body[8:], q.handle)
	binary.NativeEndian.PutUint32(body[12:], q.parent)
	body = append(body, attr(tcaKind, append([]byte(kind), 0))...)
	body = append(body, attr(tcaStats2|0x8000, stats)...)
	return append(message(newQdisc, body), message(nlmsgDone, make([]byte, 4))...)
}

func message(kind uint16, body []byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(nlHeader+len(body)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	return append(append(b, make([]byte, nlHeader-6)...), body...)
}

func TestParseQdiscs(t *testing.T) {
	tests := []struct {
		name  string
		kind  string
		line  qdiscLine
		label string
	}{
		{"root", "tbf", qdiscLine{index: 3, kind: "tbf", handle: 0x80010000, parent: qdisc.HandleRoot,
			values: [7]float64{1 << 40,
				9, 8, 7, 6, 5, 4}}, "wan"},
		{"64-bit packets", "pfifo", qdiscLine{index: 3, kind: "pfifo", handle: 0x10000, parent: 0x10010,
			values: [7]float64{1, 1 << 33, 0, 0, 0, 0, 0}}, "wan@1:10"},
		{"noqueue", "noqueue", qdiscLine{index: 1, kind: "noqueue", parent: qdisc.HandleRoot, noqueue: true}, "wan"},
		{"ingress", "ingress", qdiscLine{index: 1, kind: "ingress", handle: 0xffff0000, parent: qdisc.HandleIngress},
			"wan@ingress"},
	}
	for _, tt := range tests {
		got, done, err := parseQdiscs(dumpOf(tt.line, tt.kind), nil)
		if d := cmp.Diff(got, []qdiscLine{tt.line}, cmp.AllowUnexported(qdiscLine{})); d != "" ||
			err != nil || !done {
			t.Errorf("%s: done %v, error %v (-got +want):\n%s", tt.name, done, err, d)
		}
		if got := tt.line.label("wan"); got != tt.label {
			t.Errorf("%s: label: got %q, want %q", tt.name, got, tt.label)
		}
	}
	whole := dumpOf(tests[0].line, "tbf")
	for _, bad := range [][]byte{whole[:10], whole[:40], message(nlmsgError, make([]byte, 4)),
		message(newQdisc, nil)} {
		if got, done, err := parseQdiscs(bad, nil); err == nil || got != nil || done {
			t.Errorf("%x: got %v %v and no error", bad, got, done)
		}
	}
}
