package knob

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

const maxCPU = 1023

// CPUs selects the CPUs that process the packets received by a router (receive packet steering). The state is
// a list such as "0-1,3", or "off" if each packet is processed on the CPU on which it arrives. If the receive
// queues of a device differ, the state is "masks 1 2", with one hexadecimal mask for each queue.
func CPUs() Knob {
	return cpuSets(factor.Declaration{
		Name: "cpus",
		Unit: "off, or cores such as 0-1,3",
		Doc: "cores that process the packets that the router receives (receive packet steering), or at " +
			"an endpoint, cores that run the engine",
		Without:  without("off", "without pinning"),
		PinsEnds: true,
	}, parseCPUs, eachQueue, parseMask, spellMask, kernel.RPS)
}

// cpuSets returns a knob for a device attribute that consists of several sets of CPUs. parse parses a state.
// parseOne and spellOne convert one set from and to the kernel's format. each is the prefix of a state whose
// sets differ.
func cpuSets(d factor.Declaration, parse func(text string) ([]*big.Int, error), each string,
	parseOne func(text string) (*big.Int, error), spellOne func(set *big.Int) string,
	words kernel.Words) Knob {
	k := ofPorts(ofRouter(d), spelling[[]*big.Int]{
		parse: parse,
		spell: func(sets []*big.Int) State { return spellEach(sets, each, spellOne) },
	}, func(dev string) ([]*big.Int, error) {
		texts, err := words.Read(dev)
		if err != nil {
			return nil, err
		}

		sets, err := parseEach(texts, parseOne)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", d.Name, err)
		}

		return sets, nil
	}, func(dev string, sets []*big.Int) error {
		return words.Set(dev, mapped(sets, spellOne))
	})
	k.trying = true // because the kernel checks the permission only on write
	return k
}

// CPUsOfMasks returns the state that corresponds to the masks of a device's receive queues in the kernel's
// format.
func CPUsOfMasks(masks []string) (State, error) {
	sets, err := parseEach(masks, parseMask)
	if err != nil {
		return "", fmt.Errorf("read cpus: %w", err)
	}
	return spellEach(sets, eachQueue, spellMask), nil
}

// MasksOfCPUs returns the masks that correspond to a state, in the kernel's format. It returns one mask for
// all queues or one for each queue.
func MasksOfCPUs(s State) ([]string, error) {
	sets, err := parseCPUs(s)
	return mapped(sets, spellMask), err
}

const eachQueue = "masks " // prefix of a state whose queues have different masks

func parseCPUs(text string) ([]*big.Int, error) {
	if text == "off" {
		return []*big.Int{new(big.Int)}, nil
	}

	masks, differ := strings.CutPrefix(text, eachQueue)
	sets, err := parseEach(strings.Fields(masks), parseMask)
	if !differ {
		sets, err = parseEach([]string{text}, parseCPUList)
	}

	if err != nil {
		return nil, want("off, or CPUs such as 0-1,3")
	}

	return sets, nil
}

func parseEach(texts []string, parse func(text string) (*big.Int, error)) ([]*big.Int, error) {
	var sets []*big.Int
	for _, text := range texts {
		set, err := parse(text)
		if err != nil {
			return nil, err
		}

		sets = append(sets, set)
	}

	if len(sets) == 0 {
		return nil, errors.New("none are there")
	}

	return sets, nil
}

// spellEach returns the state that corresponds to sets of CPUs. If the sets are equal, the state is a single
// list. Otherwise, it is the given word followed by all sets.
func spellEach(sets []*big.Int, word string, spell func(set *big.Int) string) State {
	if slices.ContainsFunc(sets, func(s *big.Int) bool { return s.Cmp(sets[0]) != 0 }) {
		return word + strings.Join(mapped(sets, spell), " ")
	}
	return spellCPUs(sets[0])
}

func mapped(sets []*big.Int, spell func(set *big.Int) string) []string {
	var texts []string
	for _, s := range sets {
		texts = append(texts, spell(s))
	}
	return texts
}

// parseCPUList parses a list such as "0-1,3".
func parseCPUList(text string) (*big.Int, error) {
	list, ok := kernel.CPUList(text, maxCPU)
	if !ok {
		return nil, fmt.Errorf("%q is no list of CPUs", text)
	}

	set := new(big.Int)
	for _, i := range list {
		set.SetBit(set, i, 1)
	}

	return set, nil
}

func spellCPUs(set *big.Int) string {
	var list []string
	for i := 0; i < set.BitLen(); i++ {
		if set.Bit(i) == 0 {
			continue
		}

		from := i
		for set.Bit(i+1) == 1 {
			i++
		}

		list = append(list, strconv.Itoa(from))
		if i > from {
			list[len(list)-1] += "-" + strconv.Itoa(i)
		}
	}

	if len(list) == 0 {
		return "off"
	}

	return strings.Join(list, ",")
}

// parseMask parses a CPU bitmap in the kernel's format: 32-bit words in hexadecimal, separated by commas, the
// most significant word first.
func parseMask(text string) (*big.Int, error) {
	words := strings.Split(text, ",")
	set := new(big.Int)
	for _, w := range words {
		v, err := strconv.ParseUint(w, 16, 32)
		if err != nil || len(words) > (maxCPU+1)/32 {
			return nil, fmt.Errorf("parse cpu mask %q: want hexadecimal words", text)
		}

		set.Or(set.Lsh(set, 32), new(big.Int).SetUint64(v))
	}

	return set, nil
}

func spellMask(set *big.Int) string {
	digits := set.Text(16)
	var words []string
	for len(digits) > 8 {
		words = append([]string{digits[len(digits)-8:]}, words...)
		digits = digits[:len(digits)-8]
	}

	return strings.Join(append([]string{digits}, words...), ",")
}
