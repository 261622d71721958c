package probe

import (
	"encoding/binary"
	"errors"
	"os"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Constants of linux/netfilter/nf_tables.h and nfnetlink.h.
const (
	newRule       = 10<<8 | 6 // subsystem NFTABLES, NFT_MSG_NEWRULE
	getRule       = 10<<8 | 7
	newGeneration = 10<<8 | 15
	getGeneration = 10<<8 | 16
	generationID  = 1 // NFTA_GEN_ID

	familyBoth, familyIPv4, familyIPv6 = 1, 2, 10 // NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6
)

// filterRules counts the rules of the packet filter. A list of thousands takes long to read, so that it is
// read again only when the kernel says that it has changed.
func filterRules(root Root) Probe {
	return entry{name: "filter", scope: record.ScopeNode, slow: true, rare: true, metrics: []record.Metric{
		level("filter_rules", "count", "rules of the packet filter in this network namespace (nftables), "+
			"of the version of IP with more"),
	}, open: func(Options) (Sampler, error) {
		if _, err := os.Stat(root.proc("net/netfilter")); err != nil {
			return nil, absent("this kernel has no packet filter: %v", err)
		}
		s := &filterSampler{columns: columns{"filter_rules"}}
		var err error
		s.list, err = openDump(netlinkNetfilter, getRule, nfHeader, "rules of the packet filter")
		if err != nil {
			return nil, err
		}
		s.change, err = openDump(netlinkNetfilter, getGeneration, nfHeader, "the packet filter's generation")
		if err != nil {
			return nil, errors.Join(err, s.list.Close())
		}
		return s, s.Sample(make([]float64, 1))
	}}
}

type filterSampler struct {
	columns
	list, change *dumpSocket
	generation   uint32 // of the rules that were counted
	rules        float64
}

func (s *filterSampler) Sample(dst []float64) error {
	var now uint32
	err := s.change.dump(func(b []byte) (done bool, err error) {
		now, err = parseGeneration(b)
		return true, err
	})
	if err == nil && now != s.generation {
		var n ruleCount
		err = s.list.dump(func(b []byte) (done bool, err error) {
			n, done, err = parseRules(b, n)
			return done, err
		})
		if err == nil {
			s.generation, s.rules = now, float64(n.both+max(n.ipv4, n.ipv6))
		}
	}
	dst[0] = s.rules
	return err
}

func (s *filterSampler) Close() error { return errors.Join(s.list.Close(), s.change.Close()) }

// parseGeneration reads the answer that tells how often the rules were changed.
func parseGeneration(b []byte) (generation uint32, err error) {
	_, err = kernel.EachMessage(b, func(kind uint16, body []byte) error {
		if kind != newGeneration || len(body) < nfHeader {
			return kernel.ErrNetlink
		}
		if !kernel.EachAttribute(body[nfHeader:], func(kind uint16, v []byte) bool {
			if kind == generationID && len(v) >= 4 {
				generation = binary.BigEndian.Uint32(v)
			}
			return true
		}) {
			return kernel.ErrNetlink
		}
		return nil
	}, refusal)
	return generation, err
}

// ruleCount counts rules by the packets that they are compared with.
type ruleCount struct{ ipv4, ipv6, both int }

// parseRules reads one datagram of a dump of rules, adding their number to n.
func parseRules(b []byte, n ruleCount) (more ruleCount, done bool, err error) {
	done, err = kernel.EachMessage(b, func(kind uint16, body []byte) error {
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
	}, refusal)
	if err != nil {
		return ruleCount{}, false, err
	}
	return n, done, nil
}
