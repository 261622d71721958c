package kernel

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/qdisc"
)

// Discipline describes a queueing discipline or class in a dump. Rates are in bit/s; 0 means none.
type Discipline struct {
	Class                           bool
	Kind                            string
	Handle, Parent                  uint32
	Rate, Ceil, FlowRate            uint64
	Burst, LimitBytes, LimitPackets uint64
	Queue                           qdisc.Queue // queue that restores it; Kind is "" if there is none
	Why                             string      // reason why Queue does not restore it completely
}

// TrafficFilter describes a filter and its effect on packets that match.
type TrafficFilter struct {
	Parent       uint32
	Kind, Action string
	To           string // target device or class
	Rate         uint64 // rate of a policer in bit/s
}

// InPlace reports whether a queue of this kind can be changed in place. Such a change preserves the handle,
// the child queues, the queued packets, and the parameters that it does not include.
func InPlace(kind string) bool { return slices.Contains([]string{"tbf", "cake", "fq"}, kind) }

// Describe decodes a queueing discipline or class.
func Describe(q Qdisc, class bool) Discipline {
	d := Discipline{Class: class, Kind: string(q.Kind), Handle: q.Handle, Parent: q.Parent}
	if class {
		d.describeClass(q.Options)
		return d
	}

	v, err := decodeQueue(d.Kind, q.Options)
	if err == nil && d.Kind != "htb" {
		d.Queue = v
		err = unrestorable(q)
	}

	if err != nil {
		d.Why = err.Error()
	}

	d.Rate = max(v.Values["rate"], v.Values["bandwidth"])
	d.Burst, d.LimitBytes, d.LimitPackets = v.Room()
	if found, err := attributes(q.Options); err == nil {
		switch rate := found[fqMaxRate]; {
		case d.Kind == "fq" && len(rate) >= 4 && word(rate, 0) != unlimited:
			d.FlowRate = 8 * word(rate, 0)
		case d.Kind == "tbf": // handled here even if it has a peak rate, which decodeQueue does not support
			d.Rate = rateIn(found[1], found[4], 0)
		}
	}

	return d
}

const unlimited = 0xffffffff

// describeClass decodes the rates of an htb or hfsc class.
func (d *Discipline) describeClass(options []byte) {
	found, err := attributes(options)
	if err != nil {
		d.Why = err.Error()
		return
	}

	switch d.Kind {
	case "htb": // attributes 1 PARMS (struct tc_htb_opt: rate, ceil, buffer …), 6 RATE64, 7 CEIL64
		d.Rate, d.Ceil = rateIn(found[1], found[6], 0), rateIn(found[1], found[7], 3)
		if len(found[1]) >= 28 {
			d.Burst = ticksToBytes(uint32(word(found[1], 6)), d.Rate/8)
		}
	case "hfsc": // attributes 1 RSC, 2 FSC, 3 USC: struct tc_service_curve (m1, d, m2; bytes per second)
		curve := func(at uint16) uint64 {
			c := found[at]
			if len(c) >= 12 {
				return 8 * max(word(c, 0), word(c, 2))
			}
			return 0
		}
		d.Rate, d.Ceil = max(curve(1), curve(2)), curve(3)
	case "drr", "ets", "qfq": // these kinds enforce no rate
	default:
		d.Why = fmt.Sprintf("classes of queue kind %s are not read", d.Kind)
	}
}

// rateIn returns, in bit/s, the rate in the struct tc_ratespec that starts at the given word of params. A
// 64-bit attribute in wide overrides this rate.
func rateIn(params, wide []byte, words int) uint64 {
	switch {
	case len(wide) >= 8:
		return 8 * binary.NativeEndian.Uint64(wide)
	case len(params) >= 4*(words+3):
		return 8 * word(params, words+2)
	}
	return 0
}

// fqMaxRate is an attribute of linux/pkt_sched.h for which package qdisc has no parameter.
const fqMaxRate = 7

// ordinary contains the default values of attributes that package qdisc does not support, by kind and
// attribute. An attribute whose value is nil is present only if the owner has set it.
var ordinary = map[string]map[uint16][]uint64{
	"fq": {fqMaxRate: {unlimited}, 8: {10}, 9: {40_000}, 10: {1023}, 13: {10_000}, 14: {10_000_000},
		15: {1}},
	"fq_codel": {7: nil, 8: {64}, 10: nil, 11: nil},
	"codel":    {5: nil},
	"cake":     {9: {0}, 18: {0}},
	"netem":    {5: nil, 7: nil, 12: nil},
}

// unrestorable returns an error if q has options that package qdisc cannot restore.
func unrestorable(q Qdisc) error {
	kind := string(q.Kind)
	if q.Stab {
		return fmt.Errorf("queue kind %s: %w: it has a size table, which could not be restored", kind,
			ErrUnsupported)
	}

	options := q.Options
	if kind == "netem" {
		options = options[min(24, len(options)):]
	}

	others := ordinary[kind]
	if others == nil {
		return nil
	}

	found, err := attributes(options)
	if err != nil {
		return err
	}

	for at, usual := range others {
		raw, there := found[at]
		var v uint64
		switch {
		case !there:
			continue
		case len(raw) >= 4:
			v = word(raw, 0)
		case len(raw) >= 1:
			v = uint64(raw[0])
		}

		if !slices.Contains(usual, v) {
			return fmt.Errorf("queue kind %s: %w: its owner has set what could not be restored "+
				"(attribute %d)", kind, ErrUnsupported, at)
		}
	}

	return nil
}

// Standing returns the queue that want would replace, which is the root queue or the queue of want's class,
// so that it can be restored. all holds the queues and classes of the device. filtered reports whether a
// queue has filters. Standing returns an error that states what could not be restored, unless setting want
// would leave that unchanged.
func Standing(all []Discipline, filtered func(handle uint32) bool, want qdisc.Queue) (q qdisc.Queue,
	err error) {
	parent := cmp.Or(want.Parent, uint32(qdisc.HandleRoot))
	i := slices.IndexFunc(all, func(d Discipline) bool { return !d.Class && d.Parent == parent })
	withLeaf := slices.ContainsFunc(all, func(d Discipline) bool {
		return d.Class && d.Handle == parent && slices.Contains([]string{"htb", "hfsc"}, d.Kind)
	})
	switch {
	case i < 0 && want.Parent == 0: // a device that is down may have none, and gets the default later
		return qdisc.Queue{Kind: "noqueue", Values: map[string]uint64{}}, nil
	case i < 0 && withLeaf:
		return qdisc.Queue{Kind: qdisc.DefaultLeaf, Parent: parent}, nil
	case i < 0:
		return q, fmt.Errorf("it has no class %s with a queue of its own",
			qdisc.HandleText(parent))
	}

	d := all[i]
	inPlace := d.Kind == want.Kind && InPlace(d.Kind)
	why := d.Why
	if inPlace && d.Queue.Kind != "" {
		why = ""
	}

	for _, o := range all {
		below := d.Handle != 0 && o.Handle != 0 && o.Handle != d.Handle && o.Parent>>16 == d.Handle>>16
		// The limit of a tbf is the limit of its child FIFO, which has a handle only if the owner has
		// replaced it.
		if below && !o.Class && (!inPlace || strings.HasSuffix(o.Kind, "fifo")) {
			why = "the " + o.Kind + " below it"
		}
	}

	if d.Handle != 0 && !inPlace && filtered(d.Handle) {
		why = "its filters"
	}

	if why != "" || d.Queue.Kind == "" {
		return q, fmt.Errorf("queue %s has what could not be restored: %s", d.Kind,
			cmp.Or(why, "its classes"))
	}

	q = d.Queue
	q.Handle = d.Handle
	q.Parent = want.Parent
	return q, nil
}

// ownHTB reports whether a queue is an htb with a single class, as created by SetRootQueue.
func ownHTB(q Qdisc, classes []Qdisc) bool {
	if string(q.Kind) != "htb" || q.Handle != rootHandle || len(classes) != 1 {
		return false
	}

	c := Describe(classes[0], true)
	found, err := attributes(q.Options)
	return err == nil && c.Handle == rootHandle|htbDefault && c.Rate == c.Ceil && len(found[2]) >= 12 &&
		word(found[2], 1) == 10 && word(found[2], 2) == htbDefault
}

// rootHandle is the handle "1:" of our root queue. The handle is fixed, because the classes of some kinds
// refer to it.
const rootHandle = 1 << 16

// filterAttributes contains, by kind of filter, the numbers of the attributes in linux/pkt_cls.h that contain
// the actions, the class, and the old-style policer. 0 means that the kind has no such attribute.
var filterAttributes = map[string]struct{ actions, class, policer uint16 }{
	"u32":      {7, 1, 6},
	"matchall": {2, 1, 0},
	"flower":   {3, 1, 0},
	"fw":       {4, 1, 2},
	"basic":    {3, 1, 4},
	"bpf":      {1, 3, 2},
}

// readFilter parses the body of an RTM_NEWTFILTER message. index is the device to which the filter sends
// packets, or 0 if there is none. ok is false if the message describes only a part of a filter, such as a
// hash table of u32.
func readFilter(b []byte) (f TrafficFilter, index uint32, ok bool) {
	const kindAt, optionsAt = 1, 2
	if len(b) < TrafficHeader {
		return f, 0, false
	}

	found, err := attributes(b[TrafficHeader:])
	if err != nil {
		return f, 0, false
	}

	f.Parent = binary.NativeEndian.Uint32(b[12:])
	f.Kind = string(bytes.TrimRight(found[kindAt], "\x00"))
	at, known := filterAttributes[f.Kind]
	if !known {
		f.Action = "other"
		return f, 0, true
	}

	options, err := attributes(found[optionsAt])
	if err != nil {
		return f, 0, false
	}

	class := options[at.class]
	if len(class) >= 4 {
		f.Action, f.To = "class", qdisc.HandleText(uint32(word(class, 0)))
	}

	// There is no attribute 0.
	if old, err := attributes(options[at.policer]); err == nil && len(old[policerParams]) > 0 {
		f.police(old)
	}

	EachAttribute(options[at.actions], func(_ uint16, v []byte) bool {
		index = max(index, f.readAction(v))
		return true
	})
	return f, index, f.Action != ""
}

const policerParams = 1 // TCA_POLICE_TBF

// police decodes the options of a policer. A struct tc_police starts with index, action, limit, burst and
// mtu, followed by a struct tc_ratespec.
func (f *TrafficFilter) police(options map[uint16][]byte) {
	f.Action, f.Rate = "police", rateIn(options[policerParams], options[8], 5)
}

// readAction parses an action of a filter. index is the device to which the action sends packets, or 0 if
// there is none.
func (f *TrafficFilter) readAction(b []byte) (index uint32) {
	const kindAt, optionsAt, paramsAt = 1, 2, 2
	const redirect, drop = 1, 2 // TCA_EGRESS_REDIR and TC_ACT_SHOT
	found, err := attributes(b)
	if err != nil {
		return 0
	}

	options, err := attributes(found[optionsAt])
	if err != nil {
		return 0
	}

	switch kind, params := string(bytes.TrimRight(found[kindAt], "\x00")), options[paramsAt]; {
	case kind == "mirred" && len(params) >= 28: // struct tc_mirred: five common words, action, device index
		f.Action = "mirror"
		what := word(params, 5)
		if what == redirect || what == 3 {
			f.Action = "redirect"
		}

		return uint32(word(params, 6))
	case kind == "police":
		f.police(options)
	case kind == "gact" && len(params) >= 12 && word(params, 2) == drop:
		f.Action = "drop"
	case f.Action == "" || f.Action == "class":
		f.Action = kind
	}

	return 0
}
