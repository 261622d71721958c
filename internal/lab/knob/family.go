// Package knob changes settings of a node, in one file per setting. A knob only reads and applies a state;
// package agent and the journal decide when to change it and remember the previous state.
package knob

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// Place identifies where a setting applies, relative to the namespaces or machine of the calling process.
// Port is a device name, "" for settings of the node. Ports lists the node's devices under test, for settings
// of all of them.
type Place struct {
	Node  string   `json:"node"`
	Port  string   `json:"port,omitempty"`
	Ports []string `json:"ports,omitempty"`
	// WAN is the router's port on the far side, and Outside its addresses. Inside are the near end's
	// addresses, to which a port forward leads.
	WAN     string   `json:"wan,omitempty"`
	Inside  []string `json:"inside,omitempty"`
	Outside []string `json:"outside,omitempty"`
	// Collector is the address to which a node may export reports about its traffic.
	Collector string `json:"collector,omitempty"`
	// OwnKernel is set for nodes that are machines of their own in the lab, so that machine-wide settings
	// affect only them.
	OwnKernel bool `json:"own_kernel,omitempty"`
	// Sysctls lists the kernel settings that may be changed. The node sets it, overriding the request.
	Sysctls Permission `json:"sysctls,omitempty"`
	// Lab is the directory of the lab's files on this machine, for settings of the machine that hosts the
	// lab.
	Lab string `json:"lab,omitempty"`
}

// State is a setting's value as canonical text. It never contains a secret.
type State string

// Language is the part of a knob that does not access the system and is available on any OS. Name is the
// factor's name. A name that ends in ":" denotes a family, such as "sysctl:", whose states are "<rest of the
// name>=<value>".
type Language interface {
	Name() string
	// Factor returns the factor's declaration, without Parse and Param, which Factors adds.
	Factor() factor.Declaration
	// Parse returns the canonical state, or an error that describes valid values.
	Parse(text string) (State, error)
	// Same reports whether the state read back is equivalent to the one requested, for example after
	// rounding.
	Same(want, got State) bool
}

// Knob is a setting that can be varied.
type Knob interface {
	Language
	// Read returns the present state of everything that want would change, so that applying it restores the
	// place.
	Read(ctx context.Context, p Place, want State) (State, error)
	Apply(ctx context.Context, p Place, s State) error
	// Check reports whether the state can be set at the place; the kernel may not support it.
	Check(ctx context.Context, p Place, s State) check.Answer
}

// declared implements the part of Language that concerns the factor.
type declared struct{ about factor.Declaration }

func (d *declared) Name() string               { return d.about.Name }
func (d *declared) Factor() factor.Declaration { return d.about }

// ofRouter returns the declaration of a factor that applies to the device under test and can be placed in a
// plan.
func ofRouter(d factor.Declaration) declared {
	d.Placed |= factor.Placed
	if d.Needs == nil {
		d.Needs = factor.NeedsRouter
	}
	return declared{d}
}

// without describes the comparison of a level with a baseline.
func without(level, words string) *factor.Without {
	return &factor.Without{Level: level, Words: "of the same " + words}
}

// Factors returns the factors of knobs, with their levels parsed by the knobs.
func Factors(knobs []Knob) []factor.Declaration {
	var out []factor.Declaration
	for _, k := range knobs {
		d := k.Factor()
		d.Parse = func(text string) (string, error) {
			s, err := k.Parse(text)
			return string(s), err
		}
		family, isFamily := strings.CutSuffix(k.Name(), ":")
		if isFamily {
			d.Param = func(param string) (factor.Declaration, bool) {
				member := d
				member.Param = nil
				member.Name = family + ":" + param
				member.Parse = func(text string) (string, error) {
					s, err := k.Parse(param + "=" + text)
					_, value, _ := strings.Cut(string(s), "=")
					return value, err
				}
				return member, true
			}
		}

		out = append(out, d)
	}
	return out
}

// Limited is implemented by knobs that restrict which states may be set at a place.
type Limited interface {
	Allowed(p Place, s State) error
}

// OnTunnels is implemented by knobs that, when set on all ports, can also apply to the devices of tunnels.
type OnTunnels interface{ OnTunnels() bool }

// kernelKnob reads and sets values of type T in a kernel. The value belongs to the node or, if perPort is
// set, to Place.Port; if that is empty, to all of Place.Ports or to the port that pick returns. If ports
// differ, the state is a list, "eth0: 1500; eth1: 9000". The functions handle one device, Place.Port.
type kernelKnob[T any] struct {
	declared
	spelling[T]
	perPort bool
	read    func(p Place) (T, error)
	readFor func(p Place, want T) (T, error) // nil = read
	apply   func(p Place, v T) error
	check   func(p Place, v T) check.Answer // nil = always possible
	trying  bool                            // Check writes the present value back, to test a write
	always  State                           // state that is possible everywhere; "" = none
	pick    func(p Place) string            // returns the port if none is named
	tunnels bool                            // see OnTunnels
}

// ofPorts returns a knob for a device attribute, given functions of package kernel.
func ofPorts[T any](about declared, s spelling[T], read func(dev string) (T, error),
	apply func(dev string, v T) error) *kernelKnob[T] {
	return &kernelKnob[T]{
		declared: about,
		spelling: s,
		perPort:  true,
		read:     func(p Place) (T, error) { return read(p.Port) },
		apply:    func(p Place, v T) error { return apply(p.Port, v) },
	}
}

// ofTable returns a knob for one of our tables in nftables.
func ofTable[T any](about declared, s spelling[T], t kernel.Table[T]) *kernelKnob[T] {
	var none T
	return &kernelKnob[T]{
		declared: about,
		spelling: s,
		always:   s.spell(none),
		read:     func(Place) (T, error) { return t.Read() },
		apply:    func(_ Place, v T) error { return t.Set(v) },
		check:    func(_ Place, v T) check.Answer { return answer(t.Probe(v)) },
	}
}

// onProbeLink checks a value by setting it on a temporary virtual link.
func (k *kernelKnob[T]) onProbeLink(_ Place, v T) check.Answer {
	return answer(kernel.OnProbeLink(func(dev string) error { return k.apply(Place{Port: dev}, v) }))
}

// spelling converts between values of type T and states.
type spelling[T any] struct {
	parse func(text string) (T, error) // errors come from want
	spell func(v T) State
	// bound returns an error for values that may not be requested; nil = no limit. It does not apply to a
	// previous value that is restored.
	bound func(v T) error
	same  func(want, got T) bool // compares values that have several states; nil = compare states
}

// want returns an error that describes valid values.
func want(format string, args ...any) error { return fmt.Errorf("want "+format, args...) }

// near adds the most similar word as a hint to err.
func near(text string, words []string, err error) error {
	n := check.Nearest(text, words)
	if n != "" {
		return check.WithHint(err, "did you mean "+n+"?")
	}
	return err
}

func refuse(name, text string, err error) error {
	return fmt.Errorf("parse %s %q: %w", name, text, err)
}

// value parses a state.
func (s spelling[T]) value(name string, text State) (T, error) {
	v, err := s.parse(string(text))
	if err != nil {
		err = refuse(name, string(text), err)
	}
	return v, err
}

// canonical returns the canonical state for a requested value.
func (s spelling[T]) canonical(name, text string) (State, error) {
	v, err := s.value(name, State(text))
	if err == nil && s.bound != nil {
		if err = s.bound(v); err != nil {
			err = refuse(name, text, err)
		}
	}

	if err != nil {
		return "", err
	}

	return s.spell(v), nil
}

func (s spelling[T]) alike(want, got State) bool {
	if want == got || s.same == nil {
		return want == got
	}

	w, err1 := s.parse(string(want))
	g, err2 := s.parse(string(got))
	return err1 == nil && err2 == nil && s.same(w, g)
}

// numbers returns the spelling of integers from least to most.
func numbers(least, most int) spelling[int] {
	wrong := want("a number from %d to %d", least, most)
	return spelling[int]{
		parse: func(text string) (int, error) {
			n, err := strconv.Atoi(text)
			if err != nil {
				return 0, wrong
			}
			return n, nil
		},
		spell: func(n int) State { return State(strconv.Itoa(n)) },
		bound: func(n int) error {
			if n < least || n > most {
				return wrong
			}
			return nil
		},
	}
}

// words returns the spelling of a list of states.
func words(list ...string) spelling[State] {
	last := len(list) - 1
	wrong := want("%s or %s", strings.Join(list[:last], ", "), list[last])
	return verbatim(func(text string) (State, error) {
		if text = strings.TrimSpace(text); !slices.Contains(list, text) {
			return "", near(text, list, wrong)
		}
		return State(text), nil
	})
}

// verbatim returns the spelling of values that are states themselves.
func verbatim(parse func(text string) (State, error)) spelling[State] {
	return spelling[State]{parse: parse, spell: func(s State) State { return s }}
}
