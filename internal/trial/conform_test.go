package trial

import (
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// TestABundleNamesNobody: what is given to others has neither addresses nor names of hosts, and all else.
func TestABundleNamesNobody(t *testing.T) {
	h := host.Local()
	c := &Conformance{of: &lab.Node{Name: "router", Host: h}}
	for text, want := range map[string]string{
		"read queue on " + h.Name() + ": busy":             "read queue on router: busy",
		"via 192.0.2.7 or [2001:db8::1]:22, 198.18.0.0/24": "via ADDRESS or [ADDRESS]:22, ADDRESS/24",
		"02:fc:00:00:00:01 at fe80::1%eth0 and ::1":        "ADDRESS at ADDRESS%eth0 and ADDRESS",
		"6.1.0-56-cloud-amd64 at 10:15, cache 32 KiB":      "6.1.0-56-cloud-amd64 at 10:15, cache 32 KiB",
		"exit status 2: Error: bad, dead.beef 1.16.2":      "exit status 2: Error: bad, dead.beef 1.16.2",
	} {
		if got := c.anonymous(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
