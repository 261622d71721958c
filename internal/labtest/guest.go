package labtest

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
)

// Guest is a real guest of this machine's architecture. It skips the test where there is no QEMU, or no
// image has ever been built.
func Guest(t testing.TB) *vm.Guest {
	t.Helper()
	g := vm.Guest{Image: vm.Image{Arch: vm.NativeArch()}}
	if g.Image.Arch == "" {
		t.Skip("skip: no QEMU here")
	}
	if _, err := host.Run(t.Context(), host.Local(), host.Command{Path: g.Program(),
		Args: []string{"--version"}}); err != nil {
		t.Skip("skip: no QEMU here")
	}
	cache := GuestCache(t)
	if _, err := os.Stat(cache); err != nil {
		t.Skip("skip: no image of a guest here; chokepoint vm build makes it")
	}
	say := func(text string) { t.Log(text) }
	program, err := vm.GuestProgram(t.Context(), g.Image.Arch, cache, say)
	if err != nil {
		t.Fatal(err)
	}
	img, err := vm.Recipe{Arch: g.Image.Arch, Program: program, Cache: cache, Say: say}.Image(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g = vm.NewGuest(img)
	return &g
}

// GuestCache is the folder of images and of guests' programs.
func GuestCache(t testing.TB) string {
	t.Helper()
	if cache := os.Getenv("CHOKEPOINT_VM_CACHE"); cache != "" {
		return cache
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "chokepoint", "vm")
}

// GuestTime bounds the boot of a lab of guests.
const GuestTime = 90 * time.Second

// UpGuest is UpIn for a lab whose routers are such guests.
func UpGuest(t testing.TB, dir, topology string, g *vm.Guest, parts lab.Parts) (*lab.Lab, string) {
	t.Helper()
	return upWithin(t, GuestTime, lab.Local{Dir: dir, Guest: g, Parts: parts}, topology)
}

// UpDriven is UpIn for a lab of topology forward whose router, a namespace or such a guest, is driven.
func UpDriven(t testing.TB, dir, driver string, g *vm.Guest, parts lab.Parts) (*lab.Lab, string) {
	t.Helper()
	return upWithin(t, GuestTime, lab.Local{Dir: dir, Guest: g, Driver: driver, Parts: parts}, "forward")
}
