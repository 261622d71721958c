package probe

import (
	"errors"
	"io"
	"os"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Constants from linux/netfilter/nf_tables.h and nfnetlink.h.
const (
	newRule       = 10<<8 | 6 // subsystem NFTABLES, message NFT_MSG_NEWRULE
	getRule       = 10<<8 | 7
	newGeneration = 10<<8 | 15
	getGeneration = 10<<8 | 16
	generationID  = 1 // NFTA_GEN_ID

	familyBoth, familyIPv4, familyIPv6 = 1, 2, 10 // NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6
)

// filterRules counts the rules of the packet filter. Reading thousands of rules takes a long time, so they
// are read again only when the kernel's generation counter has changed.
func filterRules(root Root) Probe {
	return Probe{
		Name:  "filter",
		Scope: record.ScopeNode,
		Slow:  true,
		Rare:  true,
		Stems: []record.Metric{
			level("filter_rules", "count", "rules of the packet filter in this network namespace "+
				"(nftables), for the IP version that has more"),
		},
		Source: func(Options) (Sampler, error) {
			if _, err := os.Stat(root.proc("net/netfilter")); err != nil {
				return nil, absent("this kernel has no packet filter: %v", err)
			}

			s := &filterSampler{columns: columns{"filter_rules"}}
			var err error
			s.list, err = openDump(netlinkNetfilter, getRule, nfHeader, "rules of the packet filter")
			if err != nil {
				return nil, err
			}

			s.change, err = openDump(netlinkNetfilter, getGeneration, nfHeader, "the packet filter's "+
				"generation")
			if err != nil {
				return nil, errors.Join(err, s.list.Close())
			}

			return s, s.Sample(make([]float64, 1))
		},
	}
}

type filterSampler struct {
	columns
	list, change *dumpSocket
	generation   uint32 // generation in which the rules were counted
	rules        float64
}

func (s *filterSampler) Sample(dst []float64) error {
	var now uint32
	err := s.change.dump(func(kind uint16, body []byte) (err error) {
		if now, err = generation(kind, body); err == nil {
			err = io.EOF // because the answer is a single message without NLMSG_DONE
		}
		return err
	})
	if err == nil && now != s.generation {
		var n ruleCount
		if err = s.list.dump(n.take); err == nil {
			s.generation, s.rules = now, float64(n.both+max(n.ipv4, n.ipv6))
		}
	}

	dst[0] = s.rules
	return err
}

func (s *filterSampler) Close() error { return errors.Join(s.list.Close(), s.change.Close()) }

// generation returns the kernel's generation counter of the packet filter.
func generation(kind uint16, body []byte) (uint32, error) {
	if kind != newGeneration {
		return 0, kernel.ErrNetlink
	}
	return nfNumber(body, generationID)
}

// ruleCount holds the number of rules by the IP version of the packets that they apply to.
type ruleCount struct{ ipv4, ipv6, both int }

// take adds a rule to the count.
func (n *ruleCount) take(kind uint16, body []byte) error {
	switch {
	case kind != newRule || len(body) < nfHeader:
	case body[0] == familyIPv4:
		n.ipv4++
	case body[0] == familyIPv6:
		n.ipv6++
	case body[0] == familyBoth:
		n.both++
	}
	return nil
}
