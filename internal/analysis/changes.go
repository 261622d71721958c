package analysis

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// changes lists everything that differs between the runs and is not a factor.
func changes(a, b *Document) []Change {
	var out []Change
	add := func(kind, name, x, y string, cause bool) {
		if x != y {
			out = append(out, Change{kind, name, x, y, cause})
		}
	}
	add("lab", "lab", a.Run.Lab, b.Run.Lab, true)
	add("lab", "note", a.Run.LabNote, b.Run.LabNote, true)
	add("version", "chokepoint", a.Run.Version, b.Run.Version, true)
	if a.Run.Version == b.Run.Version { // of another version it is another one anyway
		add("version", "hash of the program", a.Run.BinaryHash, b.Run.BinaryHash, true)
	}
	add("plan", "name", a.Run.Plan, b.Run.Plan, false)
	add("plan", "duration", a.Run.Method.Duration.String(), b.Run.Method.Duration.String(), true)
	add("plan", "warmup", a.Run.Method.Warmup.String(), b.Run.Method.Warmup.String(), true)
	add("plan", "cooldown", a.Run.Method.Cooldown.String(), b.Run.Method.Cooldown.String(), true)
	add("plan", "idle", a.Run.Method.Idle.String(), b.Run.Method.Idle.String(), true)
	add("plan", "order", a.Run.Method.Order, b.Run.Method.Order, true)
	x, y := a.Run.Measure, b.Run.Measure
	add("plan", "latency_idle", x.LatencyIdle, y.LatencyIdle, true)
	add("plan", "latency_loaded", fmt.Sprint(x.LatencyLoaded), fmt.Sprint(y.LatencyLoaded), true)
	add("plan", "probe_interval", x.ProbeInterval.String(), y.ProbeInterval.String(), true)
	add("plan", "verify", fmt.Sprint(x.Verify), fmt.Sprint(y.Verify), true)
	add("plan", "telemetry", fmt.Sprint(x.Telemetry), fmt.Sprint(y.Telemetry), true)
	for _, name := range slices.Sorted(maps.Keys(namesOf(a.Conditions, b.Conditions))) {
		add("condition", name, a.Conditions[name], b.Conditions[name], true)
	}
	out = append(out, environmentChanges(a.Environment, b.Environment)...)
	for _, name := range resolvedNames(a, b) {
		add("environment", name, resolvedOf(a, name), resolvedOf(b, name), true)
	}
	return out
}

// environmentChanges compares fingerprints node by node. A fact that is unknown on one side cannot be ruled
// out, and is listed as unknown.
func environmentChanges(a, b []record.Environment) []Change {
	facts := func(list []record.Environment) map[string]map[string]string {
		m := map[string]map[string]string{}
		for _, e := range list {
			m[e.Node] = e.Facts
		}
		return m
	}
	left, right := facts(a), facts(b)
	nodes := map[string]bool{}
	for n := range left {
		nodes[n] = true
	}
	for n := range right {
		nodes[n] = true
	}
	// The same change on many nodes of one machine is one change.
	seen := map[string]int{}
	var out []Change
	for _, node := range slices.Sorted(maps.Keys(nodes)) {
		for _, name := range slices.Sorted(maps.Keys(namesOf(left[node], right[node]))) {
			x, y := known(left[node], name), known(right[node], name)
			if x == y || volatileFacts[name] {
				continue
			}
			key := name + "\x00" + x + "\x00" + y
			if i, again := seen[key]; again {
				out[i].Name += ", " + node
				continue
			}
			seen[key] = len(out)
			out = append(out, Change{"environment", name + " on " + node, x, y, true})
		}
	}
	return out
}

func known(facts map[string]string, name string) string {
	if v, ok := facts[name]; ok {
		return v
	}
	return "unknown"
}

// volatileFacts change from boot to boot or run to run by themselves.
var volatileFacts = map[string]bool{"boot_id": true, "uptime": true, "hostname": true, "time": true}

func resolvedNames(a, b *Document) []string {
	names := map[string]bool{}
	for _, d := range []*Document{a, b} {
		for i := range d.Cells {
			for n := range d.Cells[i].Resolved {
				names[n] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// resolvedOf lists what a factor was resolved to anywhere in a run.
func resolvedOf(d *Document, name string) string {
	values := map[string]bool{}
	for i := range d.Cells {
		if v := d.Cells[i].Resolved[name]; v != "" {
			values[v] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(values)), ", ")
}

func causesOf(list []Change) []string {
	var out []string
	for _, c := range list {
		if c.Cause {
			out = append(out, fmt.Sprintf("%s: %s → %s", c.Name, orNone(c.A), orNone(c.B)))
		}
	}
	sort.Strings(out)
	return out
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func namesOf(a, b map[string]string) map[string]bool {
	names := map[string]bool{}
	for _, m := range []map[string]string{a, b} {
		for n := range m {
			names[n] = true
		}
	}
	return names
}
