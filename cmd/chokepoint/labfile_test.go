package main

import (
	"os"
	"path/filepath"
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
