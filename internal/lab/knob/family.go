// Package knob changes settings of a node: one file per setting, each read, applied and read back. The node
// side of a session (package agent) and the journal decide when to change them, and remember the previous
// state.
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

// Place is the place of a setting, in the namespace or machine of the calling process. Port is a device's
// name, empty for node-wide settings; Ports lists the node's devices under test, for settings of all of them.
type Place struct {
	Node  string   `json:"node"`
	Port  string   `json:"port,omitempty"`
	Ports []string `json:"ports,omitempty"`
	// WAN is the port that faces away from the near side; a port forward joins Inside and Outside.
	WAN     string   `json:"wan,omitempty"`
	Inside  []string `json:"inside,omitempty"`
	Outside []string `json:"outside,omitempty"`
	// Collector is an address to which reports about the node's traffic may go.
	Collector string `json:"collector,omitempty"`
	// OwnKernel: the node is a machine of its own within the lab, so that machine-wide settings belong to it
	// alone.
	OwnKernel bool `json:"own_kernel,omitempty"`
	// Sysctls permits kernel settings. The node itself decides, whatever the request.
	Sysctls Permission `json:"sysctls,omitempty"`
	// Lab is the directory of the lab's files on this machine, for settings of the machine that carries the
	// lab.
	Lab string `json:"lab,omitempty"`
}

// State is a setting's value as canonical text. It contains no secret.
type State string

// Language is the pure part of a knob, available on any OS. Name is the factor's name; a knob whose name ends
// in ":" is a family, such as "sysctl:", whose State is "<rest of the name>=<value>".
type Language interface {
	Name() string
	// Factor declares the factor of that name. Parse and Param come from the knob.
	Factor() factor.Declaration
	// Parse returns a canonical State or an error that lists what is allowed.
	Parse(text string) (State, error)
	// Same reports whether what was read back is equivalent to what was requested, perhaps in another form
	// (rounded rates).
	Same(want, got State) bool
}

// Knob is a setting that can be varied.
type Knob interface {
	Language
	// Read returns the present state of what want would set, such that applying it again restores the place.
	Read(ctx context.Context, p Place, want State) (State, error)
	Apply(ctx context.Context, p Place, s State) error
	// Check reports whether the state can be set at the place; a kernel may lack the means.
	Check(ctx context.Context, p Place, s State) check.Answer
}

// declared is the part of a knob that declares its factor.
type declared struct{ about factor.Declaration }

func (d *declared) Name() string               { return d.about.Name }
func (d *declared) Factor() factor.Declaration { return d.about }

// ofRouter declares a factor of the device under test, which a plan may place.
func ofRouter(d factor.Declaration) declared {
	d.Placed |= factor.Placed
	if d.Needs == nil {
		d.Needs = factor.NeedsRouter
	}
	return declared{d}
}

// without describes how a level is compared with a baseline.
func without(level, words string) *factor.Without {
	return &factor.Without{Level: level, Words: "of the same " + words}
}

// Factors declares the factors of knobs, with their levels as the knobs parse them.
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

// Limited is implemented by knobs that may not set every state at every place.
type Limited interface {
	Allowed(p Place, s State) error
}

// OnTunnels is implemented by knobs whose setting of all ports also applies to the devices of tunnels.
type OnTunnels interface{ OnTunnels() bool }

// kernelKnob reads and sets values of type T in a kernel: of a node, or, perPort, of Place.Port or, if that
// is empty, of all Place.Ports or of the picked one. If ports differ, the state is a list, "eth0: 1500; eth1:
// 9000". Its functions handle one device, Place.Port.
type kernelKnob[T any] struct {
	declared
	spelling[T]
	perPort bool
	read    func(p Place) (T, error)
	readFor func(p Place, want T) (T, error) // nil: read, for any want
	apply   func(p Place, v T) error
	check   func(p Place, v T) check.Answer // nil: always possible
	trying  bool                            // only setting it shows whether it works: these files exist
	always  State                           // possible at every place; "" = none
	pick    func(p Place) string            // the port if none is named
	tunnels bool                            // the setting of all ports also applies to tunnels' devices
}

// ofPorts returns a knob of devices, made from functions of package kernel.
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

// ofTable returns a knob for one of our tables in the packet filter.
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

// spelling converts a knob's values of type T to states and back.
type spelling[T any] struct {
	parse func(text string) (T, error) // an error comes from want
	spell func(v T) State
	// bound limits what may be requested, nil: anything. The previous value is restored even if it exceeds
	// this.
	bound func(v T) error
	same  func(want, got T) bool // for values with several states, nil: compare states
}

// want returns an error that describes valid texts.
func want(format string, args ...any) error { return fmt.Errorf("want "+format, args...) }

// near adds to an error the word that was probably meant.
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

// value parses the text of a state.
func (s spelling[T]) value(name string, text State) (T, error) {
	v, err := s.parse(string(text))
	if err != nil {
		err = refuse(name, string(text), err)
	}
	return v, err
}

// canonical parses what may be requested.
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

// numbers are integers within bounds.
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

// The words are states themselves.
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

// verbatim is the spelling of values that are canonical states.
func verbatim(parse func(text string) (State, error)) spelling[State] {
	return spelling[State]{parse: parse, spell: func(s State) State { return s }}
}
