package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// TestADiskThatFailsFailsItsStage: whatever goes wrong with a disk that a stage boots ends the stage, also
// where the shell would go on.
func TestADiskThatFailsFailsItsStage(t *testing.T) {
	stages, err := filepath.Abs("../../.ci/stages.sh")
	if err != nil {
		t.Fatal(err)
	}
	const lives, is = "exec /bin/sleep 60", "true"
	for name, tt := range map[string]struct{ build, qemu, ssh, want string }{
		"all well":            {is, lives, is, ""},
		"it cannot be made":   {"false", lives, is, "fail: the disk cannot be made"},
		"QEMU does not start": {is, "echo no such image; exit 1", "false", "has ended: no such image"},
		"nobody answers":      {is, lives, "echo refused >&2; false", "did not boot: refused"},
		"QEMU ends meanwhile": {is, "exec /bin/sleep .5", "/bin/sleep 1", "ended by itself"},
		"QEMU ends with its status": {is, "trap 'exit 7' TERM; while :; do /bin/sleep .1; done",
			"/bin/sleep .3", "status 7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, text := range map[string]string{"bench/guestdisk/build": tt.build,
				"bin/qemu-system-x86_64": tt.qemu, "bin/ssh": tt.ssh, "bin/qemu-img": is, "bin/sleep": is,
				"disk/key": ""} {
				file = filepath.Join(dir, file)
				err := os.MkdirAll(filepath.Dir(file), 0o700)
				if err == nil {
					err = os.WriteFile(file, []byte("#!/bin/sh\n"+text+"\n"), 0o700)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command("bash", "-euo", "pipefail", "-c",
				`. "$0"; (boot_disk disk && in_disk disk x && end_disk) || exit 3`, stages)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			if passed := err == nil; passed != (tt.want == "") || !strings.Contains(string(out), tt.want) {
				t.Errorf("got %v (%s), want %q", err, out, tt.want)
			}
		})
	}
}
