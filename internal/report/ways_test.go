package report

import (
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
)

// TestTheWayComesFirst: between two machines the head says what lies there, and the picture shows
// ends, routers, NAT, MTU and version of IP.
func TestTheWayComesFirst(t *testing.T) {
	d := sampleDocument()
	hops := 2
	w := analysis.Way{
		IP:      4,
		Near:    "192.168.1.10",
		Far:     "203.0.113.10",
		Hops:    &hops,
		NAT:     "near",
		MTU:     1492,
		Routers: []string{"192.168.1.1", "?"},
	}
	d.Ways, d.Summary = []analysis.Way{w}, append([]string{w.Words()}, d.Summary...)
	text := Text(d, 100, false)
	const want = "192.168.1.10 → 2 routers (192.168.1.1, ?), NAT, MTU 1492 → 203.0.113.10"
	first, _, _ := strings.Cut(text, "\n\n")
	if !strings.Contains(first, want) {
		t.Errorf("head: got %q, want %q", first, want)
	}

	if strings.Count(text, want) != 2 { // and below the picture's title
		t.Errorf("got the way %d times, want it first and with the picture", strings.Count(text, want))
	}

	html, err := HTML(d)
	if err != nil {
		t.Fatal(err)
	}

	for _, part := range []string{"2 routers", "192.168.1.10", "203.0.113.10", "192.168.1.1 …, NAT",
		"IPv4, MTU 1492"} {
		if !strings.Contains(text, part) || !strings.Contains(string(html), part) {
			t.Errorf("picture: got none with %q, in text or page", part)
		}
	}
}

// TestCoresAreNamedByTheirNode where those of several nodes stand in one chart.
func TestCoresAreNamedByTheirNode(t *testing.T) {
	for _, tt := range []struct{ cores, names, of string }{
		{"host/cpu0 host/cpu1", "cpu0, cpu1", "cores of host"},
		{"router/cpu0 client/cpu0", "client cpu0, router cpu0", "cores of client, router"},
	} {
		s := &analysis.Series{Cores: map[string][]*float64{}}
		for _, name := range strings.Fields(tt.cores) {
			s.Cores[name] = nil
		}

		var line timeline
		line.addCores(s)
		var names []string
		for _, c := range line.Cores {
			names = append(names, c.Name)
		}

		got := strings.Join(names, ", ")
		if got != tt.names || line.CoreName != tt.of {
			t.Errorf("%s: got %q of %q, want %q of %q", tt.cores, got, line.CoreName, tt.names, tt.of)
		}
	}
}
