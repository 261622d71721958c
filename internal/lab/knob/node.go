package knob

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// ofNode is a knob of a whole node.
type ofNode[T any] struct {
	declared
	spelling[T]
	read   func(p Place) (T, error)
	apply  func(p Place, v T) error
	check  func(p Place, v T) check.Answer
	always State // what every place can; "" = nothing
}

func (k *ofNode[T]) Parse(text string) (State, error) { return k.canonical(k.Name(), text) }
func (k *ofNode[T]) Same(want, got State) bool        { return k.alike(want, got) }

func (k *ofNode[T]) Read(_ context.Context, p Place, _ State) (State, error) {
	v, err := k.read(p)
	if err != nil {
		return "", conclude(err)
	}
	return k.spell(v), nil
}

func (k *ofNode[T]) Apply(_ context.Context, p Place, s State) error {
	v, err := k.value(k.Name(), s)
	if err != nil {
		return err
	}
	return conclude(k.apply(p, v))
}

func (k *ofNode[T]) Check(_ context.Context, p Place, s State) check.Answer {
	if s == k.always {
		return check.OK()
	}
	v, err := k.value(k.Name(), s)
	if err != nil {
		return check.Not("%v", err)
	}
	return k.check(p, v)
}

// spelling is how a knob's values of type T are written as states.
type spelling[T any] struct {
	parse func(text string) (T, error) // an error is one of want
	spell func(v T) State
	// bound is of what may be asked for, nil: all. What was there before is put back whatever it is.
	bound func(v T) error
	same  func(want, got T) bool // of values with other states, nil: they differ
}

// want says what a text may be.
func want(format string, args ...any) error { return fmt.Errorf("want "+format, args...) }

func refuse(name, text string, err error) error {
	return fmt.Errorf("parse %s %q: %w", name, text, err)
}

// value reads the text of a state.
func (s spelling[T]) value(name string, text State) (T, error) {
	v, err := s.parse(string(text))
	if err != nil {
		err = refuse(name, string(text), err)
	}
	return v, err
}

// canonical reads what may be asked for.
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

// numbers are whole and within bounds.
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

// words are states in themselves.
func words(list ...string) spelling[State] {
	last := len(list) - 1
	wrong := want("%s or %s", strings.Join(list[:last], ", "), list[last])
	return verbatim(func(text string) (State, error) {
		if text = strings.TrimSpace(text); !slices.Contains(list, text) {
			return "", wrong
		}
		return State(text), nil
	})
}

// verbatim is of values that are canonical states.
func verbatim(parse func(text string) (State, error)) spelling[State] {
	return spelling[State]{parse: parse, spell: func(s State) State { return s }}
}
