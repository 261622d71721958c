package analysis

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
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
	for _, name := range keys(a.Conditions, b.Conditions) {
		add("condition", name, a.Conditions[name], b.Conditions[name], true)
	}
	out = append(out, environmentChanges(a.Environment, b.Environment)...)
	left, right := resolved(a), resolved(b)
	for _, name := range keys(left, right) {
		add("environment", name, left[name], right[name], true)
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
	// The same change on many nodes of one machine is one change.
	seen := map[string]int{}
	var out []Change
	for _, node := range keys(left, right) {
		for _, name := range keys(left[node], right[node]) {
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

// resolved lists what each factor was resolved to anywhere in a run.
func resolved(d *Document) map[string]string {
	values := map[string][]string{}
	for i := range d.Cells {
		for name, v := range d.Cells[i].Resolved {
			values[name] = once(values[name], v)
		}
	}
	out := map[string]string{}
	for name, list := range values {
		slices.Sort(list)
		out[name] = strings.Join(list, ", ")
	}
	return out
}

func causesOf(list []Change) []string {
	var out []string
	for _, c := range list {
		if c.Cause {
			out = append(out, fmt.Sprintf("%s: %s → %s", c.Name, cmp.Or(c.A, "none"), cmp.Or(c.B, "none")))
		}
	}
	slices.Sort(out)
	return out
}

// keys are the keys of several maps, sorted.
func keys[V any](all ...map[string]V) []string {
	var names []string
	for _, m := range all {
		names = slices.AppendSeq(names, maps.Keys(m))
	}
	slices.Sort(names)
	return slices.Compact(names)
}
