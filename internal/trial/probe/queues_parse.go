package probe

import (
	"encoding/binary"
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// Constants of linux/pkt_sched.h.
const (
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

// parseQueues reads one datagram of a dump of queueing disciplines or of classes, appending to list, and to
// shaped the devices that have classes.
func parseQueues(b []byte, list []queueValue, shaped []int32) (more []queueValue, with []int32, done bool,
	err error) {
	done, err = kernel.EachMessage(b, func(kind uint16, body []byte) error {
		if kind != newQdisc && kind != newClass {
			return nil
		}
		q, ok := kernel.ReadQdisc(body)
		if !ok {
			return kernel.ErrNetlink
		}
		k := queueKey{index: q.Index, class: kind == newClass, id: q.Parent}
		if k.class {
			k.id = q.Handle
		}
		switch string(q.Kind) {
		case "fq_codel":
			if !k.class && len(q.App) >= 4 && binary.NativeEndian.Uint32(q.App) == 0 {
				list = k.fields(list, q.App, fqCodelFields[:])
			}
		case "cake":
			if !k.class {
				list, ok = k.cake(list, q.App)
			}
		case "htb":
			if !k.class {
				shaped = append(shaped, k.index)
				break
			}
			list = k.fields(list, q.App, htbFields[:])
			for i, v := range qdiscValues(&q) {
				list = k.add(list, qdiscStems[i].Name, v)
			}
		}
		if !ok {
			return kernel.ErrNetlink
		}
		return nil
	}, refusedDump)
	if err != nil {
		return nil, nil, false, fmt.Errorf("read details of queues: %w", err)
	}
	return list, shaped, done, nil
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
	ok := kernel.EachAttribute(b, func(kind uint16, v []byte) bool {
		switch {
		case kind == cakeMemoryUsed && len(v) >= 4:
			list = k.add(list, "memory_bytes", float64(binary.NativeEndian.Uint32(v)))
		case kind == cakeTins:
			tin := k
			return kernel.EachAttribute(v, func(_ uint16, v []byte) bool {
				tin.tin++
				return kernel.EachAttribute(v, func(kind uint16, v []byte) bool {
					for _, f := range cakeTinFields {
						switch {
						case int(kind) != f.at:
						case len(v) >= 8:
							list = tin.add(list, f.metric, float64(binary.NativeEndian.Uint64(v))*f.scale)
						case len(v) >= 4:
							list = tin.add(list, f.metric, float64(binary.NativeEndian.Uint32(v))*f.scale)
						}
					}
					return true
				})
			})
		}
		return true
	})
	return list, ok
}
