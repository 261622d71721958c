package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
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
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *plan != "quick" || flags.NArg() != 1 {
		return fmt.Errorf("want -plan quick and one document")
	}
	doc, err := readDocument(flags.Arg(0))
	if err != nil {
		return err
	}
	for _, c := range doc.Cells {
		fmt.Fprintf(out, "note: %-40s %-8s %s\n", c.Label, c.Grade, kinds(c))
	}
	return checkQuick(doc).err()
}

func readDocument(name string) (document, error) {
	var doc document
	data, err := os.ReadFile(name)
	if err != nil {
		return doc, err
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return document{}, fmt.Errorf("parse %s: %v", name, err)
	}
	return doc, nil
}

func kinds(c cell) string {
	var list []string
	for _, r := range c.Reasons {
		list = append(list, r.Kind)
	}
	return strings.Join(list, ", ")
}

func checkQuick(doc document) faults {
	var f faults
	if doc.Format != "chokepoint/1" || doc.Run.Plan != "quick" || !record.InNamespaces(doc.Run.Lab) ||
		doc.Run.Status != "done" {
		f.add("head: got format %q, plan %q, lab %q, status %q; want chokepoint/1, quick, local, done",
			doc.Format, doc.Run.Plan, doc.Run.Lab, doc.Run.Status)
	}
	if doc.Run.Seed == "" || doc.Run.ID == "" || doc.Run.Command == "" {
		f.add("head: got id %q, seed %q, command %q; want none empty", doc.Run.ID, doc.Run.Seed,
			doc.Run.Command)
	}
	if len(doc.Cells) != len(quick) {
		f.add("cells: got %d, want %d", len(doc.Cells), len(quick))
	}
	for _, w := range quick {
		var found []cell
		for _, c := range doc.Cells {
			if w.matches(c) {
				found = append(found, c)
			}
		}
		if len(found) != 1 {
			f.add("cell %v: got %d, want exactly one", w, len(found))
			continue
		}
		checkCell(&f, found[0])
	}
	return f
}

// checkCell: a cell of quick has its rate, its latencies and its ranges.
func checkCell(f *faults, c cell) {
	if c.Grade != "valid" && c.Grade != "suspect" {
		f.add("cell %s: grade %q, want valid or suspect", c.Label, c.Grade)
	}
	if c.Grade == "suspect" && len(c.Reasons) == 0 {
		f.add("cell %s: suspect without a reason", c.Label)
	}
	if c.Runs != 3 || c.Failed != 0 {
		f.add("cell %s: %d runs and %d failed, want 3 and 0", c.Label, c.Runs, c.Failed)
	}
	if c.Factors["offload"] != "wire" || c.Factors["ip"] != "4" || c.Factors["topology"] != "forward" {
		f.add("cell %s: offload %q, ip %q, topology %q; want wire, 4, forward", c.Label, c.Factors["offload"],
			c.Factors["ip"], c.Factors["topology"])
	}
	if c.Ceiling.Kind != "none: virtual link" || c.Ceiling.HeaderEfficiency <= 0 ||
		c.Ceiling.HeaderEfficiency >= 1 {
		f.add("cell %s: ceiling %q with header efficiency %v, want none: virtual link and a ratio", c.Label,
			c.Ceiling.Kind, c.Ceiling.HeaderEfficiency)
	}
	limits := map[string][2]float64{ // plausible on any machine of this century
		"rtt_idle_p50_ns": {100, 1e9}, "rtt_loaded_p99_ns": {100, 10e9},
	}
	if c.Factors["protocol"] == "udp" {
		limits["packet_rate_pps"] = [2]float64{100, 1e9}
		limits["loss_ratio"] = [2]float64{0, 1}
	} else {
		limits["goodput_bps"] = [2]float64{1e6, 1e12}
	}
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		limit := limits[name]
		v, ok := c.Metrics[name]
		if !ok {
			f.add("cell %s: no %s", c.Label, name)
			continue
		}
		// The probes of one short window do not carry a 99th percentile; those of all three together do.
		if name == "rtt_loaded_p99_ns" && v.Interval == "pooled" {
			if v.N != 3 || v.Low > v.Median || v.Median > v.High || v.Low < limit[0] || v.High > limit[1] {
				f.add("cell %s: %s is %v [%v, %v] with n=%d, want it ordered, in %v and n=3", c.Label, name,
					v.Median, v.Low, v.High, v.N, limit)
			}
			continue
		}
		if v.N != 3 || len(v.Values) != 3 || v.Interval != "range" {
			f.add("cell %s: %s has n=%d, %d values and interval %q; want 3, 3 and range", c.Label, name, v.N,
				len(v.Values), v.Interval)
			continue
		}
		low, high := min(v.Values[0], v.Values[1], v.Values[2]), max(v.Values[0], v.Values[1], v.Values[2])
		sum := v.Values[0] + v.Values[1] + v.Values[2]
		if v.Low != low || v.High != high || math.Abs(v.Median-(sum-low-high)) > 1e-12*math.Abs(sum) {
			f.add("cell %s: %s is %v [%v, %v], which does not follow from %v", c.Label, name, v.Median, v.Low,
				v.High, v.Values)
		}
		if low < limit[0] || high > limit[1] {
			f.add("cell %s: %s lies in [%v, %v], outside of %v", c.Label, name, low, high, limit)
		}
	}
}
