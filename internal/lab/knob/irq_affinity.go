package knob

import (
	"math/big"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// IRQAffinity selects the CPUs that may serve the interrupts of a device, such as "0" or "0-1". If the
// interrupts have different CPUs, the state is "each" followed by the CPUs of each interrupt in numerical
// order of the interrupts, as in "each 0 0-1". The ports of guests have interrupts; virtual links have none.
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
