package tuning

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Result holds the stored result of tuning a router.
type Result struct {
	Format   string    `json:"format"`
	ID       string    `json:"id"` // id of the first run
	When     time.Time `json:"when"`
	Plan     string    `json:"plan"`
	Lab      string    `json:"lab"`
	Runs     []string  `json:"runs"` // ids of the runs; the first one measured the router as found
	Findings []string  `json:"findings"`
	Budget   Budget    `json:"budget"`
	Tried    []Scored  `json:"tried"`
	Kept     Set       `json:"kept"`
	// Final compares the kept changes with the router as found. It is absent if nothing helped.
	Final     *Scored     `json:"final,omitempty"`
	Permanent []Permanent `json:"permanent,omitempty"`
	Ended     string      `json:"ended"` // "done", "interrupted" or "not finished"
	// Holds lists the conditions under which the result was measured. If one of them changes, the result has
	// expired.
	Holds map[string]string `json:"holds_for"`
}

// held lists the facts of a node on which a result depends.
var held = [...]string{"kernel", "cpu_model", "cores", "governor", "guest_accel", "mitigations"}

// HoldsFor returns the conditions under which a result applies: kernel, CPU, drivers and queue rates of the
// routers, and the load.
func HoldsFor(d *analysis.Document, cells []factor.Cell) map[string]string {
	out := map[string]string{}
	for _, e := range d.Environment {
		if !slices.ContainsFunc(d.Topologies, func(t record.Topology) bool {
			return slices.Contains(t.Routers, e.Node)
		}) {
			continue
		}

		for name, fact := range e.Facts {
			if strings.HasSuffix(name, ":driver") || slices.Contains(held[:], name) {
				out[e.Node+" "+name] = fact
			}
		}
	}

	found := Situation{Found: *d}
	for _, p := range found.ports("") {
		if p.device != nil && p.device.Rated() {
			out[p.place+" rates"] = ratesOf(p.device)
		}
	}

	keys := make([]string, len(cells))
	for i, c := range cells {
		keys[i] = c.Key()
	}

	slices.Sort(keys)
	out["workload"] = strings.Join(keys, "; ")
	return out
}

// Expired describes the conditions that have changed since the result was measured. It returns nil if the
// result still applies.
func (r *Result) Expired(now map[string]string) []string {
	var out []string
	names := maps.Clone(r.Holds)
	maps.Copy(names, now)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		was := r.Holds[name]
		is := now[name]
		if was != is {
			out = append(out, fmt.Sprintf("%s: %s → %s", name, cmp.Or(was, "not known"),
				cmp.Or(is, "not known")))
		}
	}

	return out
}

// nanoseconds converts a duration such as "20us" to ns, for sysfs.
func nanoseconds(level string) string {
	d, err := time.ParseDuration(level)
	if err != nil {
		return "0"
	}
	return strconv.FormatInt(d.Nanoseconds(), 10)
}

// kilobits converts a rate such as "50M" to kbit/s, for OpenWrt's sqm.
func kilobits(level string) string {
	return strconv.FormatFloat(factor.Bitrate(level)/1e3, 'f', 0, 64)
}
