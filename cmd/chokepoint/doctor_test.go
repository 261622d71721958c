package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial"
)

// TestDoctorFits: what a machine can do fits into 80 columns, with every word, and a reason that differs from
// the one above in the number of a device alone stands once.
func TestDoctorFits(t *testing.T) {
	no := func(name, device string) trial.Capability {
		return trial.Capability{Area: "tunnel", Name: name, Answer: check.Answer{
			State:  check.No,
			Reason: "client: the kernel has no IPsec: add xfrm interface " + device + ": not supported",
			Hint:   "load the modules xfrm_interface and esp4, or take a lab with a kernel of its own",
		}}
	}
	f := &app.Findings{
		Lab: trial.Capability{Area: "lab", Name: "local", Answer: check.OK()},
		Capabilities: []trial.Capability{no("esp", "cpesp94"), no("esp-aes-cbc-sha256", "cpesp107"),
			no("wireguard", "wg")},
	}
	for _, width := range []int{0, 80} {
		text := findingsText(f, width)
		words := strings.Join(strings.Fields(text), " ")
		if strings.Count(words, "add xfrm interface cpesp") != 1 || !strings.Contains(words, "as esp") ||
			strings.Count(words, "with a kernel of its own") != 2 {
			t.Errorf("a reason stands twice, or is missing:\n%s", text)
		}

		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); width > 0 && n > width {
				t.Errorf("%d columns: %q", n, line)
			}
		}
	}
}

// TestDoctorJSON: --json prints the findings as one line, others read it.
func TestDoctorJSON(t *testing.T) {
	var out bytes.Buffer
	p := program{streams: streams{Out: &out}, json: true}
	err := p.findings(&app.Findings{
		Version:  "chokepoint v1",
		Lab:      trial.Capability{Area: "lab", Name: "local", Answer: check.OK()},
		Ceilings: []record.Ceiling{{Unit: "bit/s", Value: 5e9}},
	})
	want := regexp.MustCompile(`^{"version":"chokepoint .*"lab":{.*"state":"yes".*"ceilings":\[{.*}\n$`)
	if err != nil || !want.MatchString(out.String()) {
		t.Errorf("got %v and %q, want the lab and the ceilings on one line", err, out.String())
	}
}

// TestPlanListFits: the plans fit into 80 columns, and a file has one line for each.
func TestPlanListFits(t *testing.T) {
	list := []listedPlan{{Name: "quick", Cells: 10, Runs: 3, Description: strings.Repeat("words ", 30)},
		{Name: "wireguard", Cells: 11, Runs: 6, Description: "What WireGuard costs"}}
	if got := strings.Count(planListText(list, 0), "\n"); got != len(list) {
		t.Errorf("got %d lines, want %d", got, len(list))
	}

	text := planListText(list, 80)
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(line); n > 81 {
			t.Errorf("%d columns: %q", n, line)
		}
	}

	if got := strings.Count(text, "words"); got != 30 || !strings.Contains(text, "\nwireguard") {
		t.Errorf("got %d words, want 30:\n%s", got, text)
	}
}
