package trial_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// versioned is a fake router's driver that tells its version.
type versioned struct {
	labtest.RouterDriver
	version *string
}

func (v versioned) Facts(context.Context, host.Host) (map[string]string, error) {
	return map[string]string{"distribution": "openwrt", "distribution_release": *v.version,
		"kernel": "6.6.93"}, nil
}

// realRouter lends labs whose router is a machine of its own with a version.
func realRouter(version *string) edited {
	return edited{&fakeLabs{Agentless: []string{"router"}}, 0, func(n *lab.Node) {
		if n.Name == "router" {
			n.Driver = versioned{version: version}
			n.Facts.CPUs = record.CPUsOwn
		}
	}}
}

const twoFirmwares = `
name: x
method: {runs: 2, seed: 3}
matrix: {firmware: [24.10.1, 24.10.2], firewall: [off, "10"]}
measure: {latency_idle: off, latency_loaded: false, verify: false}
`

// ranOf runs a campaign over the labs, and gives what was run: block, firmware and what the trial says that
// it was.
func ranOf(t *testing.T, c *fakeCampaign) (out []string) {
	t.Helper()
	if _, err := c.Campaign.Execute(t.Context()); err != nil {
		t.Fatal(err)
	}

	for _, tr := range c.Trials {
		out = append(out, fmt.Sprintf("block %d %s: %s %s", tr.Row.Block, tr.Row.Factors["firmware"],
			tr.Resolved["firmware"], tr.Status))
	}

	return slices.Compact(out)
}

// TestFirmwareIsInstalledOnce for all blocks of its cells, and not at all where the router has it. What is
// set there is undone before, and nothing of ours is there meanwhile.
func TestFirmwareIsInstalledOnce(t *testing.T) {
	version := "24.10.1"
	labs := realRouter(&version)
	var asked, left []string
	c := prepared(t, twoFirmwares, labs)
	c.Install = func(_ context.Context, level string) error {
		asked, left = append(asked, level), append(left, labs.Fakes["forward"].State()...)
		version = level + "-rc3"
		return nil
	}
	var stored []record.Caveat
	c.Learnt = func(_ context.Context, skipped []record.Skipped, caveats []record.Caveat) error {
		stored = append(stored, caveats...)
		if len(skipped) > 0 {
			t.Errorf("skipped: %+v", skipped)
		}
		return nil
	}
	// Nobody could have installed it when the campaign was prepared.
	for _, s := range c.Run.Skipped {
		if !strings.Contains(s.Reason, "nobody is there to install") || s.Factors["firmware"] != "24.10.2" {
			t.Errorf("skipped: %+v", s)
		}
	}

	c.Run.Skipped = nil
	if err := c.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}

	want := []string{"block 1 24.10.1: openwrt 24.10.1, kernel 6.6.93 ok",
		"block 2 24.10.1: openwrt 24.10.1, kernel 6.6.93 ok",
		"block 1 24.10.2: openwrt 24.10.2-rc3, kernel 6.6.93 ok",
		"block 2 24.10.2: openwrt 24.10.2-rc3, kernel 6.6.93 ok"}
	diff := cmp.Diff(want, ranOf(t, c))
	if diff != "" {
		t.Errorf("trials (-want +got):\n%s", diff)
	}

	if !slices.Equal(asked, []string{"24.10.2"}) || len(left) > 0 {
		t.Errorf("asked for %q with %q set on the router, want 24.10.2 once with nothing", asked, left)
	}

	if len(stored) != 1 || stored[0].Kind != "firmware-in-turn" || !strings.HasSuffix(stored[0].Text,
		"it is not put back: the router has openwrt 24.10.2-rc3, kernel 6.6.93 now") {
		t.Errorf("stored: %+v", stored)
	}

	for _, e := range c.Run.Environments {
		if e.Node == "router" && e.Facts["firmware"] != "openwrt 24.10.1, kernel 6.6.93" {
			t.Errorf("the router's facts: %+v", e.Facts)
		}
	}

	steps := c.Told("step")
	if len(steps) != 1 || !strings.Contains(steps[0],
		"firmware 24.10.2 on the router, which has openwrt 24.10.1") {
		t.Errorf("steps: %q", steps)
	}
}

// TestFirmwareThatCannotBeHad: its cells are skipped with the reason, and those of the others run.
func TestFirmwareThatCannotBeHad(t *testing.T) {
	for name, tt := range map[string]struct {
		install func(version *string) error
		want    string
	}{
		"the step fails": {func(*string) error { return errors.New("no image of it") },
			"firmware 24.10.1: the step that installs it: no image of it; the router has openwrt 24.10.2, " +
				"kernel 6.6.93"},
		"it installs another": {func(v *string) error { *v = "23.05.5"; return nil },
			"firmware 24.10.1: after the step that installs it: the router has openwrt 23.05.5, kernel " +
				"6.6.93"},
	} {
		version := "24.10.2"
		labs := realRouter(&version)
		c := prepared(t, twoFirmwares, labs)
		c.InstallWait = 10 * time.Millisecond
		c.Install = func(_ context.Context, level string) error {
			if level == "24.10.2" {
				version = level
				return nil
			}
			return tt.install(&version)
		}
		c.Run.Skipped = nil
		var stored []record.Skipped
		installed := 0
		c.Learnt = func(_ context.Context, skipped []record.Skipped, caveats []record.Caveat) error {
			stored, installed = append(stored, skipped...), installed+len(caveats)
			return nil
		}
		if err := c.Prepare(t.Context()); err != nil {
			t.Fatal(err)
		}

		for _, ran := range ranOf(t, c) {
			if !strings.HasSuffix(ran, " 24.10.2: openwrt 24.10.2, kernel 6.6.93 ok") {
				t.Errorf("%s: %s", name, ran)
			}
		}

		told := installed > 0
		if told != (name != "the step fails") {
			t.Errorf("%s: firmware was installed: %v", name, told)
		}

		if len(stored) != 2 || stored[0].Reason != tt.want || stored[1].Reason != tt.want ||
			!slices.Contains(c.Told("warning"), "skipped: "+tt.want+" (2 cells)") {
			t.Errorf("%s: stored %+v, told %q, want %s of two cells", name, stored, c.Told("warning"),
				tt.want)
		}
	}
}

// TestFirmwareOfARouterThatHasNone: a namespace and a guest are no machines whose system could be another.
func TestFirmwareOfARouterThatHasNone(t *testing.T) {
	c := prepared(t, twoFirmwares, &fakeLabs{})
	want := "skipped: firmware on router: the router is part of the lab, not a machine with a system to " +
		"replace (4 cells)"
	if !slices.Contains(c.Told("warning"), want) {
		t.Errorf("got %q, want %s", c.Told("warning"), want)
	}
}
