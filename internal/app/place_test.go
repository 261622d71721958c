package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/labgrid"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestMachinesOfAPlace: the tags name what the lab file does not, and nothing else.
func TestMachinesOfAPlace(t *testing.T) {
	p := record.Place{Name: "board-7"}
	tags := []string{"cp.client=ssh://pc1", "cp.server=ssh://pc2", "cp.router=ssh://root@192.0.2.1",
		"cp.lan-port=br-lan", "cp.wan-port=eth0", "cp.mgmt=eth2", "device=a", "cp.other=b"}
	got, err := ofPlace(record.Machines{Client: record.Machine{At: "local"}}, p, tags)
	want := record.Machines{
		Client: record.Machine{At: "local"},
		Router: record.Machine{At: "ssh://root@192.0.2.1", LAN: "br-lan", WAN: "eth0", Management: "eth2"},
		Server: record.Machine{At: "ssh://pc2"},
		Place:  &p,
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("got %v (-want +got)\n%s", err, diff)
	}

	for want, tags := range map[string][]string{
		"the lab file has no server, and place board-7 has no tag cp.server": {"cp.client=local"},
		`"-oProxyCommand=x" is no host`:                                      {"cp.client=local", "cp.server=ssh://-oProxyCommand=x"},
		`wan "eth0; reboot" is no name of a device`:                          {"cp.client=local", "cp.server=ssh://a", "cp.router=ssh://b", "cp.wan-port=eth0; reboot"},
		"wan without a router":                                               {"cp.client=local", "cp.server=ssh://a", "cp.wan-port=eth0"},
		"client, router and server are machines of their own":                {"cp.client=ssh://a", "cp.server=ssh://a"},
	} {
		_, err := ofPlace(record.Machines{}, p, tags)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", tags, err, want)
		}
	}
}

// TestAPlaceMayNameTheRouter: address translation is only left out of a plan when it is known that the router
// cannot be reached.
func TestAPlaceMayNameTheRouter(t *testing.T) {
	for _, place := range []*record.Place{nil, {Name: "board-7"}} {
		pl, err := ReadPlan("x.yaml", "matrix: {nat: [off, masquerade]}", Peer{})
		if err != nil {
			t.Fatal(err)
		}

		head := record.Run{Machines: &record.Machines{Place: place}, Design: pl.Design}
		x, err := (&App{}).execution(t.Context(), pl, head, RunOptions{})
		if err != nil {
			t.Fatal(err)
		}

		kept := 0
		for _, cell := range x.run.Design.Cells {
			if factor.NAT.In(cell) {
				kept++
			}
		}

		if want := len(x.run.Design.Cells); (kept == want) != (place != nil) {
			t.Errorf("place %v: %d of %d cells have their address translation", place, kept, want)
		}
	}
}

// TestAComparisonKeepsItsMachines: the place that a comparison of versions takes is not written into the
// description of the machines that it was started with.
func TestAComparisonKeepsItsMachines(t *testing.T) {
	on := record.Run{Machines: &record.Machines{Place: &record.Place{Tags: []string{"a=b"}}}}
	turn, err := (&App{}).inTurn(t.Context(), UpgradeOptions{On: on, Fresh: true})
	if err != nil {
		t.Fatal(err)
	}

	turn.On.Machines.Place = &record.Place{Name: "board-7"}
	if on.Machines.Place.Name != "" {
		t.Error("the place that was taken is in the caller's description")
	}
}

// TestFlash: the image of the level is checked before anything happens; the commands get its path.
func TestFlash(t *testing.T) {
	dir := t.TempDir()
	image := filepath.Join(dir, "24.10.2.img")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	client, err := os.ReadFile("../lab/labgrid/testdata/labgrid-client") // plays it
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "labgrid-client"), client, 0o700)
	}

	if err != nil {
		t.Fatal(err)
	}

	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("PLAYED", dir)
	held, err := labgrid.Take(t.Context(), host.Local(), nil, "run-1", record.Place{Name: "board-7"}, nil)
	if err != nil {
		t.Fatal(err)
	}

	log := func() string {
		b, _ := os.ReadFile(filepath.Join(dir, "log"))
		return string(b)
	}
	before := log()
	x := &execution{sink: &heard{}, held: held}
	x.run.Machines = &record.Machines{Flash: &record.Flash{
		Image:    filepath.Join(dir, "LEVEL.img"),
		Commands: []string{"write-image IMAGE", "set-comment LEVEL"},
	}}
	if err := x.installer()(t.Context(), "24.10.2"); err != nil {
		t.Fatal(err)
	}

	err = x.installer()(t.Context(), "24.10.3")
	if err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("an image that is not there: got %v", err)
	}

	if err := os.WriteFile(filepath.Join(dir, "unpowered"), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	x.run.Machines.Flash.Commands = []string{"power cycle", "write-image IMAGE"}
	err = x.installer()(t.Context(), "24.10.2")
	if err == nil || !strings.Contains(err.Error(), "target has no compatible resource available") {
		t.Errorf("a command that fails: got %v", err)
	}

	want := "-p board-7 write-image " + image + "\n-p board-7 set-comment 24.10.2\n-p board-7 power cycle\n"
	if got := strings.TrimPrefix(log(), before); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
