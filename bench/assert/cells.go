package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// The document of show --json, as docs/reference/json.md describes it. Declared here once more, so that a
// renamed field fails CI instead of passing silently.
type document struct {
	Format string
	Run    struct{ ID, Plan, Lab, Status, Seed, Command string }
	Cells  []cell
	Trials []struct{ ID, Grade, Kind string }

	Observing struct {
		CoreRatio    float64 `json:"core_ratio"`
		ChargedRatio float64 `json:"charged_ratio"`
		FastRatio    float64 `json:"fast_ratio"`
		Probes       map[string]float64
	}
}

type cell struct {
	Factors map[string]string
	Label   string
	Grade   string
	Reasons []struct{ Kind, Text string }
	Metrics map[string]value
	Ceiling struct {
		Kind             string
		HeaderEfficiency float64 `json:"header_efficiency"`
	}
	Runs, Failed int
}

type value struct {
	Median, Low, High float64
	N                 int
	Values            []float64
	Interval          string
}

// want is a cell that a plan must show, by the factors that tell it apart.
type want map[string]string

// quick are the ten cells of the plan of that name.
var quick = []want{
	{"tunnel": "none", "protocol": "tcp", "streams": "1", "direction": "up", "nat": "off"},
	{"tunnel": "none", "protocol": "tcp", "streams": "1", "direction": "down", "nat": "off"},
	{"tunnel": "none", "protocol": "tcp", "streams": "4", "direction": "up", "nat": "off"},
	{"tunnel": "none", "protocol": "tcp", "streams": "4", "direction": "down", "nat": "off"},
	{"tunnel": "wireguard", "protocol": "tcp", "streams": "1", "direction": "up"},
	{"tunnel": "wireguard", "protocol": "tcp", "streams": "1", "direction": "down"},
	{"tunnel": "wireguard", "protocol": "tcp", "streams": "4", "direction": "up"},
	{"tunnel": "wireguard", "protocol": "tcp", "streams": "4", "direction": "down"},
	{"tunnel": "none", "protocol": "tcp", "streams": "1", "direction": "up", "nat": "masquerade"},
	{"tunnel": "none", "protocol": "udp", "packet_size": "64", "direction": "up"},
}

func (w want) matches(c cell) bool {
	for k, v := range w {
		if c.Factors[k] != v {
			return false
		}
	}
	return true
}

func cellsCommand(args []string, _ io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("cells", flag.ContinueOnError)
	plan := flags.String("plan", "quick", "the plan that was run")
	lab := flags.String("lab", "local", "the lab it was run in")
	flooded := flags.Bool("flooded", false, "UDP flat out floods the router, which loses the probes, too")
	doc, err := readDocument(flags, args)
	if err != nil {
		return err
	}
	if *plan != "quick" {
		return fmt.Errorf("want -plan quick, got %s", *plan)
	}
	for _, c := range doc.Cells {
		var kinds []string
		for _, r := range c.Reasons {
			kinds = append(kinds, r.Kind)
		}
		fmt.Fprintf(out, "note: %-40s %-8s %s\n", c.Label, c.Grade, strings.Join(kinds, ", "))
	}
	return checkQuick(doc, *lab, *flooded).err()
}

// readDocument reads the one that a command's arguments name besides its flags.
func readDocument(flags *flag.FlagSet, args []string) (doc document, err error) {
	if err := flags.Parse(args); err != nil {
		return doc, err
	}
	if flags.NArg() != 1 {
		return doc, fmt.Errorf("want one document, got %q", flags.Args())
	}
	return parseDocument(flags.Arg(0))
}

func parseDocument(name string) (doc document, err error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return doc, err
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return document{}, fmt.Errorf("parse %s: %v", name, err)
	}
	return doc, nil
}

func checkQuick(doc document, lab string, flooded bool) (f faults) {
	head := []string{doc.Format, doc.Run.Plan, doc.Run.Lab, doc.Run.Status}
	wanted := []string{"chokepoint/1", "quick", lab, "done"}
	f.must(slices.Equal(head, wanted), "head: got format, plan, lab and status %q, want %q", head, wanted)
	f.must(doc.Run.Seed != "" && doc.Run.ID != "" && doc.Run.Command != "",
		"head: got id %q, seed %q, command %q; want none empty", doc.Run.ID, doc.Run.Seed, doc.Run.Command)
	f.must(len(doc.Cells) == len(quick), "cells: got %d, want %d", len(doc.Cells), len(quick))
	for _, w := range quick {
		found := slices.DeleteFunc(slices.Clone(doc.Cells), func(c cell) bool { return !w.matches(c) })
		if len(found) != 1 {
			f.add("cell %v: got %d, want exactly one", w, len(found))
			continue
		}
		f = append(f, checkCell(found[0], flooded)...)
	}
	return f
}

// checkCell: a cell of quick has its rate, its latencies and its ranges.
func checkCell(c cell, flooded bool) (f faults) {
	must := func(holds bool, format string, args ...any) {
		f.must(holds, "cell %s: "+format, append([]any{c.Label}, args...)...)
	}
	must(c.Grade == "valid" || c.Grade == "suspect", "grade %q, want valid or suspect", c.Grade)
	must(c.Grade != "suspect" || len(c.Reasons) > 0, "suspect without a reason")
	must(c.Runs == 3 && c.Failed == 0, "%d runs and %d failed, want 3 and 0", c.Runs, c.Failed)
	must(c.Factors["offload"] == "wire" && c.Factors["ip"] == "4" && c.Factors["topology"] == "forward",
		"offload %q, ip %q, topology %q; want wire, 4, forward", c.Factors["offload"], c.Factors["ip"],
		c.Factors["topology"])
	efficiency := c.Ceiling.HeaderEfficiency
	must(c.Ceiling.Kind == "none: virtual link" && efficiency > 0 && efficiency < 1,
		"ceiling %q with header efficiency %v, want none: virtual link and a ratio", c.Ceiling.Kind,
		efficiency)
	limits := map[string][2]float64{ // plausible on any machine of this century
		"rtt_idle_p50_ns": {100, 1e9}, "rtt_loaded_p99_ns": {100, 10e9},
	}
	if c.Factors["protocol"] == "udp" {
		limits["packet_rate_pps"] = [2]float64{100, 1e9}
		limits["loss_ratio"] = [2]float64{0, 1}
		if flooded && c.Metrics["loss_ratio"].Median > .5 { // too few probes return for a 99th percentile
			delete(limits, "rtt_loaded_p99_ns")
		}
	} else {
		limits["goodput_bps"] = [2]float64{1e6, 1e12}
	}
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		limit := limits[name]
		v, ok := c.Metrics[name]
		switch {
		case !ok:
			must(false, "no %s", name)
		case name == "rtt_loaded_p99_ns" && v.Interval == "pooled":
			// The probes of one short window do not carry a 99th percentile; those of all three together do.
			must(v.N == 3 && slices.IsSorted([]float64{limit[0], v.Low, v.Median, v.High, limit[1]}),
				"%s is %v [%v, %v] with n=%d, want it ordered, in %v and n=3", name, v.Median, v.Low, v.High,
				v.N, limit)
		case v.N != 3 || len(v.Values) != 3 || v.Interval != "range":
			must(false, "%s has n=%d, %d values and interval %q; want 3, 3 and range", name, v.N,
				len(v.Values), v.Interval)
		default:
			sorted := slices.Sorted(slices.Values(v.Values))
			must(v.Low == sorted[0] && v.Median == sorted[1] && v.High == sorted[2],
				"%s is %v [%v, %v], which does not follow from %v", name, v.Median, v.Low, v.High, v.Values)
			must(sorted[0] >= limit[0] && sorted[2] <= limit[1], "%s lies in [%v, %v], outside of %v", name,
				sorted[0], sorted[2], limit)
		}
	}
	return f
}
