package probe

import (
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Constants of linux/netfilter/nf_tables.h and nfnetlink.h.
const (
	getRule = 10<<8 | 7 // subsystem NFTABLES, NFT_MSG_GETRULE
	newRule = 10<<8 | 6
)

// filterRules counts the rules of the packet filter once, as the watch begins: a trial does not change them,
// and a list of thousands takes long to read.
func filterRules(Root) Probe {
	return entry{name: "filter", scope: record.ScopeNode, slow: true, rare: true, metrics: []record.Metric{
		level("filter_rules", "count",
			"rules of the packet filter in this network namespace (nftables), as the watch began"),
	}, open: func(Options) (Sampler, error) { return openFilterRules() }}
}

type filterSampler struct {
	columns
	rules float64
}

func openFilterRules() (Sampler, error) {
	socket, err := openDump(netlinkNetfilter, getRule, nfHeader, "rules of the packet filter")
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	n := 0
	err = socket.dump(func(b []byte) (done bool, err error) {
		n, done, err = parseRules(b, n)
		return done, err
	})
	if err != nil {
		return nil, err
	}
	return &filterSampler{columns{"filter_rules"}, float64(n)}, nil
}

// parseRules reads one datagram of a dump of rules, adding their number to n.
func parseRules(b []byte, n int) (more int, done bool, err error) {
	done, err = kernel.EachMessage(b, func(kind uint16, _ []byte) error {
		if kind == newRule {
			n++
		}
		return nil
	}, refusal)
	if err != nil {
		return 0, false, err
	}
	return n, done, nil
}

func (s *filterSampler) Sample(dst []float64) error {
	dst[0] = s.rules
	return nil
}

func (*filterSampler) Close() error { return nil }
