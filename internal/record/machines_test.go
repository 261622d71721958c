package record

import "testing"

// TestFoundDevice: a real router that was reached is named by its fingerprint, but for what the run replaces.
func TestFoundDevice(t *testing.T) {
	facts := map[string]string{"product": "GL.iNet GL-MT6000", "distribution": "openwrt",
		"distribution_release": "24.10.0"}
	run := Run{
		Machines:     &Machines{Router: Machine{At: "ssh://r"}},
		Environments: []Environment{{Node: "router", Facts: facts}},
	}
	got := run.FoundDevice()
	if got != "GL.iNet GL-MT6000, openwrt 24.10.0" {
		t.Errorf("got %q", got)
	}

	run.Design.Cells = []Factors{{"firmware": "24.10.1"}}
	got = run.FoundDevice()
	if got != "GL.iNet GL-MT6000" {
		t.Errorf("with its firmware replaced: got %q", got)
	}

	run.Machines = nil
	if got := run.FoundDevice(); got != "" {
		t.Errorf("without real machines: got %q", got)
	}

	for want, facts := range map[string]map[string]string{"": nil, "R1": {"product": "R1"},
		"debian 13": {"distribution": "debian", "distribution_version": "13"},
		"CPU":       {"cpu_model": "CPU"}} {
		if got := DeviceOf(facts, true); got != want {
			t.Errorf("%v: got %q, want %q", facts, got, want)
		}
	}
}
