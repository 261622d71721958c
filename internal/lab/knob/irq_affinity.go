package knob

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// IRQAffinity are the CPUs that a device's interrupts may be served on, such as "0" or "0-1". Where
// they differ between its interrupts it is "each 0 0-1", in the order of their numbers. Virtual links have
// no interrupts: only the ports of a guest do.
func IRQAffinity() Knob {
	return &perPort{
		declared: declared{&factor.Declaration{
			Name:   "irq_affinity",
			Unit:   "CPUs such as 0-1",
			Doc:    "CPUs that serve the interrupts of the virtual router's ports",
			Placed: factor.Placed,
			Needs:  factor.NeedsRouter,
		}},
		parse: parseAffinity,
		read: func(dev string) (State, error) {
			lists, err := kernel.IRQAffinity(dev)
			if err != nil {
				return "", err
			}
			return spellAffinity(lists)
		},
		apply: func(dev string, s State) error {
			if each, ok := strings.CutPrefix(string(s), eachInterrupt); ok {
				return kernel.SetIRQAffinity(dev, strings.Fields(each))
			}
			return kernel.SetIRQAffinity(dev, []string{string(s)})
		},
		check: func(dev string, _ State) check.Answer {
			lists, err := kernel.IRQAffinity(dev)
			if err == nil {
				// Whether an interrupt can be moved shows only when it is tried.
				err = kernel.SetIRQAffinity(dev, lists)
			}
			return answer(err)
		},
	}
}

const eachInterrupt = "each "

func parseAffinity(text string) (State, error) {
	if each, ok := strings.CutPrefix(text, eachInterrupt); ok && each != "" {
		return spellAffinity(strings.Fields(each))
	}
	s, err := parseCPUs(text)
	if err != nil || s == "off" || strings.HasPrefix(string(s), "masks") {
		return "", refuse("irq_affinity", text, "CPUs such as 0-1,3")
	}
	return s, nil
}

func spellAffinity(lists []string) (State, error) {
	canonical := make([]string, len(lists))
	for i, l := range lists {
		s, err := parseCPUs(l)
		if err != nil || s == "off" || strings.HasPrefix(string(s), "masks") {
			return "", fmt.Errorf("read irq_affinity: %q is no list of CPUs", l)
		}
		canonical[i] = string(s)
	}
	if len(canonical) == 0 {
		return "", fmt.Errorf("read irq_affinity: no interrupt")
	}
	if slices.ContainsFunc(canonical, func(l string) bool { return l != canonical[0] }) {
		return State(eachInterrupt + strings.Join(canonical, " ")), nil
	}
	return State(canonical[0]), nil
}
