package probe

import (
	"bytes"
	"errors"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// conntrackNames lists files in /proc/sys/net/netfilter, and columns of /proc/net/stat/nf_conntrack
// (net/netfilter/nf_conntrack_standalone.c, ct_cpu_seq_show). conntrackStems lists the corresponding
// stems.
var (
	conntrackNames = strings.Fields(`
		nf_conntrack_count nf_conntrack_max clashres found invalid insert_failed drop early_drop icmp_error
		search_restart chainlength
	`)
	conntrackStems = strings.Fields(`
		entries max clash_resolved found invalid insert_failed drop early_drop error
		search_restart chain_too_long
	`)
)

var errPerCPU = errors.New("parse counters of /proc/net/stat: want a heading and rows of hexadecimal numbers")

// parsePerCPU sums the rows of all CPUs in a file of /proc/net/stat. It finds columns by their headings,
// because kernels name and order the columns differently.
func parsePerCPU(b []byte, want map[string]int, dst []float64) error {
	head, b := line(b)
	var at []int // index into dst by column, or -1
	for w := range bytes.FieldsSeq(head) {
		i, wanted := want[string(w)]
		if wanted {
			dst[i] = 0
		} else {
			i = -1
		}

		at = append(at, i)
	}

	if len(at) == 0 {
		return errPerCPU
	}

	for l := range bytes.Lines(b) {
		if len(trim(l)) == 0 {
			continue
		}

		for _, i := range at {
			var w []byte
			w, l = word(l)
			v, ok := hexNumber(w)
			if !ok {
				return errPerCPU
			}

			if i >= 0 {
				dst[i] += float64(v)
			}
		}
	}

	return nil
}

// parseOne returns a parser for a file that contains one number.
func parseOne(name string) func(b []byte, want map[string]int, dst []float64) error {
	return func(b []byte, want map[string]int, dst []float64) error {
		w, _ := word(b)
		v, ok := signed(w)
		if !ok {
			return errors.New("parse " + name + ": not a whole number")
		}

		if i, ok := want[name]; ok {
			dst[i] = v
		}

		return nil
	}
}

func conntrack(root Root) Probe {
	const why = "connection tracking is not in use on this kernel (nf_conntrack is not loaded)"
	metrics := append([]record.Metric{level(conntrackStems[0], "count", "connections tracked now"),
		level(conntrackStems[1], "count", "maximum number of tracked connections")},
		counters("count", "connection tracking counter of this network namespace, all cores together",
			conntrackStems[2:]...)...)
	var parts []namedFile
	for _, name := range conntrackNames[:2] {
		parts = append(parts, namedFile{root.proc("sys/net/netfilter/" + name), parseOne(name), why, 1})
	}

	parts = append(parts, namedFile{root.proc("net/stat/nf_conntrack"), parsePerCPU, "", 1})
	return namedProbe("conntrack", record.ScopeNode, metrics, conntrackNames, parts)
}
