package probe

import (
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/qdisc"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// queuesMetrics lists the columns of the queues probe. They include the columns of the qdisc probe, which
// here refer to a class or a tin.
var queuesMetrics = append(qdiscStems[:len(qdiscStems):len(qdiscStems)],
	counter("lends", "count", "times that an htb class sent at its own rate"),
	counter("borrows", "count", "times that an htb class borrowed from its parent to send"),
	counter("giants", "count", "packets larger than the htb class is configured for"),
	counter("overlimit_drops", "count", "packets that fq_codel dropped because its packet limit was reached"),
	counter("overmemory_drops", "count", "times that fq_codel dropped packets because its memory limit "+
		"was reached"),
	counter("ecn_marks", "count", "packets that were ECN-marked instead of dropped"),
	counter("ce_marks", "count", "packets that fq_codel marked because their delay exceeded its "+
		"ce_threshold"),
	counter("new_flows", "count", "times that a packet started a new flow in fq_codel"),
	counter("ack_drops", "count", "acknowledgements that CAKE filtered out"),
	level("flows_new", "count", "present number of new flows in fq_codel, or of sparse flows in CAKE"),
	level("flows_old", "count", "present number of old flows in fq_codel, or of bulk flows in CAKE"),
	level("flows_unresponsive", "count", "present number of flows that CAKE classifies as unresponsive"),
	level("memory_bytes", "bytes", "memory used by waiting packets"),
	level("peak_delay_ns", "ns", "peak queueing delay in CAKE"),
	level("average_delay_ns", "ns", "mean queueing delay in CAKE"),
)

// queues reads values that only some qdiscs have, such as the classes of htb, the flows and marks of
// fq_codel, and the tins of CAKE.
func queues(Root) Probe {
	return Probe{
		Name:  "queues",
		Scope: record.ScopeNode,
		Slow:  true,
		Stems: queuesMetrics,
		Empty: "no device has an htb, fq_codel or cake queue",
		Source: func(Options) (Sampler, error) {
			s := &queuesSampler{}
			var err error
			if s.qdiscs, err = openDump(netlinkRoute, getQdisc, kernel.TrafficHeader, qdiscDump); err == nil {
				s.classes, err = openDump(netlinkRoute, getClass, kernel.TrafficHeader, "classes of queues")
			}

			return s, err
		},
	}
}

type queuesSampler struct {
	columns
	qdiscs, classes *dumpSocket
	now             []queueValue
	shaped          []int32 // devices with classes
	known           []queueKey
}

func (s *queuesSampler) Sample(dst []float64) error {
	if err := s.read(); err != nil {
		return err
	}

	if !slices.EqualFunc(s.now, s.known, func(v queueValue, k queueKey) bool { return v.key == k }) {
		s.describe()
		return ErrColumns
	}

	for i, v := range s.now {
		dst[i] = v.value
	}

	return nil
}

// read dumps the qdiscs, and the classes of the devices that have classes.
func (s *queuesSampler) read() error {
	s.now, s.shaped = s.now[:0], s.shaped[:0]
	err := s.qdiscs.dump(s.take)
	for _, index := range s.shaped {
		if err != nil {
			return err
		}

		s.classes.of(index)
		err = s.classes.dump(s.take)
	}

	return err
}

func (s *queuesSampler) describe() {
	s.known, s.columns = nil, nil
	for _, v := range s.now {
		k := v.key
		label := deviceName(k.index)
		q := (qdiscLine{parent: k.id})
		if k.class || k.id != qdisc.HandleRoot {
			label = q.label(label)
		}

		if k.tin > 0 {
			label += ".tin" + strconv.Itoa(k.tin)
		}

		s.known = append(s.known, k)
		s.columns = append(s.columns, label+"/"+queuesMetrics[k.metric].Name)
	}
}

func (s *queuesSampler) Close() error { return errors.Join(s.qdiscs.Close(), s.classes.Close()) }

const cakeTins = 10 // TCA_CAKE_STATS_TIN_STATS from linux/pkt_sched.h

// queueKey identifies one value of a qdisc or class. tin is the number of a tin of CAKE, from 1, or 0 for
// a value of the whole qdisc.
type queueKey struct {
	index  int32
	class  bool
	id     uint32 // handle of a class, or parent of a qdisc
	tin    int
	metric int // index in queuesMetrics
}

type queueValue struct {
	key   queueKey
	value float64
}

// queueField describes the location of a value. at is the number of a CAKE attribute, or an offset in the
// statistics of other qdiscs.
type queueField struct {
	at     int
	metric int // index in queuesMetrics
	scale  float64
}

// queueFields parses a list of fields: their positions and names. Delays are counted in microseconds, as CAKE
// does.
func queueFields(list string) (fields []queueField) {
	for one := range strings.SplitSeq(list, ", ") {
		at, name, _ := strings.Cut(one, " ")
		f := queueField{scale: 1}
		f.at, _ = strconv.Atoi(at)
		f.metric = slices.IndexFunc(queuesMetrics, func(m record.Metric) bool { return m.Name == name })
		if strings.HasSuffix(name, "_delay_ns") {
			f.scale = 1e3
		}

		fields = append(fields, f)
	}
	return fields
}

// fqCodelFields describes values of a qdisc in struct tc_fq_codel_xstats. Offsets count from the start of
// this struct, so they include its type field.
var fqCodelFields = queueFields("8 overlimit_drops, 12 ecn_marks, 16 new_flows, 20 flows_new, " +
	"24 flows_old, 28 ce_marks, 32 memory_bytes, 36 overmemory_drops")

// htbFields describes the values in struct tc_htb_xstats.
var htbFields = queueFields("0 lends, 4 borrows, 8 giants")

// cakeFields lists TCA_CAKE_STATS_* attributes, and cakeTinFields lists TCA_CAKE_TIN_STATS_* attributes.
var (
	cakeFields    = queueFields("4 memory_bytes")
	cakeTinFields = queueFields("2 packets, 3 bytes, 4 drops, 6 ack_drops, 8 ecn_marks, 10 qlen_packets, " +
		"11 backlog_bytes, 18 peak_delay_ns, 19 average_delay_ns, 21 flows_new, 22 flows_old, " +
		"23 flows_unresponsive")
)

// take parses one message of a dump of qdiscs or classes.
func (s *queuesSampler) take(kind uint16, body []byte) error {
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

	switch name := string(q.Kind); {
	case name == "htb" && k.class:
		s.fields(k, q.App, htbFields)
		for i, v := range qdiscValues(&q) {
			s.add(k, i, v) // because qdiscStems come first in queuesMetrics
		}
	case name == "htb":
		s.shaped = append(s.shaped, k.index)
	case name == "fq_codel" && !k.class && len(q.App) >= 4 && binary.NativeEndian.Uint32(q.App) == 0:
		s.fields(k, q.App, fqCodelFields)
	case name == "cake" && !k.class && !s.cake(k, q.App):
		return kernel.ErrNetlink
	}

	return nil
}

func (s *queuesSampler) add(k queueKey, metric int, v float64) {
	k.metric = metric
	s.now = append(s.now, queueValue{k, v})
}

// fields reads 32-bit values from a structure. The structure is shorter on old kernels.
func (s *queuesSampler) fields(k queueKey, b []byte, fields []queueField) {
	for _, f := range fields {
		if f.at+4 <= len(b) {
			s.add(k, f.metric, float64(binary.NativeEndian.Uint32(b[f.at:]))*f.scale)
		}
	}
}

func (s *queuesSampler) cake(k queueKey, b []byte) bool {
	return kernel.EachAttribute(b, func(kind uint16, v []byte) bool {
		if kind != cakeTins {
			s.attribute(k, cakeFields, kind, v)
			return true
		}

		tin := k
		return kernel.EachAttribute(v, func(_ uint16, v []byte) bool {
			tin.tin++
			return kernel.EachAttribute(v, func(kind uint16, v []byte) bool {
				s.attribute(tin, cakeTinFields, kind, v)
				return true
			})
		})
	})
}

// attribute adds a value of 32 or 64 bits if the attribute is listed in fields.
func (s *queuesSampler) attribute(k queueKey, fields []queueField, kind uint16, v []byte) {
	i := slices.IndexFunc(fields, func(f queueField) bool { return f.at == int(kind) })
	switch {
	case i < 0:
	case len(v) >= 8:
		s.add(k, fields[i].metric, float64(binary.NativeEndian.Uint64(v))*fields[i].scale)
	case len(v) >= 4:
		s.add(k, fields[i].metric, float64(binary.NativeEndian.Uint32(v))*fields[i].scale)
	}
}
