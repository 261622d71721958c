package probe

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
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
		{"root", "tbf", qdiscLine{
			index:  3,
			kind:   "tbf",
			handle: 0x80010000,
			parent: qdisc.HandleRoot,
			values: [7]float64{1 << 40,
				9, 8, 7, 6, 5, 4},
		}, "wan"},
		{"64-bit packets", "pfifo", qdiscLine{
			index:  3,
			kind:   "pfifo",
			handle: 0x10000,
			parent: 0x10010,
			values: [7]float64{1, 1 << 33, 0, 0, 0, 0, 0},
		}, "wan@1:10"},
		{"noqueue", "noqueue", qdiscLine{index: 1, kind: "noqueue", parent: qdisc.HandleRoot}, "wan"},
		{"ingress", "ingress", qdiscLine{index: 1, kind: "ingress", handle: 0xffff0000, parent: qdisc.HandleIngress},
			"wan@ingress"},
	}
	for _, tt := range tests {
		var s qdiscSampler
		done, err := kernel.EachMessage(dumpOf(tt.line, tt.kind), s.take)
		d := cmp.Diff(s.now, []qdiscLine{tt.line}, cmp.AllowUnexported(qdiscLine{}))
		if d != "" ||
			err != nil || !done {
			t.Errorf("%s: done %v, error %v (-got +want):\n%s", tt.name, done, err, d)
		}

		got := tt.line.label("wan")
		if got != tt.label {
			t.Errorf("%s: label: got %q, want %q", tt.name, got, tt.label)
		}
	}
}

func generationAnswer() []byte {
	return message(newGeneration, append(make([]byte, nfHeader), attr(generationID, []byte{0, 0, 1, 2})...))
}

// takers read what a dump holds, by the kind of its messages.
func takers() map[uint16]func(kind uint16, body []byte) error {
	return map[uint16]func(uint16, []byte) error{newQdisc: new(qdiscSampler).take,
		newClass: new(queuesSampler).take, newFlow: new(flowCount).take, newRule: new(ruleCount).take,
		newGeneration: func(kind uint16, body []byte) error {
			_, err := generation(kind, body)
			return err
		}}
}

func TestDamagedDumps(t *testing.T) {
	whole := map[uint16][]byte{newQdisc: dumpOf(qdiscLine{index: 3}, "tbf"),
		newClass: queueDump(newClass, "htb", numbers(1, 2)), newFlow: flowDump(1),
		newRule: message(newRule, make([]byte, nfHeader)), newGeneration: generationAnswer()}
	for kind, take := range takers() {
		for _, bad := range [][]byte{whole[kind][:10], whole[kind][:18], whole[kind][:len(whole[kind])-1],
			message(nlmsgError, make([]byte, 4)), message(nlmsgError, nil)} {
			if done, err := kernel.EachMessage(bad, take); err == nil || done {
				t.Errorf("%#x: %x: got done %v and no error", kind, bad, done)
			}
		}

		if kind == newRule { // which only counts
			continue
		}

		if err := take(kind, nil); err == nil {
			t.Errorf("%#x without a body: got no error", kind)
		}
	}
}

func FuzzDumps(f *testing.F) {
	f.Add(dumpOf(qdiscLine{
		index:  3,
		handle: 0x10000,
		parent: qdisc.HandleRoot,
		values: [7]float64{1, 2, 3,
			4, 5, 6, 7},
	}, "tbf"))
	f.Add(queueDump(newQdisc, "fq_codel", make([]byte, 40)))
	f.Add(queueDump(newQdisc, "cake", attr(cakeTins, attr(1, attr(2, make([]byte, 4))))))
	f.Add(queueDump(newClass, "htb", make([]byte, 20)))
	f.Add(flowDump(statusOffload, statusHW, 0))
	f.Add(message(newRule, make([]byte, nfHeader)))
	f.Add(generationAnswer())
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, take := range takers() {
			if done, err := kernel.EachMessage(b, take); err != nil && done || err == nil && len(b) > 0 &&
				len(b) < kernel.NetlinkHeader {
				t.Errorf("%x: got done %v with error %v", b, done, err)
			}
		}
	})
}
