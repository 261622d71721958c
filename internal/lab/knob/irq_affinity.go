package knob

import (
	"math/big"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// IRQAffinity are the CPUs that a device's interrupts may be served on, such as "0" or "0-1". Where
// they differ between its interrupts it is "each 0 0-1", in the order of their numbers. Virtual links have
// no interrupts: only the ports of a guest do.
func IRQAffinity() Knob {
	return cpuSets(factor.Declaration{
		Name:    "irq_affinity",
		Unit:    "CPUs such as 0-1",
		Doc:     "CPUs that serve the interrupts of the virtual router's ports",
		Without: without("", "with interrupts where they were"),
	}, parseAffinity, eachInterrupt, parseCPUList, spellCPUs, kernel.IRQAffinity)
}

const eachInterrupt = "each "

func parseAffinity(text string) ([]*big.Int, error) {
	lists := []string{text}
	if each, ok := strings.CutPrefix(text, eachInterrupt); ok {
		lists = strings.Fields(each)
	}

	sets, err := parseEach(lists, parseCPUList)
	if err != nil {
		return nil, want("CPUs such as 0-1,3")
	}

	return sets, nil
}
