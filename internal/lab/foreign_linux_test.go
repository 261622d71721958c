package lab_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
)

// aDisk is the folder of a disk image as bench/guestdisk makes it.
func aDisk(t *testing.T) string {
	t.Helper()
	apart.Long(t, "boots a guest")
	dir := os.Getenv("CHOKEPOINT_DISK")
	if dir == "" {
		t.Skip("skip: no disk image here; bench/guestdisk/build makes one, CHOKEPOINT_DISK names its folder")
	}

	return dir
}

// foreignLab boots a disk image as the router.
func foreignLab(t *testing.T, file string, login vm.Login) (*lab.Lab, vm.Disk, error) {
	return foreignLabIn(t, t.TempDir(), file, login)
}

// foreignID is that of such a lab, and of its folder.
const foreignID = "foreign"

func foreignLabIn(t *testing.T, dir, file string, login vm.Login) (*lab.Lab, vm.Disk, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute)
	defer cancel()
	d, err := vm.OpenDisk(file)
	must(t, err)
	must(t, d.Identify())
	d.Login = login
	d.Agent, err = vm.GuestProgram(ctx, "amd64", labtest.GuestCache(t), labtest.Source(t),
		func(text string) { t.Log(text) })
	must(t, err)
	g := vm.NewForeignGuest(d)
	l, err := lab.Local{
		ID:       foreignID,
		Topology: forward(t),
		Dir:      dir,
		Guest:    &g,
		Parts:    registry.LabParts(),
	}.Up(ctx)
	labtest.Refused(t, err)
	return l, d, err
}

// TestForeignImage boots a Debian disk, by ssh and by the serial console, in both formats: the router is
// what the layout says and forwards, the agent's file is gone, the disk is as it was.
func TestForeignImage(t *testing.T) {
	dir := aDisk(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	tests := []struct {
		name, file string
		login      vm.Login
	}{
		{"ssh", at("disk.qcow2"), vm.Login{Method: vm.LoginSSH, User: "root", Key: at("key")}},
		{"serial", at("disk.img"), vm.Login{Method: vm.LoginSerial, User: "root", Password: at("password")}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, d, err := foreignLab(t, tt.file, tt.login)
			must(t, err)
			t.Cleanup(func() {
				must(t, l.Close(context.Background()))
				after := d
				if err := after.Identify(); err != nil || after.Sum != d.Sum {
					t.Errorf("disk image: got %s after the lab, %v, want %s as before", after.Sum, err, d.Sum)
				}
			})
			t.Log(l.Note)
			facts := l.MachineFacts(t.Context())
			want := filepath.Base(tt.file) + " " + d.Sum
			if facts["guest_image"] != want {
				t.Errorf("guest_image: got %q, want %q", facts["guest_image"], want)
			}

			release := strings.TrimSpace(labtest.Exec(t, l, "router", "uname", "-r"))
			if release == "" || facts["guest_kernel"] != release || !strings.HasPrefix(facts["guest_system"],
				"Debian") {
				t.Errorf("facts: got %v, want kernel %q of Debian", facts, release)
			}

			if got := labtest.Exec(t, l, "router", "sh", "-c",
				"ls -l /proc/[0-9]*/exe | grep chokepoint-agent"); !strings.Contains(got, "(deleted)") {
				t.Errorf("the agent's program: got %q, want it deleted", got)
			}

			if got := labtest.Exec(t, l, "router", "sh", "-c",
				"ls -d /run/chokepoint* /tmp/chokepoint* ~/chokepoint* 2>/dev/null; true"); got != "" {
				t.Errorf("files of the agent in the guest: got %s, want none", got)
			}

			for ip := 4; ip <= 6; ip += 2 {
				labtest.WantReach(t, l, 0, ip, 1501, 100, 1500)
			}
		})
	}
}

// TestForeignSamplingCost is TestGuestSamplingCost of a whole Debian that is reached over ssh: what its sshd
// takes is in the machine's account.
func TestForeignSamplingCost(t *testing.T) {
	disk := aDisk(t)
	dir := t.TempDir()
	l, _, err := foreignLabIn(t, dir, filepath.Join(disk, "disk.qcow2"), vm.Login{
		Method: vm.LoginSSH,
		User:   "root",
		Key:    filepath.Join(disk, "key"),
	})
	must(t, err)
	t.Cleanup(func() {
		must(t, l.Close(context.Background()))
	})
	ofMachine(t, l, filepath.Join(dir, foreignID))
}

// TestForeignImageRefusesUs: an image that lets nobody in is told of, with the flag that is missing, and is
// not booted a second time.
func TestForeignImageRefusesUs(t *testing.T) {
	dir := aDisk(t)
	l, _, err := foreignLab(t, filepath.Join(dir, "disk.img"), vm.Login{Method: vm.LoginSSH, User: "root"})
	if err == nil {
		l.Close(context.Background())
		t.Fatal("lab up without a key: got a lab, want an error")
	}

	expect.Error(t, "lab up without a key", err, "Permission denied")
	expect.Hint(t, "lab up without a key", err, "--image-key")
}
