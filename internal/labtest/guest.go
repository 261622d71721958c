package labtest

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
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
	shape, err := lab.TopologyNamed(topology)
	if err != nil {
		t.Fatal(err)
	}
	id := "t" + strconv.Itoa(os.Getpid()) + "-vm-" + topology
	ctx, cancel := context.WithTimeout(context.Background(), GuestTime)
	defer cancel()
	l, err := lab.Local{ID: id, Topology: shape, Dir: dir, Guest: g, Parts: parts}.Up(ctx)
	Refused(t, err)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Time)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Errorf("take down the lab: %v", err)
		}
	})
	return l, id
}
