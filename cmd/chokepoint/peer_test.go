package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// TestRefusalsAreToldNowAndThen: a scan does not fill the screen, and what concerns a run is always reported.
func TestRefusalsAreToldNowAndThen(t *testing.T) {
	var noted []string
	r := refusals{note: func(format string, args ...any) {
		noted = append(noted, fmt.Sprintf(format, args...))
	}}
	for i := range 500 {
		r.report(netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 1), "refused: wrong code")
	}

	if len(noted) != 1 || noted[0] != "192.0.2.0:1: refused: wrong code" {
		t.Errorf("500 refusals at once: got %q, want the first", noted)
	}

	from := netip.MustParseAddrPort("192.0.2.9:1")
	r.report(from, "a run has begun")
	r.report(from, "the run has ended")
	if len(noted) != 3 {
		t.Errorf("a run: got %q, want both told", noted)
	}

	r.last = r.last.Add(-2 * reportAny)
	r.report(from, "refused: wrong code")
	if !slices.ContainsFunc(noted, func(s string) bool {
		return strings.Contains(s,
			"and 499 refusals before that are not shown")
	}) {
		t.Errorf("later: got %q, want that 499 were not told", noted)
	}
}
