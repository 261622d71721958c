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
	_, err := host.Run(t.Context(), host.Local(), host.Command{Path: g.Program(),
		Args: []string{"--version"}})
	if g.Image.Arch == "" || err != nil {
		t.Skip("skip: no QEMU here")
	}
	cache := GuestCache(t)
	if _, err := os.Stat(cache); err != nil {
		t.Skip("skip: no image of a guest here; chokepoint vm build makes it")
	}
	say := func(text string) { t.Log(text) }
	program, err := vm.GuestProgram(t.Context(), g.Image.Arch, cache, say)
	must(t, err)
	img, err := vm.Recipe{Arch: g.Image.Arch, Program: program, Cache: cache, Say: say}.Image(t.Context())
	must(t, err)
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
	must(t, err)
	return filepath.Join(dir, "chokepoint", "vm")
}

// GuestTime bounds the boot of a lab of guests.
const GuestTime = 90 * time.Second

// UpGuest is UpIn for a lab whose routers are such guests.
func UpGuest(t testing.TB, dir, topology string, g *vm.Guest, parts lab.Parts) (*lab.Lab, string) {
	t.Helper()
	return up(t, lab.Local{Dir: dir, Guest: g, Parts: parts}, topology)
}

// UpDriven is UpIn for a lab of topology forward whose router, a namespace or such a guest, is driven.
func UpDriven(t testing.TB, dir, driver string, g *vm.Guest, parts lab.Parts) (*lab.Lab, string) {
	t.Helper()
	return up(t, lab.Local{Dir: dir, Guest: g, Driver: driver, Parts: parts}, "forward")
}
