package probe

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

var qdiscStems = [...]record.Metric{
	counter(record.ScopeNode, "bytes", "bytes", "sent by the queue"),
	counter(record.ScopeNode, "packets", "count", "sent by the queue; a GSO packet counts its segments"),
	counter(record.ScopeNode, "drops", "count", "dropped by the queue"),
	counter(record.ScopeNode, "overlimits", "count", "times the queue held back because of its rate"),
	counter(record.ScopeNode, "requeues", "count", "times the driver gave a packet back"),
	level(record.ScopeNode, "backlog_bytes", "bytes", "waiting now"),
	level(record.ScopeNode, "qlen_packets", "count", "waiting now"),
}

// qdiscLine is one queueing discipline of a dump.
type qdiscLine struct {
	index          int32
	handle, parent uint32
	noqueue        bool // counts nothing
	values         [len(qdiscStems)]float64
}

// values are a queue's counters in the order of qdiscStems.
func qdiscValues(q *kernel.Qdisc) [len(qdiscStems)]float64 {
	return [...]float64{float64(q.Bytes), float64(q.Packets), float64(q.Drops), float64(q.Overlimits),
		float64(q.Requeues), float64(q.Backlog), float64(q.Queue)}
}

// Messages of linux/rtnetlink.h, and the families of linux/netlink.h.
const (
	netlinkRoute     = 0
	netlinkNetfilter = 12

	newQdisc = 36
	getQdisc = 38
	newClass = 40
	getClass = 42
)

// parseQdiscs reads one datagram of an RTM_GETQDISC dump, appending to list; done tells that the dump has
// ended.
func parseQdiscs(b []byte, list []qdiscLine) (more []qdiscLine, done bool, err error) {
	done, err = kernel.EachMessage(b, func(kind uint16, body []byte) error {
		if kind != newQdisc {
			return nil
		}
		q, ok := kernel.ReadQdisc(body)
		if !ok {
			return kernel.ErrNetlink
		}
		list = append(list, qdiscLine{q.Index, q.Handle, q.Parent, string(q.Kind) == "noqueue",
			qdiscValues(&q)})
		return nil
	}, refusedDump)
	if err != nil {
		return nil, false, err
	}
	return list, done, nil
}

func openQdiscDump() (*dumpSocket, error) {
	return openDump(netlinkRoute, getQdisc, kernel.TrafficHeader, "queueing disciplines")
}

func refusedDump([]byte) error { return errors.New("the kernel refuses the dump") }

// label is the device for the root queue, else "device@parent" or "device@handle" in tc's spelling.
func (q qdiscLine) label(device string) string {
	switch q.parent {
	case kernel.HandleRoot:
		return device
	case kernel.HandleIngress:
		return device + "@ingress"
	}
	return device + "@" + strconv.FormatUint(uint64(q.parent>>16), 16) + ":" +
		strconv.FormatUint(uint64(q.parent&0xffff), 16)
}

func qdisc(Root) Probe {
	return entry{name: "qdisc", metrics: qdiscStems[:],
		open: openQdisc}
}

// qdiscSampler leaves out "noqueue": it counts nothing, so its zeros are not measurements.
type qdiscSampler struct {
	s       *dumpSocket
	now     []qdiscLine
	known   []qdiscLine // what the columns describe
	columns []string
}

func (s *qdiscSampler) Columns() []string { return s.columns }

// Empty is why there may be no column.
func (s *qdiscSampler) Empty() string {
	return "no device has a queueing discipline that counts (all are noqueue)"
}

func (s *qdiscSampler) Sample(dst []float64) error {
	if err := s.read(); err != nil {
		return err
	}
	if len(s.now) != len(s.known) {
		s.describe()
		return ErrColumns
	}
	at := 0
	for i := range s.now {
		q, k := &s.now[i], &s.known[i]
		if q.index != k.index || q.parent != k.parent || q.handle != k.handle || q.noqueue != k.noqueue {
			s.describe()
			return ErrColumns
		}
		if q.noqueue {
			continue
		}
		for _, v := range q.values {
			dst[at] = v
			at++
		}
	}
	return nil
}

func openQdisc() (Sampler, error) {
	socket, err := openQdiscDump()
	if err != nil {
		return nil, err
	}
	s := &qdiscSampler{s: socket}
	if err := s.read(); err != nil {
		s.Close()
		return nil, err
	}
	s.describe()
	return s, nil
}

// read dumps all queueing disciplines of this network namespace.
func (s *qdiscSampler) read() error {
	if err := s.s.ask(); err != nil {
		return err
	}
	for list := s.now[:0]; ; {
		b, err := s.s.next()
		if err != nil {
			return err
		}
		var done bool
		if list, done, err = parseQdiscs(b, list); err != nil {
			return fmt.Errorf("read queueing disciplines: %w", err)
		}
		if done {
			s.now = list
			return nil
		}
	}
}

func (s *qdiscSampler) describe() {
	s.known, s.columns = append([]qdiscLine(nil), s.now...), nil
	for _, q := range s.known {
		if q.noqueue {
			continue
		}
		label := q.label(deviceName(int(q.index)))
		for _, m := range qdiscStems {
			s.columns = append(s.columns, label+"/"+m.Name)
		}
	}
}

func (s *qdiscSampler) Close() error { return s.s.Close() }
