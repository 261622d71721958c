package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func stream(t *testing.T, events []event) io.Reader {
	t.Helper()
	var b strings.Builder
	for _, e := range events {
		line, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}

		b.Write(append(line, '\n'))
	}

	return strings.NewReader(b.String())
}

func skipped(pkg, test, text string) []event {
	return []event{
		{Action: "pass", Package: pkg, Test: "TestOther"},
		{Action: "output", Package: pkg, Test: test, Output: "    x_test.go:3: " + text + "\n"},
		{Action: "skip", Package: pkg, Test: test},
	}
}

func TestCheck(t *testing.T) {
	allowed, err := readAllowed("# comment\n\nlab/kernel | TestQdisc/.* | the kernel has no | its build\n" +
		"traffic(/.*)? | Test.* | a vCPU was stalled | its hypervisor\n")
	if err != nil {
		t.Fatal(err)
	}

	var stalled []event
	for i := range maxStalled {
		stalled = append(stalled, skipped("m/traffic/udp", fmt.Sprint("Test", i),
			"skip: a vCPU was stalled too often in 6 trials")...)
	}

	oneMore := skipped("m/traffic", "TestMore", "skip: a vCPU was stalled too often in 6 trials")
	for _, tt := range []struct {
		name   string
		events []event
		want   string // passed, failed, skipped
	}{
		{"pass", []event{{Action: "pass", Package: "p", Test: "TestA"}, {Action: "pass", Package: "p"}}, "1 0 0"},
		{"fail", []event{{Action: "fail", Package: "p", Test: "TestA"}}, "0 1 0"},
		{"package does not build", []event{{Action: "pass", Package: "q", Test: "TestB"},
			{Action: "fail", Package: "p"}}, "1 1 0"},
		{"package without tests", []event{{Action: "skip", Package: "p"}}, "0 1 0"},
		{"listed skip", skipped("m/lab/kernel", "TestQdisc/cake", "skip: the kernel has no cake"), "1 0 1"},
		{"another reason", skipped("m/lab/kernel", "TestQdisc/cake", "skip: no time"), "1 1 0"},
		{"another test", skipped("m/lab/kernel", "TestLink", "skip: the kernel has no veth"), "1 1 0"},
		{"another package", skipped("m/lab", "TestQdisc/cake", "skip: the kernel has no cake"), "1 1 0"},
		{"package below", skipped("m/lab/kernel/x", "TestQdisc/cake", "skip: the kernel has no cake"), "1 1 0"},
		{"no reason", skipped("m/lab/kernel", "TestQdisc/cake", "the kernel has no cake"), "1 1 0"},
		{"max stalled", stalled, "5 0 5"},
		{"one more stalled", slices.Concat(stalled, oneMore), "6 1 6"},
	} {
		o, err := check(stream(t, tt.events), allowed, false, io.Discard)
		if err != nil {
			t.Fatal(err)
		}

		got := fmt.Sprint(o.passed, o.failed, o.skipped)
		if got != tt.want {
			t.Errorf("%s: got %s, want %s:\n%s", tt.name, got, tt.want, o.failures.String())
		}
	}
}

func TestReadAllowedRefuses(t *testing.T) {
	for _, line := range []string{"pkg TestA", "pkg | ( | r | c", "| TestA | r | c", "pkg | TestA | | c"} {
		if _, err := readAllowed(line); err == nil {
			t.Errorf("%q was accepted", line)
		}
	}
}

// TestStageFails runs the function tally of .ci/stages.sh: it fails if go test or this program fails.
func TestStageFails(t *testing.T) {
	for _, tt := range []struct {
		tests, gate string
		passes      bool
	}{{"true", "true", true}, {"false", "true", false}, {"true", "false", false}} {
		script := `set -euo pipefail; . ../../.ci/stages.sh; STAGE_COUNTS=/dev/null GATE=$1; tally "$2"`
		said, err := exec.Command("bash", "-c", script, "bash", tt.gate, tt.tests).CombinedOutput()
		if (err == nil) != tt.passes {
			t.Errorf("%+v: got %v\n%s", tt, err, said)
		}
	}
}
