package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestLabFilePaths: what stands beside a lab file is found from everywhere, also where the file is named
// without a folder.
func TestLabFilePaths(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for name, text := range map[string]string{"flash.sh": "#!/bin/sh\n", "config": "", "key": "", "lab.yaml": `
client: {at: local}
router: {at: ssh://router, identity: key}
server: ssh://server
ssh_config: config
firmware: {command: [./flash.sh]}
link_speed: 1G
device: of the lab
notes: [fan off]
`} {
		if err := os.WriteFile(name, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}

	want := record.Machines{
		Client: record.Machine{At: record.LocalMachine},
		Router: record.Machine{
			At:       "ssh://router",
			Identity: filepath.Join(dir, "key"),
		},
		Server:    record.Machine{At: "ssh://server"},
		SSHConfig: filepath.Join(dir, "config"),
		Firmware:  &[]string{filepath.Join(dir, "flash.sh")},
		LinkSpeed: "1G",
		Device:    "of the lab",
		Notes:     &[]string{"fan off"},
	}
	for _, name := range []string{"lab.yaml", "./lab.yaml", filepath.Join(dir, "lab.yaml")} {
		got, err := app.ReadLabFile(name)
		diff := cmp.Diff(want, got)
		if err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got)\n%s", name, err, diff)
		}
	}

	// The rate of the link is a condition, unless the plan has that.
	o := labOptions{machines: want}
	var told, untold record.Design
	told.Conditions = map[string]string{record.LinkCondition: "100M"}
	o.condition(&told)
	o.condition(&untold)
	if told.Conditions[record.LinkCondition] != "100M" || untold.Conditions[record.LinkCondition] != "1G" {
		t.Errorf("conditions: %v and %v", told.Conditions, untold.Conditions)
	}
}

// TestDeviceOfRun: a flag names the device before a lab file does, and that before a plan; notes add up.
func TestDeviceOfRun(t *testing.T) {
	for _, tc := range []struct {
		lab         string
		labNotes    *[]string
		labels      runLabels
		device, all string
	}{
		{"", nil, runLabels{}, "plan", "of the plan"},
		{"lab", &[]string{"of the lab"}, runLabels{}, "lab", "of the plan, of the lab"},
		{"lab", nil, runLabels{device: "flag", notes: []string{"flag 1", "flag 2"}}, "flag",
			"of the plan, flag 1, flag 2"},
	} {
		var run record.Run
		run.Device, run.Notes = "plan", []string{"of the plan"}
		o := labOptions{machines: record.Machines{
			Client: record.Machine{At: record.LocalMachine},
			Device: tc.lab,
			Notes:  tc.labNotes,
		}}
		o.describe(&run)
		tc.labels.describe(&run.RunHead)
		notes := list(run.Notes)
		if run.Device != tc.device || notes != tc.all {
			t.Errorf("got %q, %q, want %q, %q", run.Device, notes, tc.device, tc.all)
		}
	}
}

func TestLabelFlags(t *testing.T) {
	for want, l := range map[string]runLabels{
		"":                          {name: "stock", device: "Box", notes: []string{"a"}},
		"it looks like the id":      {name: "20261121"},
		"--device has 101 bytes":    {device: strings.Repeat("a", 101)},
		"--device contains a":       {device: "a\x1b[2Jb"},
		"--note contains a control": {notes: []string{"a", "two\nlines"}},
		"--note is empty":           {notes: []string{""}},
		"--note: 51 are more":       {notes: make([]string, 51)},
	} {
		err := l.check()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %q in it", l, err, want)
		}

		if err != nil && !errors.Is(err, app.ErrUsage) {
			t.Errorf("%+v: got %v, want an ErrUsage", l, err)
		}
	}
}
