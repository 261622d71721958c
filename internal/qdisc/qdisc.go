// Package qdisc parses, formats and compares the levels of the queue factor: queueing disciplines (qdiscs) in
// the syntax of tc(8). It is pure; package kernel applies and reads qdiscs.
package qdisc

import (
	"maps"
	"slices"
)

// Queue describes a qdisc as configured by tc(8). Values are in base units: packets, bytes, bits per second,
// microseconds, parts per million or counts. The value of a flag is 0 or 1.
type Queue struct {
	Kind   string
	Values map[string]uint64
	Handle uint32 // 0 means that the kernel chooses it
	Parent uint32 // handle of the class that the qdisc belongs to; 0 for the root qdisc
}

// Quantity is the unit of a parameter.
type Quantity int

// Units of parameters.
const (
	Count Quantity = iota
	Packets
	Bytes
	BitsPerSecond
	Microseconds
	PartsPerMillion
	Flag // 0 or 1
	Word // index into Parameter.Words
)

// Parameter describes a parameter of a kind of qdisc. If the parameter is omitted, it has the value Default,
// unless that is 0. Without a Default, omitting the parameter is an error if Required is set; otherwise, the
// kernel chooses the value.
type Parameter struct {
	Name     string
	Quantity Quantity
	Default  uint64
	Required bool
	Words    []string

	Attribute uint16 // number in linux/pkt_sched.h, for kinds with netlink attributes
	Wide      bool   // the attribute has 64 bits
}

// Kinds lists the kinds of qdiscs that Parse accepts.
func Kinds() []string { return slices.Sorted(maps.Keys(kinds())) }

// Parameters returns the parameters of a kind of qdisc, in canonical order.
func Parameters(kind string) ([]Parameter, bool) {
	parameters, ok := kinds()[kind]
	return parameters, ok
}

// kinds returns the parameters of each kind. Attribute numbers are from linux/pkt_sched.h, and defaults are
// from the kernel's sch_*.c.
func kinds() map[string][]Parameter {
	packets := Parameter{Name: "limit", Quantity: Packets, Default: 1000}
	bytes := Parameter{Name: "limit", Quantity: Bytes, Required: true}
	rate := Parameter{Name: "rate", Quantity: BitsPerSecond, Required: true}
	burst := Parameter{Name: "burst", Quantity: Bytes}
	attribute := func(number uint16, name string, quantity Quantity, usual uint64) Parameter {
		return Parameter{Name: name, Quantity: quantity, Default: usual, Attribute: number}
	}
	return map[string][]Parameter{
		"noqueue":    nil,
		"pfifo_fast": nil,
		"mq":         nil,
		"pfifo":      {packets},
		"bfifo":      {bytes},
		"tbf":        {rate, burst, {Name: "limit", Quantity: Bytes}},
		"htb":        {rate, burst},
		"sfq": {{Name: "quantum", Quantity: Bytes}, {Name: "perturb", Quantity: Count},
			{Name: "limit", Quantity: Packets, Default: 127}},
		"netem": {packets,
			{Name: "delay", Quantity: Microseconds}, {Name: "jitter", Quantity: Microseconds},
			{Name: "loss", Quantity: PartsPerMillion}, {Name: "duplicate", Quantity: PartsPerMillion},
			{Name: "reorder", Quantity: PartsPerMillion}, {Name: "rate", Quantity: BitsPerSecond},
		},
		"codel": {
			attribute(2, "limit", Packets, 1000),
			attribute(1, "target", Microseconds, 5000),
			attribute(3, "interval", Microseconds, 100_000),
			attribute(4, "ecn", Flag, 0),
		},
		"fq_codel": {
			attribute(2, "limit", Packets, 10240),
			attribute(5, "flows", Count, 1024),
			attribute(6, "quantum", Bytes, 0),
			attribute(1, "target", Microseconds, 5000),
			attribute(3, "interval", Microseconds, 100_000),
			attribute(9, "memory_limit", Bytes, 32<<20),
			attribute(4, "ecn", Flag, 0),
		},
		"fq": {
			attribute(1, "limit", Packets, 10000),
			attribute(2, "flow_limit", Packets, 100),
			attribute(3, "quantum", Bytes, 0),
			attribute(4, "initial_quantum", Bytes, 0),
			attribute(5, "pacing", Flag, 0),
		},
		"cake": {
			{Name: "bandwidth", Quantity: BitsPerSecond, Attribute: 2, Wide: true},
			{
				Name:      "diffserv",
				Quantity:  Word,
				Attribute: 3,
				Words:     []string{"diffserv3", "diffserv4", "diffserv8", "besteffort", "precedence"},
			},
			{
				Name:      "flowmode",
				Quantity:  Word,
				Attribute: 5,
				Words: []string{"flowblind", "srchost",
					"dsthost", "hosts", "flows", "dual-srchost", "dual-dsthost", "triple-isolate"},
			},
			attribute(7, "rtt", Microseconds, 100_000),
			attribute(10, "memlimit", Bytes, 0),
			attribute(11, "nat", Flag, 0),
			attribute(13, "wash", Flag, 0),
			attribute(15, "ingress", Flag, 0),
			attribute(16, "ack-filter", Flag, 0),
			attribute(17, "split-gso", Flag, 0),
			// overhead is the length that the link adds to the IP packet, for example on DSL. A packet
			// shorter than mpu counts as mpu bytes.
			attribute(CakeOverhead, "overhead", Count, 0),
			attribute(14, "mpu", Count, 0),
			{Name: "cells", Quantity: Word, Attribute: 4, Words: []string{"noatm", "atm", "ptm"}},
		},
	}
}

// CakeOverhead is the number of CAKE's attribute for the overhead.
const CakeOverhead = 6

// RateBps returns the rate limit of the qdisc in bit/s, or 0 if it has none.
func (q Queue) RateBps() float64 { return float64(max(q.Values["rate"], q.Values["bandwidth"])) }

// Word returns the value of a parameter of quantity Word, or "" if it is not set.
func (q Queue) Word(parameter string) string {
	all, _ := Parameters(q.Kind)
	for _, p := range all {
		v, given := q.Values[parameter]
		if p.Name == parameter && given && v < uint64(len(p.Words)) {
			return p.Words[v]
		}
	}
	return ""
}

// With returns a copy of the qdisc with another value of a parameter.
func (q Queue) With(parameter string, value uint64) Queue {
	q.Values = maps.Clone(q.Values)
	q.Values[parameter] = value
	return q
}

// DefaultLeaf is the kind of the qdisc that the kernel attaches to a class by default. The kernel does not
// list it.
const DefaultLeaf = "default"

// Room returns the burst in bytes, and the limits of the queue in bytes and in packets. A value is 0 if
// the qdisc does not set it.
func (q Queue) Room() (burst, limitBytes, limitPackets uint64) {
	parameters, _ := Parameters(q.Kind)
	for _, p := range parameters {
		switch {
		case p.Name == "limit" && p.Quantity == Bytes, p.Name == "memlimit":
			limitBytes = q.Values[p.Name]
		case p.Name == "limit":
			limitPackets = q.Values[p.Name]
		}
	}
	return q.Values["burst"], limitBytes, limitPackets
}
