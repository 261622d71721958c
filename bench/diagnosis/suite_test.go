// Package diagnosis_test measures how often a diagnosis is right. It draws labelled instances from a seed:
// what limits is planted, or known, and where; records them by the chokepoint that it is given; packs the
// trials; and scores the rules on them offline.
//
//	go test ./bench/diagnosis -timeout 0 -run TestRecord -binary FILE -keep DIR
//	go test ./bench/diagnosis -run TestPack -keep DIR
//	go test ./bench/diagnosis -v -run TestAccuracy [-half test] [-keep DIR] [-update]
//	go test ./bench/diagnosis -v -run TestFit [-update]
//
// A recording that was stopped goes on where it stopped. The rules are tuned on one half of the instances
// and quoted on the other; each look at that one is noted in testdata/test-half.log.
package diagnosis_test

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
)

// suiteSeed is that of the instances which are committed.
const suiteSeed = 19

// levels are factors of a cell with their levels.
type levels map[string]string

// truth is what limits an instance; an element or node that is not given may be any.
type truth struct {
	Node    string `json:"node,omitempty"`
	Element string `json:"element,omitempty"`
	Class   string `json:"class"`
}

// Kinds of instances.
const (
	kindFault   = "fault"   // one cause is planted
	kindTwo     = "two"     // two are
	kindHealthy = "healthy" // a load that is paced well below capacity
	kindUnknown = "unknown" // a cause that no rule knows
	kindNatural = "natural" // flat out, nothing planted
	kindRaw     = "raw"     // one cause is planted by raw tools
)

// planted is one cause and what it is.
type planted struct {
	Levels levels `json:"levels"`
	Truth  truth  `json:"truth"`
}

// instance is one case with its answer.
type instance struct {
	ID       string `json:"id"` // class and number
	Round    int    `json:"round"`
	Kind     string `json:"kind"`
	Lab      string `json:"lab"`
	Topology string `json:"topology"`
	Noise    string `json:"noise,omitempty"` // what else goes on on the machine
	// Window is how many seconds it takes.
	Window int       `json:"window_s"`
	Base   levels    `json:"base"` // the load and path without the cause
	Faults []planted `json:"faults,omitempty"`
	// Disturb is what the recorder does to the path while an instance of an unknown cause is measured.
	Disturb string `json:"disturb,omitempty"`
	// Natural is what limits the untouched cell, where it is flat out.
	Natural *truth `json:"natural,omitempty"`
	// Planted is the mechanism that raw tools planted.
	Planted *planting `json:"planted,omitempty"`
}

// stage is where an instance is recorded: those of one stage share runs.
func (x instance) stage() string {
	return strings.Join([]string{x.Lab, x.Topology, x.Noise, x.Disturb, strconv.Itoa(x.Window)}, " ")
}

// cell is the instance with some of its faults.
func (x instance) cell(faults ...planted) levels {
	out := maps.Clone(x.Base)
	for _, f := range faults {
		for name, level := range f.Levels {
			if old, ok := out[name]; ok && strings.HasPrefix(name, "fault") {
				level = old + "+" + level
			}
			out[name] = level
		}
	}
	return out
}

// tuning says on which half an instance is: a half of each class, drawn by the seed; what was recorded
// untouched goes with its instance.
func tuning(id string) bool {
	if *seed != suiteSeed {
		return true
	}
	id, _, _ = strings.Cut(id, "/")
	class, number, _ := strings.Cut(id, "#")
	n, _ := strconv.Atoi(number)
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s %d", suiteSeed, class, n/2)
	return (h.Sum64()>>7)&1 == uint64(n%2) // one of each two
}

// draw makes random parameters.
type draw struct{ *rand.Rand }

func (d draw) of(all ...string) string { return all[d.IntN(len(all))] }

// rate is one between two, in Mbit/s, evenly over its logarithm, to three digits.
func (d draw) rate(low, high float64) string {
	r := low * math.Pow(high/low, d.Float64())
	return strconv.FormatFloat(math.Round(r*10)/10, 'f', -1, 64) + "M"
}

func (d draw) whole(low, high int) string { return strconv.Itoa(low + d.IntN(high-low+1)) }

// tcp is a load that is flat out. Through a tunnel of the ends some of the time.
func (d draw) tcp() levels {
	out := levels{"streams": d.of("1", "1", "2", "4", "8"), "direction": d.of("up", "down"),
		"ip": d.of("4", "6")}
	if d.IntN(4) == 0 {
		out["tunnel"] = "wireguard-userspace"
	}
	return out
}

// plain is tcp without a tunnel.
func (d draw) plain() levels {
	out := d.tcp()
	delete(out, "tunnel")
	return out
}

// one is plain with one or two streams.
func (d draw) few() levels {
	out := d.plain()
	out["streams"] = d.of("1", "2")
	return out
}

// sender and egress are those of the direction, and ingress the router's port that the data comes in by.
func sender(l levels) string {
	if l["direction"] == "down" {
		return "server"
	}
	return "client"
}

func receiver(l levels) string {
	if l["direction"] == "down" {
		return "client"
	}
	return "server"
}

func egress(l levels) string {
	if l["direction"] == "down" {
		return "lan"
	}
	return "wan"
}

func ingress(l levels) string {
	if l["direction"] == "down" {
		return "wan"
	}
	return "lan"
}

// with adds levels to others.
func with(l levels, more ...string) levels {
	for i := 0; i < len(more); i += 2 {
		l[more[i]] = more[i+1]
	}
	return l
}

// the suite's parts draw instances of one class each.
type part struct {
	class string
	kind  string
	n     int
	stage []string // "lab topology", in turn
	draw  func(d draw, lab string) (base levels, faults []planted)
}

// Instances are all, in rounds: each holds one of every class that has so many.
func instances(seed uint64) []instance {
	var out []instance
	for _, p := range parts() {
		d := draw{rand.New(rand.NewPCG(seed, uint64(len(p.class))<<32|uint64(hash(p.class))))}
		seen := map[string]bool{}
		for i := 0; i < p.n; {
			lab, topology, _ := strings.Cut(p.stage[i%len(p.stage)], " ")
			topology, disturb, _ := strings.Cut(topology, " ")
			base, faults := p.draw(d, lab)
			x := instance{ID: fmt.Sprintf("%s#%02d", p.class, i), Round: i, Kind: p.kind, Lab: lab,
				Topology: topology, Disturb: disturb, Base: base, Faults: faults,
				Noise: d.of("", "", "", "busy", "traffic"), Window: 1}
			if p.class == "thermal" {
				x.Window = 5 // it must fall in the window
			}
			x.Natural = natural(x)
			key := fmt.Sprint(x.stage(), x.cell(x.Faults...))
			if seen[key] {
				continue // cells of a run must differ
			}
			seen[key] = true
			out = append(out, x)
			i++
		}
	}
	slices.SortStableFunc(out, func(a, b instance) int { return a.Round - b.Round })
	return out
}

func hash(text string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(text))
	return h.Sum32()
}

// natural is what limits the untouched cell of an instance, nil where it asks for a rate.
func natural(x instance) *truth {
	switch {
	case x.Base["pacing"] != "" || x.Base["rate"] != "" || x.Base["connection_rate"] != "":
		return &truth{Class: diagnosis.Healthy}
	case x.limited():
		return nil
	case x.Lab == "local" && strings.HasSuffix(x.Base["tunnel"], "-userspace"):
		return &truth{Class: "vpn-process"}
	case x.Lab == "local" && x.Base["streams"] == "1":
		return nil // one stream is worked on by one core after the other: neither is full
	case x.Lab == "local":
		return &truth{Class: "shared-cpu"}
	case x.Topology != "forward" || x.Base["tunnel"] != "" || x.Base["engine"] != "":
		return nil
	case x.Base["irq_affinity"] == "0" && x.Base["cpus"] == "":
		return &truth{Node: "router", Class: "softirq-one-core"}
	}
	return nil
}

// limited says that the untouched cell has a limit of its own, such as a delay.
func (x instance) limited() bool {
	for name := range x.Base {
		if strings.HasPrefix(name, "fault") || strings.HasPrefix(name, "queue") ||
			strings.HasPrefix(name, "shape") || name == "mss" || name == "socket_buffer" ||
			name == "congestion" {
			return true
		}
	}
	return x.Disturb != ""
}
