package plan_test

import (
	"fmt"
	"hash/fnv"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/plan"
)

// TestBuiltInsKeepTheirRows: the same seed gives the same cells in the same order as ever.
func TestBuiltInsKeepTheirRows(t *testing.T) {
	want := map[string]string{
		"quick":        "42 rows, 45ef8b3ca9d8551c",
		"path":         "56 rows, 3bfe5b4b47c4dd83",
		"blackbox":     "73 rows, 278541e36bc4dadc",
		"wireguard":    "101 rows, 9815729c377c9c74",
		"queues":       "133 rows, f21f4d006fbd2b72",
		"firewall":     "732 rows, 509916757e7011fa",
		"forwarding":   "86 rows, 669400ed36f383f3",
		"openvpn":      "279 rows, 499537c1370d8e0a",
		"site-to-site": "62 rows, 487ae02d22cb09ea",
		"to-router":    "86 rows, eecaf050c8098e7e",
		"latency":      "49 rows, ec0178e16df0ad01",
		"rfc2544":      "9 rows, 24bf46824f4128a4",
		"ramp":         "44 rows, 8b881a4d93ecbb5c",
		"soak":         "25 rows, d3e0ea35ab74f8c9",
		"crypto":       "36 rows, 4659e15405085c93",
		"crypto-full":  "636 rows, 56c9bfdc4f9007bf",
	}
	for _, name := range plan.BuiltIns() {
		p, err := plan.ReadBuiltIn(name, words(), []string{"method.seed=7"})
		if err != nil {
			t.Fatal(err)
		}

		h := fnv.New64a()
		rows := p.Rows()
		for _, r := range rows {
			fmt.Fprintln(h, r.ID, r.Kind, r.Factors.Key())
		}

		got := fmt.Sprintf("%d rows, %x", len(rows), h.Sum64())
		if got != want[name] {
			t.Errorf("%s: got %q, want %q", name, got, want[name])
		}
	}
}
