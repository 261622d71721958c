package knob

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

const maxCPU = 1023

// CPUs are the CPUs that a router's packets are worked on after they arrive (receive packet
// steering): "off" for those they arrive on, or a list such as "0-1,3". Where a device's receive queues
// differ it is "masks 1 2", one hexadecimal mask per queue.
func CPUs() Knob {
	return &perPort{
		declared: declared{&factor.Declaration{
			Name:    "cpus",
			Unit:    "off, or cores such as 0-1,3",
			Doc:     "cores: of the router's receive work (packet steering), or of an endpoint's engine",
			Without: &factor.Without{Level: "off", Words: "of the same without pinning"},
			Placed:  factor.Placed, PinsEnds: true,
			Needs: factor.NeedsRouter,
		}},
		parse: parseCPUs,
		read: func(dev string) (State, error) {
			masks, err := kernel.RPS(dev)
			if err != nil {
				return "", err
			}
			return spellMasks(masks)
		},
		apply: func(dev string, s State) error {
			masks, err := masksOf(s)
			if err != nil {
				return err
			}
			return kernel.SetRPS(dev, masks)
		},
		check: func(dev string, _ State) check.Answer {
			masks, err := kernel.RPS(dev)
			if err == nil {
				// Writing what is there is the only question that the kernel answers: it refuses on the
				// write, not on the opening.
				err = kernel.SetRPS(dev, masks)
			}
			return answer(err)
		},
	}
}

func parseCPUs(text string) (State, error) {
	wrong := refuse("cpus", text, "off, or CPUs such as 0-1,3")
	if text == "off" {
		return "off", nil
	}
	if rest, ok := strings.CutPrefix(text, "masks "); ok {
		s, err := spellMasks(strings.Fields(rest))
		if err != nil {
			return "", wrong
		}
		return s, nil
	}
	set, ok := parseCPUList(text)
	if !ok {
		return "", wrong
	}
	return spellCPUs(set), nil
}

// parseCPUList reads a list such as "0-1,3".
func parseCPUList(text string) (*big.Int, bool) {
	set := new(big.Int)
	for part := range strings.SplitSeq(text, ",") {
		from, to, ranged := strings.Cut(strings.TrimSpace(part), "-")
		if !ranged {
			to = from
		}
		a, err1 := strconv.ParseUint(from, 10, 16)
		b, err2 := strconv.ParseUint(to, 10, 16)
		if err1 != nil || err2 != nil || a > b || b > maxCPU {
			return nil, false
		}
		for i := a; i <= b; i++ {
			set.SetBit(set, int(i), 1)
		}
	}
	return set, true
}

func spellCPUs(set *big.Int) State {
	var list []string
	for i := 0; i < set.BitLen(); i++ {
		if set.Bit(i) == 0 {
			continue
		}
		from := i
		for set.Bit(i+1) == 1 {
			i++
		}
		if from == i {
			list = append(list, strconv.Itoa(i))
		} else {
			list = append(list, strconv.Itoa(from)+"-"+strconv.Itoa(i))
		}
	}
	if len(list) == 0 {
		return "off"
	}
	return State(strings.Join(list, ","))
}

// spellMasks is the state of a device whose queues have these masks.
func spellMasks(masks []string) (State, error) {
	canonical := make([]string, len(masks))
	for i, m := range masks {
		set, err := parseMask(m)
		if err != nil {
			return "", err
		}
		canonical[i] = spellMask(set)
	}
	if len(canonical) == 0 {
		return "", fmt.Errorf("read cpus: no receive queue")
	}
	if slices.ContainsFunc(canonical, func(m string) bool { return m != canonical[0] }) {
		return State("masks " + strings.Join(canonical, " ")), nil
	}
	set, err := parseMask(canonical[0])
	return spellCPUs(set), err
}

// parseMask reads the kernel's bitmap: hexadecimal words of 32 bits, the highest first, with commas
// between.
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

func masksOf(s State) ([]string, error) {
	if s == "off" {
		return []string{"0"}, nil
	}
	if rest, ok := strings.CutPrefix(string(s), "masks "); ok {
		return strings.Fields(rest), nil
	}
	set, ok := parseCPUList(string(s))
	if !ok {
		return nil, refuse("cpus", string(s), "off, or CPUs such as 0-1,3")
	}
	return []string{spellMask(set)}, nil
}
