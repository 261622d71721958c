package probe

import (
	"errors"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// conntrackNames are the columns of /proc/net/stat/nf_conntrack that we keep
// (net/netfilter/nf_conntrack_standalone.c, ct_cpu_seq_show), by the kernel's own spelling, with their
// stems.
var conntrackNames = map[string]string{
	"clashres": "clash_resolved", "found": "found", "invalid": "invalid", "insert_failed": "insert_failed",
	"drop": "drop", "early_drop": "early_drop", "icmp_error": "error", "search_restart": "search_restart",
	"chainlength": "chain_too_long",
}

var conntrackStems = [...]string{"entries", "max", "clash_resolved", "found", "invalid",
	"insert_failed", "drop", "early_drop", "error", "search_restart", "chain_too_long"}

var errConntrack = errors.New("parse /proc/net/stat/nf_conntrack: want a heading and rows of hexadecimal " +
	"numbers")

// parseConntrack adds up the rows of the cores, setting dst[want[stem]]. Kernels name and order the columns
// differently, so the heading decides.
func parseConntrack(b []byte, want map[string]int, dst []float64) error {
	head, b := line(b)
	if len(trim(head)) == 0 {
		return errConntrack
	}
	var at []int // column → index into dst, or -1
	for {
		var w []byte
		if w, head = word(head); len(w) == 0 {
			break
		}
		i := -1
		if stem, ok := conntrackNames[string(w)]; ok {
			if j, ok := want[stem]; ok {
				i = j
				dst[j] = 0
			}
		}
		at = append(at, i)
	}
	for len(b) > 0 {
		var l []byte
		l, b = line(b)
		if len(trim(l)) == 0 {
			continue
		}
		for _, i := range at {
			var w []byte
			w, l = word(l)
			v, ok := hexNumber(w)
			if !ok {
				return errConntrack
			}
			if i >= 0 {
				dst[i] += float64(v)
			}
		}
	}
	return nil
}

// parseOne reads a file that holds one number as the stem.
func parseOne(stem string) func(b []byte, want map[string]int, dst []float64) error {
	return func(b []byte, want map[string]int, dst []float64) error {
		w, _ := word(b)
		v, ok := signed(w)
		if !ok {
			return errors.New("parse " + stem + ": not a whole number")
		}
		if i, ok := want[stem]; ok {
			dst[i] = v
		}
		return nil
	}
}

func conntrack(root Root) Probe {
	const why = "connection tracking is not in use on this kernel (nf_conntrack is not loaded)"
	docs := "of connection tracking in this network namespace, all cores together"
	metrics := []record.Metric{
		level(record.ScopeNode, conntrackStems[0], "count", "connections tracked now"),
		level(record.ScopeNode, conntrackStems[1], "count", "most connections that can be tracked"),
	}
	for _, s := range conntrackStems[2:] {
		metrics = append(metrics, counter(record.ScopeNode, s, "count", docs))
	}
	path := root.proc("sys/net/netfilter/nf_conntrack_count")
	return entry{name: "conntrack", slow: true, metrics: metrics, check: fileCheck(path, why),
		open: func() (Sampler, error) {
			return openNamed([]namedFile{
				{path, parseOne("entries"), why, 1},
				{root.proc("sys/net/netfilter/nf_conntrack_max"), parseOne("max"), "", 1},
				{root.proc("net/stat/nf_conntrack"), parseConntrack, "", 1},
			}, conntrackStems[:])
		}}
}
