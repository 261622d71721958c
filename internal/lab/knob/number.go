package knob

import (
	"context"
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// nodeNumber is a knob of a whole node that is a number. Its bounds are of what may be asked for: what was
// there before is put back whatever it is.
type nodeNumber struct {
	declared
	least, most int
	read        func() (int, error)
	apply       func(p Place, n int) error
	possible    func(p Place, n int) check.Answer
}

func (k *nodeNumber) Parse(text string) (State, error) {
	return number(k.Name(), text, k.least, k.most)
}

func (k *nodeNumber) Read(context.Context, Place) (State, error) {
	n, err := k.read()
	s, err := state(n, err)
	return s, conclude(err)
}

func (k *nodeNumber) Apply(_ context.Context, p Place, s State) error {
	n, err := strconv.Atoi(string(s))
	if err != nil {
		return refuse(k.Name(), string(s), "a number")
	}
	return conclude(k.apply(p, n))
}

func (k *nodeNumber) Check(_ context.Context, p Place, s State) check.Answer {
	n, err := strconv.Atoi(string(s))
	if err != nil {
		return check.Not("%v", refuse(k.Name(), string(s), "a number"))
	}
	return k.possible(p, n)
}

// portNumber is a knob of devices that is a number.
func portNumber(d declared, least, most int, read func(dev string) (int, error),
	apply func(dev string, n int) error) Knob {
	return &perPort{
		declared: d,
		parse:    func(text string) (State, error) { return number(d.Name(), text, least, most) },
		read: func(dev string) (State, error) {
			n, err := read(dev)
			return state(n, err)
		},
		apply: func(dev string, s State) error {
			n, err := strconv.Atoi(string(s))
			if err != nil {
				return refuse(d.Name(), string(s), "a number")
			}
			return apply(dev, n)
		},
	}
}

func state(n int, err error) (State, error) {
	if err != nil {
		return "", err
	}
	return State(strconv.Itoa(n)), nil
}

// number parses a whole number within bounds.
func number(name, text string, least, most int) (State, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return "", refuse(name, text, "a number from "+strconv.Itoa(least)+" to "+strconv.Itoa(most))
	}
	return State(strconv.Itoa(n)), nil
}
