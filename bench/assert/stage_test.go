package main

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// TestJudgePassesOnTheExitStatus runs the function of CI that asks this program: a test run that broke
// fails the stage, also when its events are fine, and so does what this program finds.
func TestJudgePassesOnTheExitStatus(t *testing.T) {
	tests := []struct {
		name, run, verdict string
		passes             bool
	}{
		{"all well", "true", "true", true},
		{"the run broke", "false", "true", false},
		{"the events are bad", "true", "false", false},
		{"both", "false", "false", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			script := `set -euo pipefail; . ../../.ci/stages.sh; STAGE_COUNTS=$1 ASSERT=$2; judge "$3"`
			cmd := exec.Command("bash", "-c", script, "judge", filepath.Join(t.TempDir(), "counts"),
				tt.verdict, tt.run)
			out, err := cmd.CombinedOutput()
			if passed := err == nil; passed != tt.passes {
				t.Errorf("got %v (%s), want it to pass: %v", err, out, tt.passes)
			}
		})
	}
}
