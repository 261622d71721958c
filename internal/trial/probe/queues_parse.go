package probe

import (
	"encoding/binary"
	"errors"
)

// Constants of linux/rtnetlink.h, gen_stats.h and pkt_sched.h.
const (
	newClass = 40
	getClass = 42
	statsApp = 4

	cakeMemoryUsed = 4
	cakeTins       = 10
)

// queueKey names one number of a queueing discipline or class. tin is one of CAKE's, counted from 1, or 0
// for the whole.
type queueKey struct {
	index  int32
	class  bool
	id     uint32 // a class' own, a queueing discipline's parent
	tin    int
	metric int // in queuesMetrics
}

type queueValue struct {
	key   queueKey
	value float64
}

// queueField is where a number stands: as attribute of CAKE, or as byte in the structure of the others.
type queueField struct {
	at     int
	metric string
	scale  float64
}

// fqCodelFields are those of struct tc_fq_codel_qd_stats, after its type.
var fqCodelFields = [...]queueField{
	{8, "overlimit_drops", 1}, {12, "ecn_marks", 1}, {16, "new_flows", 1}, {20, "flows_new", 1},
	{24, "flows_old", 1},
	{28, "ce_marks", 1}, {32, "memory_bytes", 1}, {36, "overmemory_drops", 1},
}

// htbFields are those of struct tc_htb_xstats.
var htbFields = [...]queueField{{0, "lends", 1}, {4, "borrows", 1}, {8, "giants", 1}}

// cakeTinFields are the attributes TCA_CAKE_TIN_STATS_*.
var cakeTinFields = [...]queueField{
	{2, "packets", 1}, {3, "bytes", 1}, {4, "drops", 1}, {6, "ack_drops", 1}, {8, "ecn_marks", 1},
	{10, "qlen_packets", 1}, {11, "backlog_bytes", 1}, {18, "peak_delay_ns", 1e3}, {19, "average_delay_ns",
		1e3},
	{21, "flows_new", 1}, {22, "flows_old", 1}, {23, "flows_unresponsive", 1},
}

var errQueues = errors.New("parse details of queues: malformed netlink answer")

// parseQueues reads one datagram of a dump of queueing disciplines or of classes, appending to list, and to
// shaped the devices that have classes.
func parseQueues(b []byte, list []queueValue, shaped []int32) (more []queueValue, with []int32, done bool,
	err error) {
	for len(b) > 0 {
		if len(b) < nlHeader {
			return nil, nil, false, errQueues
		}
		size := binary.NativeEndian.Uint32(b)
		if size < nlHeader || uint64(size) > uint64(len(b)) {
			return nil, nil, false, errQueues
		}
		kind, body := binary.NativeEndian.Uint16(b[4:]), b[nlHeader:size]
		switch kind {
		case nlmsgDone:
			return list, shaped, true, nil
		case nlmsgError:
			return nil, nil, false, errors.New("read details of queues: the kernel refuses the dump")
		case newQdisc, newClass:
			var htb, ok bool
			if list, htb, ok = parseQueue(body, kind == newClass, list); !ok {
				return nil, nil, false, errQueues
			}
			if htb {
				shaped = append(shaped, int32(binary.NativeEndian.Uint32(body[4:])))
			}
		}
		b = b[min(int(size+3)&^3, len(b)):]
	}
	return list, shaped, false, nil
}

// parseQueue reads one queueing discipline or class.
func parseQueue(b []byte, class bool, list []queueValue) (more []queueValue, htb, ok bool) {
	if len(b) < tcHeader {
		return list, false, false
	}
	k := queueKey{index: int32(binary.NativeEndian.Uint32(b[4:])), class: class,
		id: binary.NativeEndian.Uint32(b[12:])}
	if class {
		k.id = binary.NativeEndian.Uint32(b[8:])
	}
	kind, stats := "", []byte(nil)
	ok = eachAttribute(b[tcHeader:], func(at uint16, v []byte) bool {
		switch at {
		case tcaKind:
			kind = string(trim(v))
		case tcaStats2:
			stats = v
		}
		return true
	})
	if !ok {
		return list, false, false
	}
	ok = eachAttribute(stats, func(at uint16, v []byte) bool {
		switch {
		case at == statsApp && !class && kind == "fq_codel" && len(v) >= 4 &&
			binary.NativeEndian.Uint32(v) == 0:
			list = k.fields(list, v, fqCodelFields[:])
		case at == statsApp && !class && kind == "cake":
			var fine bool
			list, fine = k.cake(list, v)
			return fine
		case at == statsApp && class && kind == "htb":
			list = k.fields(list, v, htbFields[:])
		}
		return true
	})
	if class && kind == "htb" && ok {
		var q qdiscLine
		if !q.addStats(stats) {
			return list, false, false
		}
		for i, m := range qdiscStems {
			list = k.add(list, m.Name, float64(q.values[i]))
		}
	}
	return list, !class && kind == "htb", ok
}

// eachAttribute walks netlink attributes until do says no, or they are broken.
func eachAttribute(b []byte, do func(kind uint16, v []byte) bool) bool {
	for len(b) >= attrHeader {
		kind, v, rest, ok := attribute(b)
		if !ok || !do(kind, v) {
			return false
		}
		b = rest
	}
	return true
}

func (k queueKey) add(list []queueValue, metric string, v float64) []queueValue {
	k.metric = queuesMetric(metric)
	return append(list, queueValue{k, v})
}

// fields reads numbers of 32 bits out of a structure; old kernels' are shorter.
func (k queueKey) fields(list []queueValue, b []byte, fields []queueField) []queueValue {
	for _, f := range fields {
		if f.at+4 <= len(b) {
			list = k.add(list, f.metric, float64(binary.NativeEndian.Uint32(b[f.at:]))*f.scale)
		}
	}
	return list
}

func (k queueKey) cake(list []queueValue, b []byte) ([]queueValue, bool) {
	ok := eachAttribute(b, func(kind uint16, v []byte) bool {
		switch {
		case kind == cakeMemoryUsed && len(v) >= 4:
			list = k.add(list, "memory_bytes", float64(binary.NativeEndian.Uint32(v)))
		case kind == cakeTins:
			tin := k
			return eachAttribute(v, func(_ uint16, v []byte) bool {
				tin.tin++
				var fine bool
				list, fine = tin.cakeTin(list, v)
				return fine
			})
		}
		return true
	})
	return list, ok
}

func (k queueKey) cakeTin(list []queueValue, b []byte) ([]queueValue, bool) {
	ok := eachAttribute(b, func(kind uint16, v []byte) bool {
		for _, f := range cakeTinFields {
			switch {
			case int(kind) != f.at:
			case len(v) >= 8:
				list = k.add(list, f.metric, float64(binary.NativeEndian.Uint64(v))*f.scale)
			case len(v) >= 4:
				list = k.add(list, f.metric, float64(binary.NativeEndian.Uint32(v))*f.scale)
			}
		}
		return true
	})
	return list, ok
}
