package probe

import (
	"errors"
	"slices"
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// queuesMetrics are what queues tells; those of the same names as the probe qdisc's mean the same, of a
// class or of a tin.
var queuesMetrics = append(qdiscStems[:len(qdiscStems):len(qdiscStems)],
	counter(record.ScopeNode, "lends", "count", "times an htb class sent at its own rate"),
	counter(record.ScopeNode, "borrows", "count", "times an htb class sent at its parent's rate"),
	counter(record.ScopeNode, "giants", "count", "packets larger than an htb class reckons with"),
	counter(record.ScopeNode, "overlimit_drops", "count",
		"times fq_codel dropped because its limit of packets was reached"),
	counter(record.ScopeNode, "overmemory_drops", "count",
		"times fq_codel dropped because its memory was full"),
	counter(record.ScopeNode, "ecn_marks", "count", "packets marked (ECN) in the place of a drop"),
	counter(record.ScopeNode, "ce_marks", "count", "packets marked by fq_codel above its ce_threshold"),
	counter(record.ScopeNode, "new_flows", "count", "times a packet made a new flow of fq_codel"),
	counter(record.ScopeNode, "ack_drops", "count", "acknowledgements that CAKE filtered out"),
	level(record.ScopeNode, "flows_new", "count", "new flows of fq_codel, or sparse ones of CAKE, now"),
	level(record.ScopeNode, "flows_old", "count", "old flows of fq_codel, or bulk ones of CAKE, now"),
	level(record.ScopeNode, "flows_unresponsive", "count", "flows that CAKE takes as unresponsive, now"),
	level(record.ScopeNode, "memory_bytes", "bytes", "memory that the waiting packets take up"),
	level(record.ScopeNode, "peak_delay_ns", "ns", "CAKE's peak of the time that packets waited"),
	level(record.ScopeNode, "average_delay_ns", "ns", "CAKE's mean of the time that packets waited"),
)

// queuesMetric is the place of a metric by its name.
func queuesMetric(name string) int {
	for i := range queuesMetrics {
		if queuesMetrics[i].Name == name {
			return i
		}
	}
	return -1
}

// queues reads what only some queues have: the classes of htb, the flows and marks of fq_codel, the tins of
// CAKE.
func queues(Root) Probe {
	return entry{name: "queues", slow: true, metrics: queuesMetrics, open: openQueues}
}

type queuesSampler struct {
	qdiscs, classes *dumpSocket
	now             []queueValue
	known           []queueKey
	columns         []string
}

func openQueues() (Sampler, error) {
	s := &queuesSampler{}
	var err error
	if s.qdiscs, err = openQdiscDump(); err != nil {
		return nil, err
	}
	if s.classes, err = openDump(netlinkRoute, getClass, kernel.TrafficHeader,
		"classes of queues"); err == nil {
		err = s.read()
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	s.describe()
	return s, nil
}

func (s *queuesSampler) Columns() []string { return s.columns }

// Empty is why there may be no column.
func (*queuesSampler) Empty() string { return "no device has an htb, fq_codel or cake queue" }

func (s *queuesSampler) Sample(dst []float64) error {
	if err := s.read(); err != nil {
		return err
	}
	same := func(v queueValue, k queueKey) bool { return v.key == k }
	if !slices.EqualFunc(s.now, s.known, same) {
		s.describe()
		return ErrColumns
	}
	for i, v := range s.now {
		dst[i] = v.value
	}
	return nil
}

// read dumps the queueing disciplines, and the classes where there are some.
func (s *queuesSampler) read() error {
	list, shaped, err := dumpQueues(s.qdiscs, s.now[:0], nil)
	for _, index := range shaped {
		if err != nil {
			return err
		}
		s.classes.of(index)
		list, _, err = dumpQueues(s.classes, list, nil)
	}
	if err == nil {
		s.now = list
	}
	return err
}

func dumpQueues(socket *dumpSocket, list []queueValue, shaped []int32) ([]queueValue, []int32, error) {
	if err := socket.ask(); err != nil {
		return nil, nil, err
	}
	for {
		b, err := socket.next()
		if err != nil {
			return nil, nil, err
		}
		var done bool
		if list, shaped, done, err = parseQueues(b, list, shaped); err != nil || done {
			return list, shaped, err
		}
	}
}

func (s *queuesSampler) describe() {
	s.known, s.columns = nil, nil
	for _, v := range s.now {
		k := v.key
		label := deviceName(int(k.index))
		if q := (qdiscLine{parent: k.id}); k.class || k.id != kernel.HandleRoot {
			label = q.label(label)
		}
		if k.tin > 0 {
			label += ".tin" + strconv.Itoa(k.tin)
		}
		s.known = append(s.known, k)
		s.columns = append(s.columns, label+"/"+queuesMetrics[k.metric].Name)
	}
}

func (s *queuesSampler) Close() error {
	err := s.qdiscs.Close()
	if s.classes != nil {
		err = errors.Join(err, s.classes.Close())
	}
	return err
}
