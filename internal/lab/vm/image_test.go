package vm

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

// ownRecipe is that of a user with a kernel, on a machine without packages: nothing is asked of the
// network.
func ownRecipe(t testing.TB) Recipe {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "vmlinuz"), []byte("a kernel"))
	write(t, filepath.Join(dir, "agent"), madeProgram(t, elf.EM_X86_64, "one"))
	return Recipe{
		Arch:    "amd64",
		Kernel:  filepath.Join(dir, "vmlinuz"),
		Modules: madeTree(t),
		Program: filepath.Join(dir, "agent"),
		Cache:   filepath.Join(dir, "cache"),
		aptDir: filepath.Join(dir,
			"no-apt"),
	}
}

func build(t *testing.T, r Recipe) (Image, map[string]entry, []byte) {
	t.Helper()
	img, err := r.Image(t.Context())
	must(t, err)
	data, err := os.ReadFile(img.Initrd)
	must(t, err)
	return img, readInitrd(t, data), data
}

func TestOwnKernel(t *testing.T) {
	r := ownRecipe(t)
	var said []string
	r.Say = func(text string) { said = append(said, text) }
	img, files, _ := build(t, r)
	if img.Release != "6.1.0-9-test" || img.Arch != "amd64" || img.Packages != nil {
		t.Errorf("image: got %+v, want release 6.1.0-9-test for amd64 without packages", img)
	}

	if kernel, err := os.ReadFile(img.Kernel); err != nil || string(kernel) != "a kernel" {
		t.Errorf("kernel: got %q, %v", kernel, err)
	}

	place := "lib/modules/6.1.0-9-test/"
	for name, want := range map[string]entry{
		"init":                    {"init", modeProgram, madeProgram(t, elf.EM_X86_64, "one")},
		"bin/modprobe":            {"bin/modprobe", modeLink, []byte("../init")},
		"sbin":                    {"sbin", modeLink, []byte("bin")},
		"etc/chokepoint/modules":  {"etc/chokepoint/modules", modeFile, []byte("sch_cake\nwireguard\n")},
		place + "modules.builtin": {place + "modules.builtin", modeFile, []byte("kernel/lib/libcrc32c.ko\n")},
		// Unpacked, although the tree has it compressed.
		place + "kernel/net/ipv6/ip6_udp_tunnel.ko": {place + "kernel/net/ipv6/ip6_udp_tunnel.ko", modeFile,
			madeModule(t, elf.EM_X86_64, "depends=", someVermagic)},
	} {
		got := files[name]
		if got.mode != want.mode || !bytes.Equal(got.data, want.data) {
			t.Errorf("%s: got mode %o, %q; want %o, %q", name, got.mode, got.data, want.mode, want.data)
		}
	}

	if _, ok := files[place+"kernel/fs/nfs/nfs.ko"]; ok {
		t.Error("nfs.ko: got it, want only what a router needs")
	}

	if !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, "openvpn") }) {
		t.Errorf("steps: got %q, want a word that the image lacks openvpn", said)
	}

	said = nil
	again, _, _ := build(t, r)
	if again.Key != img.Key || len(said) > 0 {
		t.Errorf("second build: got key %s after %q, want %s at once", again.Key, said, img.Key)
	}
}

func TestSameInputsSameBytes(t *testing.T) {
	r := ownRecipe(t)
	img, _, first := build(t, r)
	r.Cache = t.TempDir()
	other, _, second := build(t, r)
	if img.Key != other.Key || !bytes.Equal(first, second) {
		t.Errorf("two caches: got keys %s and %s, same bytes %v", img.Key, other.Key,
			bytes.Equal(first, second))
	}
}

func TestKeyFollowsEachInput(t *testing.T) {
	later := time.Now().Add(time.Hour)
	for name, change := range map[string]func(t *testing.T, r *Recipe){
		"program": func(t *testing.T, r *Recipe) {
			write(t, r.Program, madeProgram(t, elf.EM_X86_64,
				"two"))
		},
		"kernel": func(t *testing.T, r *Recipe) { write(t, r.Kernel, []byte("another kernel")) },
		"kernel's time": func(t *testing.T, r *Recipe) {
			must(t, os.Chtimes(r.Kernel, later, later))
		},
		"module's content": func(t *testing.T, r *Recipe) {
			write(t, filepath.Join(r.Modules, "kernel/net/sched/sch_cake.ko"), madeModule(t, elf.EM_X86_64,
				"alias=net-sch-cake-two", someVermagic))
		},
		"another module": func(t *testing.T, r *Recipe) {
			write(t, filepath.Join(r.Modules, "kernel/net/sched/sch_fq.ko"), madeModule(t, elf.EM_X86_64,
				someVermagic))
		},
		"a module less": func(t *testing.T, r *Recipe) {
			must(t, os.Remove(filepath.Join(r.Modules, "kernel/net/sched/sch_cake.ko")))
		},
		"no modules": func(t *testing.T, r *Recipe) { r.Modules = "" },
	} {
		t.Run(name, func(t *testing.T) {
			r := ownRecipe(t)
			before, _, first := build(t, r)
			change(t, &r)
			after, _, second := build(t, r)
			if before.Key == after.Key || before.Initrd == after.Initrd {
				t.Errorf("key: got %s before and after", before.Key)
			}

			kernelOnly := strings.HasPrefix(name, "kernel")
			if bytes.Equal(first, second) != kernelOnly {
				t.Errorf("initrd: got the same bytes: %v, want %v", !kernelOnly, kernelOnly)
			}
		})
	}
}

func TestKeyFollowsPackagesAndArchitecture(t *testing.T) {
	items := []aptItem{{"dash", "0.5.12-2", "amd64"}, {"iproute2", "6.1.0-3", "amd64"}}
	base := Recipe{Arch: "amd64"}.key(inputs{Packages: items})
	keys := map[string]string{
		"same": Recipe{Arch: "amd64"}.key(inputs{Packages: slices.Clone(items)}),
		"version": Recipe{Arch: "amd64"}.key(inputs{Packages: []aptItem{items[0], {"iproute2", "6.1.0-4",
			"amd64"}}}),
		"fewer":        Recipe{Arch: "amd64"}.key(inputs{Packages: items[:1]}),
		"architecture": Recipe{Arch: "arm64"}.key(inputs{Packages: items}),
		"own kernel":   Recipe{Arch: "amd64"}.key(inputs{Packages: items, tree: "1234"}),
	}
	for name, key := range keys {
		same := name == "same"
		if (key == base) != same {
			t.Errorf("%s: got key %s for base %s", name, key, base)
		}
	}
}

// TestBuildsAtOnce: they wait for each other, and all get the one image.
func TestBuildsAtOnce(t *testing.T) {
	r := ownRecipe(t)
	var group sync.WaitGroup
	images := make([]Image, 4)
	for i := range images {
		group.Go(func() {
			var err error
			if images[i], err = r.Image(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}

	group.Wait()
	for _, img := range images {
		if img.Key != images[0].Key || img.Key == "" {
			t.Errorf("keys: got %q and %q", img.Key, images[0].Key)
		}
	}

	checkCache(t, r, "image-", 1)
	checkCache(t, r, "base-", 1)
	checkCache(t, r, workFolder, 0)
}

func checkCache(t *testing.T, r Recipe, prefix string, want int) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(r.Cache, prefix+"*"))
	if err != nil || len(found) != want {
		t.Errorf("cache: got %q, %v; want %d of %s", found, err, want, prefix)
	}
}

// TestDamagedCache: what a build that was killed, or a full disk, has left is not taken for an image.
func TestDamagedCache(t *testing.T) {
	for name, damage := range map[string]func(r Recipe, img Image) error{
		"empty initrd": func(_ Recipe, img Image) error { return os.Truncate(img.Initrd, 0) },
		"no kernel":    func(_ Recipe, img Image) error { return os.Remove(img.Kernel) },
		"no description": func(_ Recipe,
			img Image) error {
			return os.Remove(filepath.Join(filepath.Dir(img.Initrd), imageFile))
		},
		"half a base": func(_ Recipe, img Image) error {
			return errors.Join(os.RemoveAll(filepath.Dir(img.Initrd)),
				os.Remove(filepath.Join(filepath.Dir(img.Kernel), imageFile)))
		},
		"work left": func(r Recipe, _ Image) error {
			return os.Mkdir(filepath.Join(r.Cache, workFolder+
				"1"), 0o700)
		},
		"packages' list": func(r Recipe, _ Image) error {
			return os.WriteFile(r.resolvedFile(), []byte("{"),
				0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := ownRecipe(t)
			img, _, first := build(t, r)
			must(t, damage(r, img))
			again, _, second := build(t, r)
			if again.Key != img.Key || !bytes.Equal(first, second) {
				t.Errorf("image after the damage: got key %s, same bytes %v; want %s", again.Key,
					bytes.Equal(first, second), img.Key)
			}

			// A new image clears up what is left.
			write(t, r.Program, madeProgram(t, elf.EM_X86_64, "two"))
			build(t, r)
			checkCache(t, r, workFolder, 0)
		})
	}
}

func TestForgetOld(t *testing.T) {
	r := ownRecipe(t)
	img, _, _ := build(t, r)
	r.forgetOld(time.Now().Add(keep - time.Hour))
	checkCache(t, r, "image-", 1)
	r.forgetOld(time.Now().Add(keep + time.Hour))
	checkCache(t, r, "image-", 0)
	checkCache(t, r, "base-", 0)
	again, _, _ := build(t, r)
	if again.Key != img.Key {
		t.Errorf("key of the image made again: got %s, want %s", again.Key, img.Key)
	}
}

func TestInterruptedBuild(t *testing.T) {
	r := ownRecipe(t)
	ctx, cancel := context.WithCancel(t.Context())
	unlock, err := r.lockMade(ctx)
	must(t, err)
	r.Say = func(string) { cancel() } // it says that it waits
	if img, err := r.Image(ctx); !errors.Is(err, context.Canceled) || img.Key != "" {
		t.Errorf("build that was cancelled while it waited: got %+v, %v", img, err)
	}

	unlock()
	checkCache(t, r, "image-", 0)
	r.Say = nil
	build(t, r)
}

// lockMade locks a cache that need not be there yet.
func (r Recipe) lockMade(ctx context.Context) (func(), error) {
	if err := os.MkdirAll(r.Cache, 0o700); err != nil {
		return nil, err
	}
	return r.lock(ctx)
}

func TestRefusedRecipes(t *testing.T) {
	for name, tt := range map[string]struct {
		change     func(r *Recipe)
		text, hint string
	}{
		"architecture": {func(r *Recipe) { r.Arch = "sparc" }, `"sparc"`, "amd64, arm64, mipsel"},
		"modules only": {func(r *Recipe) { r.Kernel = "" }, "kernel is missing", "--kernel"},
		"no kernel":    {func(r *Recipe) { r.Kernel += "x" }, "read the kernel", ""},
		"folder":       {func(r *Recipe) { r.Kernel = r.Modules }, "is not a file", ""},
		"no folder":    {func(r *Recipe) { r.Modules = r.Kernel }, "is not a folder", ""},
		"no modules": {func(r *Recipe) { r.Modules = filepath.Dir(r.Kernel) }, "has none",
			"lib/modules/RELEASE"},
		"no program":    {func(r *Recipe) { r.Program += "x" }, "read the guest's program", ""},
		"wrong program": {func(r *Recipe) { r.Arch = "arm64" }, "it is for EM_X86_64, not for arm64", ""},
		"text":          {func(r *Recipe) { r.Program = r.Kernel }, "read the guest's program", ""},
		"no packages": {func(r *Recipe) { r.Kernel, r.Modules = "", "" },
			"take packages of the distribution", "--kernel FILE --modules DIR"},
	} {
		t.Run(name, func(t *testing.T) {
			r := ownRecipe(t)
			tt.change(&r)
			img, err := r.Image(t.Context())
			expect.Error(t, "image", err, tt.text)
			if img.Key != "" {
				t.Errorf("got %+v, want none", img)
			}

			if tt.hint != "" {
				expect.Hint(t, "image", err, tt.hint)
			}
		})
	}
}

func TestNoNetwork(t *testing.T) {
	if (apt{}).exists(t.Context()) != nil {
		t.Skip("skip: this machine has no apt-get")
	}

	r := ownRecipe(t)
	r.Kernel, r.Modules = "", ""
	// Port 9 of this machine, where nothing listens.
	write(t, filepath.Join(r.aptDir, "sources.list"),
		[]byte("deb [arch=riscv64] http://127.0.0.1:9/debian bookworm main\n"))
	_, err := r.Image(t.Context())
	expect.Error(t, "without a network", err, "fetch the package lists")
	expect.Hint(t, "without a network", err, "network")
	if strings.Contains(err.Error(), "\n") || errors.Is(err, host.ErrUnsupported) {
		t.Errorf("error: got %q, want one line that is not conclusive", err)
	}

	// What was found out before serves on.
	old := resolved{
		Request: r.requestKey(),
		Until:   time.Now().Add(-time.Hour),
		Inputs:  inputs{Packages: []aptItem{{"dash", "1", "amd64"}}},
	}
	remember(t, r, old)
	in, err := r.findInputs(t.Context())
	if err != nil || len(in.Packages) != 1 {
		t.Errorf("packages of the last time: got %v, %v; want dash", in, err)
	}

	if _, ok := r.knownInputs(time.Now()); !ok {
		t.Error("after that: got another look at the network, want an hour's rest")
	}

	os.Remove(r.resolvedFile())
	if _, ok := r.knownInputs(time.Now()); ok {
		t.Error("after forgetting: got inputs")
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
