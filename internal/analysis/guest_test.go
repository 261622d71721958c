package analysis

import (
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestGuestsAreSaid: what a virtual router's numbers mean stands in the
// summary and among the caveats.
func TestGuestsAreSaid(t *testing.T) {
	const nothing = "an emulated router's absolute speed means nothing; its ratios, counters and reactions do"
	tests := []struct {
		lab, accel string
		first      string
		emulated   bool
		shared     string
	}{
		{"local", "", "This machine acting as a router: how fast it forwards.", false, "client, router and server share this machine's cores"},
		{"vm", "tcg", "An emulated router: how fast it forwards.", true, "virtual cores"},
		{"vm:arm64", "", "An emulated router: how fast it forwards.", true, "virtual cores"},
		{"vm", "kvm", "A virtual router: how fast it forwards.", false, "virtual cores"},
	}
	for _, tt := range tests {
		t.Run(tt.lab+" "+tt.accel, func(t *testing.T) {
			run, trials := quickRun(3)
			run.Lab = tt.lab
			run.Design.Description = "This machine acting as a router: how fast it forwards. More is in the guide."
			if tt.accel != "" {
				run.Environments = append(run.Environments, record.Environment{Node: "host", Facts: map[string]string{"guest_accel": tt.accel}})
			}
			d := Derive(run, trials)
			if d.Summary[0] != tt.first || !strings.HasPrefix(d.Run.Description, strings.TrimSuffix(tt.first, "forwards.")) {
				t.Errorf("first line %q, description %q, want %q", d.Summary[0], d.Run.Description, tt.first)
			}
			if got := slices.Contains(d.Summary, "An"+nothing[2:]+"."); got != tt.emulated {
				t.Errorf("summary says that absolute speeds mean nothing: got %v, want %v:\n%s", got, tt.emulated, strings.Join(d.Summary, "\n"))
			}
			kinds := map[string]string{}
			for _, c := range d.Caveats {
				kinds[c.Kind] = c.Text
			}
			if got := kinds["emulated"]; (got == nothing) != tt.emulated {
				t.Errorf("caveat: got %q, want it: %v", got, tt.emulated)
			}
			if got := kinds["shared-cores"]; !strings.Contains(got, tt.shared) {
				t.Errorf("shared cores: got %q, want %q", got, tt.shared)
			}
		})
	}
}
