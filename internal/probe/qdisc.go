package probe

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/qdisc"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

var qdiscStems = [...]record.Metric{
	counter("bytes", "bytes", "bytes sent by the queue"),
	counter("packets", "count", "packets sent by the queue; each segment of a GSO packet counts"),
	counter("drops", "count", "packets dropped by the queue"),
	counter("overlimits", "count", "times that the queue's rate limit held packets back"),
	counter("requeues", "count", "times that the driver did not accept a packet and it was queued again"),
	level("backlog_bytes", "bytes", "bytes waiting now"),
	level("qlen_packets", "count", "packets waiting now"),
}

// qdiscLine holds one qdisc of a dump.
type qdiscLine struct {
	index          int32
	handle, parent uint32
	kind           string
	values         [len(qdiscStems)]float64
}

// qdiscValues returns the counters of a qdisc or class in the order of qdiscStems.
func qdiscValues(q *kernel.Qdisc) [len(qdiscStems)]float64 {
	return [...]float64{float64(q.Bytes), float64(q.Packets), float64(q.Drops), float64(q.Overlimits),
		float64(q.Requeues), float64(q.Backlog), float64(q.Queue)}
}

// Message types from linux/rtnetlink.h, and families from linux/netlink.h.
const (
	netlinkRoute     = 0
	netlinkNetfilter = 12

	newQdisc = 36
	getQdisc = 38
	newClass = 40
	getClass = 42
)

// qdiscKinds lists the kinds of qdiscs that the probe distinguishes, because the meaning of a drop depends on
// the kind of the qdisc.
var qdiscKinds = strings.Fields(`
	noqueue pfifo_fast pfifo bfifo tbf htb hfsc cake fq_codel codel fq fq_pie pie red sfq mq netem
	ingress clsact
`)

// qdiscKind returns a kind as qdiscKinds has it, or "other". It does not allocate.
func qdiscKind(name []byte) string {
	for _, kind := range qdiscKinds {
		if string(name) == kind {
			return kind
		}
	}
	return "other"
}

// label returns the device's name for a root qdisc, and "device@parent" for other qdiscs, with the parent
// in tc's notation.
func (q qdiscLine) label(device string) string {
	switch q.parent {
	case qdisc.HandleRoot:
		return device
	case qdisc.HandleIngress:
		return device + "@ingress"
	}
	return fmt.Sprintf("%s@%x:%x", device, q.parent>>16, q.parent&0xffff)
}

func deviceName(index int32) string {
	if dev, err := net.InterfaceByIndex(int(index)); err == nil {
		return dev.Name
	}
	return "if" + strconv.Itoa(int(index))
}

func qdiscs(Root) Probe {
	return Probe{
		Name:  "qdisc",
		Scope: record.ScopeNode,
		Stems: qdiscStems[:],
		Empty: "no device has a queueing discipline that counts (all are noqueue)",
		Source: func(Options) (Sampler, error) {
			socket, err := openDump(netlinkRoute, getQdisc, kernel.TrafficHeader, qdiscDump)
			return &qdiscSampler{socket: socket}, err
		},
	}
}

const qdiscDump = "queueing disciplines"

// noqueue has no counters, so its zeros are not measurements.
const noqueue = "noqueue"

// qdiscSampler samples all qdiscs except noqueue.
type qdiscSampler struct {
	columns
	socket *dumpSocket
	now    []qdiscLine
	known  []qdiscLine // qdiscs in the order of their columns
}

func (s *qdiscSampler) Sample(dst []float64) error {
	s.now = s.now[:0]
	if err := s.socket.dump(s.take); err != nil {
		return err
	}

	if !slices.EqualFunc(s.now, s.known, func(q, k qdiscLine) bool {
		return q.index == k.index && q.parent == k.parent && q.handle == k.handle && q.kind == k.kind
	}) {
		s.known = slices.Clone(s.now)
		s.columns = nil
		for _, q := range s.known {
			if q.kind != noqueue {
				label := q.label(deviceName(q.index))
				s.add(label, qdiscStems[:])
				s.columns = append(s.columns, label+"/kind_"+q.kind)
			}
		}

		return ErrColumns
	}

	at := 0
	for i := range s.now {
		q := &s.now[i]
		if q.kind != noqueue {
			at += copy(dst[at:], q.values[:])
			dst[at] = 1
			at++
		}
	}

	return nil
}

// Declared declares a column for each kind of qdisc.
func (s *qdiscSampler) Declared() []record.Metric {
	var out []record.Metric
	for _, kind := range append(slices.Clone(qdiscKinds), "other") {
		out = append(out, level("kind_"+kind, "count", "1: the queue is of this kind"))
	}
	return scoped(record.ScopeNode, out)
}

// take parses one message of a dump of qdiscs.
func (s *qdiscSampler) take(kind uint16, body []byte) error {
	if kind != newQdisc {
		return nil
	}

	q, ok := kernel.ReadQdisc(body)
	if !ok {
		return kernel.ErrNetlink
	}

	s.now = append(s.now, qdiscLine{q.Index, q.Handle, q.Parent, qdiscKind(q.Kind), qdiscValues(&q)})
	return nil
}

func (s *qdiscSampler) Close() error { return s.socket.Close() }
