// Package knob changes settings of a node. A knob only reads and applies states; package agent and the
// journal decide when to do so and remember the previous state.
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

// Place identifies where a setting applies, as seen from the namespaces or the machine of the calling
// process. Port is a device name, or "" for a setting of the node. Ports lists the node's devices under test,
// for settings that apply to all of them.
type Place struct {
	Node  string   `json:"node"`
	Port  string   `json:"port,omitempty"`
	Ports []string `json:"ports,omitempty"`
	// WAN is the router's port towards the far side, and Outside lists the addresses of this port. Inside
	// lists the addresses of the near end, which are the target of a port forward.
	WAN     string   `json:"wan,omitempty"`
	Inside  []string `json:"inside,omitempty"`
	Outside []string `json:"outside,omitempty"`
	// Collector is the address to which a node may export flow records.
	Collector string `json:"collector,omitempty"`
	// OwnKernel is set if the node has a kernel that belongs to the lab, so that settings of the whole
	// machine affect only this node.
	OwnKernel bool `json:"own_kernel,omitempty"`
	// Sysctls are the kernel settings that may be changed. The node sets this field, and thereby overrides
	// the request.
	Sysctls Permission `json:"sysctls,omitempty"`
	// Lab is the directory that contains the lab's files on this machine. It is used for settings of the
	// machine that hosts the lab.
	Lab string `json:"lab,omitempty"`
}

// State is the value of a setting as canonical text. It never contains a secret.
type State = string

// Language is the part of a knob that does not access the system and is available on every OS. Name returns
// the name of the factor. A name that ends in ":" stands for a family, such as "sysctl:"; its states have the
// form "<rest of the name>=<value>".
type Language interface {
	Name() string
	// Factor returns the declaration of the factor. The declaration lacks Parse and Param, which Factors
	// adds.
	Factor() factor.Declaration
	// Parse returns the canonical state for text, or an error that describes the valid values.
	Parse(text string) (State, error)
	// Same reports whether the state that was read back is equivalent to the requested one, for example if
	// the kernel has rounded a value.
	Same(want, got State) bool
}

// A Knob is a setting that can be varied.
type Knob interface {
	Language
	// Read returns the current state of everything that applying want would change. Applying the returned
	// state restores the place.
	Read(ctx context.Context, p Place, want State) (State, error)
	Apply(ctx context.Context, p Place, s State) error
	// Check reports whether the state can be set at the place. For example, the kernel may not support it.
	Check(ctx context.Context, p Place, s State) check.Answer
}

// declared implements the methods of Language that describe the factor.
type declared struct{ about factor.Declaration }

func (d *declared) Name() string               { return d.about.Name }
func (d *declared) Factor() factor.Declaration { return d.about }

// ofRouter returns d as the declaration of a factor that applies to the device under test. A plan can give
// the factor a place.
func ofRouter(d factor.Declaration) declared {
	d.Placed |= factor.Placed
	if d.Needs == nil {
		d.Needs = factor.NeedsRouter
	}
	return declared{d}
}

// without returns a factor.Without for the level at which a factor is absent. The description of a comparison
// with this level is "of the same" followed by words, such as "of the same without quota".
func without(level, words string) *factor.Without {
	return &factor.Without{Level: level, Words: "of the same " + words}
}

// Factors returns the factors of knobs. Each knob parses the levels of its factor.
func Factors(knobs []Knob) []factor.Declaration {
	var out []factor.Declaration
	for _, k := range knobs {
		d := k.Factor()
		d.Parse = k.Parse
		family, isFamily := strings.CutSuffix(k.Name(), ":")
		if isFamily {
			d.Param = func(param string) (factor.Declaration, bool) {
				member := d
				member.Param = nil
				member.Name = family + ":" + param
				member.Parse = func(text string) (string, error) {
					s, err := k.Parse(param + "=" + text)
					_, value, _ := strings.Cut(s, "=")
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

// OnTunnels is implemented by knobs that can also apply to tunnel devices if they are set on all ports.
type OnTunnels interface{ OnTunnels() bool }

// kernelKnob reads and sets values of type T in a kernel. If perPort is false, a value belongs to the node.
// Otherwise, it belongs to Place.Port. If Place.Port is empty, the value belongs to the port that pick
// returns or, if pick is nil, to all of Place.Ports. If the values of ports differ, the state is a list such
// as "eth0: 1500; eth1: 9000". Each function handles a single device, Place.Port.
type kernelKnob[T any] struct {
	declared
	spelling[T]
	perPort bool
	read    func(p Place) (T, error)
	readFor func(p Place, want T) (T, error) // if nil, read is used
	apply   func(p Place, v T) error
	check   func(p Place, v T) error // returns why v is impossible; if nil, every value is possible
	trying  bool                     // whether Check tests a write by writing the current value back
	always  State                    // state that is possible everywhere; "" means none
	pick    func(p Place) string     // returns the port if the place names none
	tunnels bool                     // result of OnTunnels
}

// ofPorts returns a knob for a device attribute that functions of package kernel read and set.
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

// ofNode returns a knob for a setting of the node that functions of package kernel read and set.
func ofNode[T any](about declared, s spelling[T], read func() (T, error),
	apply func(v T) error) *kernelKnob[T] {
	return &kernelKnob[T]{
		declared: about,
		spelling: s,
		read:     func(Place) (T, error) { return read() },
		apply:    func(_ Place, v T) error { return apply(v) },
	}
}

// ofTable returns a knob for one of our nftables tables.
func ofTable[T any](about declared, s spelling[T], t kernel.Table[T]) *kernelKnob[T] {
	var none T
	k := ofNode(about, s, t.Read, t.Set)
	k.always = s.spell(none)
	k.check = func(_ Place, v T) error { return t.Probe(v) }
	return k
}

// onProbeLink checks whether a value is possible by setting it on a temporary virtual link.
func (k *kernelKnob[T]) onProbeLink(_ Place, v T) error {
	return kernel.OnProbeLink(func(dev string) error { return k.apply(Place{Port: dev}, v) })
}

// spelling converts between values of type T and states.
type spelling[T any] struct {
	parse func(text string) (T, error) // errors are created by want
	spell func(v T) State
	// bound returns an error for a value that may not be requested. If bound is nil, any value may be
	// requested. bound is not called when a previous value is restored.
	bound func(v T) error
	// same compares values that more than one state can represent. If same is nil, states are compared.
	same func(want, got T) bool
}

// want returns an error that describes the valid values.
func want(format string, args ...any) error { return fmt.Errorf("want "+format, args...) }

// near adds the word that is most similar to text as a hint to err.
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

// value converts a state to a value.
func (s spelling[T]) value(name string, text State) (T, error) {
	v, err := s.parse(text)
	if err != nil {
		err = refuse(name, text, err)
	}
	return v, err
}

// canonical returns the canonical state that corresponds to a requested value.
func (s spelling[T]) canonical(name, text string) (State, error) {
	v, err := s.parse(text)
	if err == nil && s.bound != nil {
		err = s.bound(v)
	}

	if err != nil {
		return "", refuse(name, text, err)
	}

	return s.spell(v), nil
}

func (s spelling[T]) alike(want, got State) bool {
	if want == got || s.same == nil {
		return want == got
	}

	w, err1 := s.parse(want)
	g, err2 := s.parse(got)
	return err1 == nil && err2 == nil && s.same(w, g)
}

// numbers returns the spelling of integers in the range from least to most.
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
		spell: strconv.Itoa,
		bound: func(n int) error {
			if n < least || n > most {
				return wrong
			}
			return nil
		},
	}
}

// words returns the spelling of the states in list.
func words(list ...string) spelling[State] {
	last := len(list) - 1
	wrong := want("%s or %s", strings.Join(list[:last], ", "), list[last])
	return verbatim(func(text string) (State, error) {
		if text = strings.TrimSpace(text); !slices.Contains(list, text) {
			return "", near(text, list, wrong)
		}
		return text, nil
	})
}

// onOff returns the spelling of the states "on" and "off".
func onOff() spelling[bool] {
	list := words("on", "off")
	return spelling[bool]{
		parse: func(text string) (bool, error) {
			s, err := list.parse(text)
			return s == "on", err
		},
		spell: func(on bool) State {
			if on {
				return "on"
			}
			return "off"
		},
	}
}

// verbatim returns the spelling of values that are themselves states.
func verbatim(parse func(text string) (State, error)) spelling[State] {
	return spelling[State]{parse: parse, spell: func(s State) State { return s }}
}
