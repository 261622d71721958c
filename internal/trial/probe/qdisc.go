package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
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
	values         [len(qdiscStems)]uint64
}

// Constants of linux/netlink.h, rtnetlink.h, pkt_sched.h and gen_stats.h.
const (
	nlmsgError  = 2
	nlmsgDone   = 3
	newQdisc    = 36
	getQdisc    = 38
	tcaKind     = 1
	tcaStats2   = 7
	statsBasic  = 1
	statsQueue  = 3
	statsPkt64  = 8
	handleRoot  = 0xffffffff
	handleIngr  = 0xfffffff1
	nlHeader    = 16
	tcHeader    = 20
	attrHeader  = 4
	attrTypeNum = 0x3fff // without the nested and byte-order flags
)

var errQdisc = errors.New("parse queueing disciplines: malformed netlink answer")

// parseQdiscs reads one datagram of an RTM_GETQDISC dump, appending to list; done tells that the dump has
// ended. Native byte order, as netlink has. The dump is read here and not through lab/kernel because it is
// one of the five fast sources: it may not allocate.
func parseQdiscs(b []byte, list []qdiscLine) (more []qdiscLine, done bool, err error) {
	for len(b) > 0 {
		if len(b) < nlHeader {
			return nil, false, errQdisc
		}
		size := binary.NativeEndian.Uint32(b)
		if size < nlHeader || uint64(size) > uint64(len(b)) {
			return nil, false, errQdisc
		}
		body := b[nlHeader:size]
		switch binary.NativeEndian.Uint16(b[4:]) {
		case nlmsgDone:
			return list, true, nil
		case nlmsgError:
			return nil, false, errors.New("read queueing disciplines: the kernel refuses the dump")
		case newQdisc:
			q, ok := parseQdisc(body)
			if !ok {
				return nil, false, errQdisc
			}
			list = append(list, q)
		}
		b = b[min(int(size+3)&^3, len(b)):]
	}
	return list, false, nil
}

func parseQdisc(b []byte) (qdiscLine, bool) {
	if len(b) < tcHeader {
		return qdiscLine{}, false
	}
	q := qdiscLine{
		index:  int32(binary.NativeEndian.Uint32(b[4:])),
		handle: binary.NativeEndian.Uint32(b[8:]),
		parent: binary.NativeEndian.Uint32(b[12:]),
	}
	b = b[tcHeader:]
	for len(b) >= attrHeader {
		kind, v, rest, ok := attribute(b)
		if !ok {
			return qdiscLine{}, false
		}
		b = rest
		switch kind {
		case tcaKind:
			q.noqueue = string(trim(v)) == "noqueue"
		case tcaStats2:
			if !q.addStats(v) {
				return qdiscLine{}, false
			}
		}
	}
	return q, true
}

func attribute(b []byte) (kind uint16, v, rest []byte, ok bool) {
	n := int(binary.NativeEndian.Uint16(b))
	if n < attrHeader || n > len(b) {
		return 0, nil, nil, false
	}
	return binary.NativeEndian.Uint16(b[2:]) & attrTypeNum, b[attrHeader:n], b[min((n+3)&^3, len(b)):], true
}

// addStats reads gnet_stats_basic {u64 bytes, u32 packets}, gnet_stats_queue {u32 qlen, backlog, drops,
// requeues, overlimits} and the 64-bit packets of kernels from 5.5, which come after the 32-bit ones.
func (q *qdiscLine) addStats(b []byte) bool {
	for len(b) >= attrHeader {
		kind, v, rest, ok := attribute(b)
		if !ok {
			return false
		}
		b = rest
		switch {
		case kind == statsBasic && len(v) >= 12:
			q.values[0] = binary.NativeEndian.Uint64(v)
			q.values[1] = uint64(binary.NativeEndian.Uint32(v[8:]))
		case kind == statsPkt64 && len(v) >= 8:
			q.values[1] = binary.NativeEndian.Uint64(v)
		case kind == statsQueue && len(v) >= 20:
			for i, at := range [...]int{8, 16, 12, 4, 0} { // drops, overlimits, requeues, backlog, qlen
				q.values[2+i] = uint64(binary.NativeEndian.Uint32(v[at:]))
			}
		}
	}
	return true
}

// label is the device for the root queue, else "device@parent" or "device@handle" in tc's spelling.
func (q qdiscLine) label(device string) string {
	switch q.parent {
	case handleRoot:
		return device
	case handleIngr:
		return device + "@ingress"
	}
	return device + "@" + strconv.FormatUint(uint64(q.parent>>16), 16) + ":" +
		strconv.FormatUint(uint64(q.parent&0xffff), 16)
}

func qdisc(Root) Probe {
	return entry{name: "qdisc", metrics: qdiscStems[:],
		check: func(context.Context, host.Host) check.Answer {
			s, err := openQdisc()
			if err != nil {
				return errAnswer(err)
			}
			s.Close()
			return check.OK()
		},
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
			dst[at] = float64(v)
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
			return err
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
