// Package vm builds the image from which the virtual routers of a lab boot, and the command line of QEMU.
package vm

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

const imageFormat = 1 // must be incremented when equal inputs yield a different image than before

// Image describes the files from which QEMU boots a guest.
type Image struct {
	Arch     string   `json:"arch"`
	Release  string   `json:"release"`            // release of the kernel; "" if the image has no modules
	Kernel   string   `json:"-"`                  // path of the kernel
	Initrd   string   `json:"-"`                  // path of a file that consists of two gzipped cpio archives
	Key      string   `json:"key"`                // hash of the inputs; equal keys mean equal bytes
	Packages []string `json:"packages,omitempty"` // sorted, in the form name=version
}

// Recipe describes the inputs of an image.
type Recipe struct {
	Arch string // amd64, arm64 or mipsel; see Arches
	// Package is the package of the kernel. "" means the usual package of the distribution.
	Package string
	// Kernel is a kernel file that the user provides, and Modules the directory of its modules
	// (…/lib/modules/RELEASE), or "" if it has none. If Kernel is "", the kernel comes from a package.
	Kernel, Modules string
	Program         string // program for the guest, built for Linux on Arch; see GuestProgram
	Cache           string // cache directory, which is private to this user
	Say             func(text string)

	aptDir string // apt configuration of the machine; "" means /etc/apt
}

func (r Recipe) say(format string, args ...any) {
	if r.Say != nil {
		r.Say(fmt.Sprintf(format, args...))
	}
}

// Image returns the image for a recipe. It builds the image unless the cache contains an image with the same
// inputs. Concurrent builds wait for each other. An interrupted build leaves nothing behind that could be
// mistaken for an image.
//
// An image consists of two parts. The base contains the kernel, its modules and tools for users, and is built
// once for each set of packages. The other part is the program for the guest, which is packed whenever it
// changes.
func (r Recipe) Image(ctx context.Context) (img Image, err error) {
	if _, err := machineOf(r.Arch); err != nil {
		return img, err
	}

	if err := r.checkFiles(); err != nil {
		return img, err
	}

	program, err := fileSum(r.Program)
	if err != nil {
		return img, fmt.Errorf("read the guest's program: %w", err)
	}

	if err := os.MkdirAll(r.Cache, 0o700); err != nil {
		return img, check.WithHint(fmt.Errorf("create the image cache: %w", err),
			"name a folder that can be written to, by XDG_CACHE_HOME")
	}

	if in, ok := r.knownInputs(time.Now()); ok {
		if img, ok := r.cached(in, program); ok {
			return img, nil
		}
	}

	unlock, err := r.lock(ctx)
	if err != nil {
		return img, err
	}
	defer unlock()
	in, err := r.prepareBase(ctx)
	if err != nil {
		return img, err
	}

	if img, ok := r.cached(in, program); ok {
		return img, nil // another process built it while we waited for the lock
	}

	if err := r.buildImage(in, program); err != nil {
		return img, err
	}

	r.forgetOld(time.Now())
	img, ok := r.cached(in, program)
	if !ok {
		return img, fmt.Errorf("build the image: it is not in the cache %s, where it was just put",
			r.Cache)
	}

	return img, nil
}

// checkFiles checks the files of the recipe before any work starts.
func (r Recipe) checkFiles() error {
	if r.Modules != "" && r.Kernel == "" {
		return check.WithHint(fmt.Errorf("build an image with the modules of %s: their kernel is missing",
			r.Modules), "name it by --kernel")
	}

	for what, path := range map[string]string{"kernel": r.Kernel, "kernel's modules": r.Modules} {
		if path == "" {
			continue
		}

		info, err := os.Stat(path)
		switch {
		case err != nil:
			return fmt.Errorf("read the %s: %w", what, err)
		case path == r.Kernel && !info.Mode().IsRegular():
			return fmt.Errorf("read the kernel: %s is not a file", path)
		case path == r.Modules && !info.IsDir():
			return fmt.Errorf("read the kernel's modules: %s is not a folder", path)
		}
	}
	return checkProgram(r.Program, r.Arch)
}

// inputs holds the inputs from which a base is built.
type inputs struct {
	Packages []aptItem `json:"packages"` // includes the kernel's package unless the user provides a kernel
	tree     string    // hash of the kernel and modules that the user provides
}

func (in inputs) names() []string {
	var names []string
	for _, p := range in.Packages {
		names = append(names, p.Name+"="+p.Version)
	}
	return names
}

// key returns a hash of the inputs and of choices that are part of this program.
func (r Recipe) key(in inputs) string {
	return keyOf(imageFormat, r.Arch, in.Packages, in.tree, programs, applets, moduleFolders, notRouted,
		moduleNames, bootModules, etcFiles)
}

func (r Recipe) baseDir(in inputs) string {
	return filepath.Join(r.Cache, "base-"+r.Arch+"-"+r.key(in))
}

func (r Recipe) imageDir(in inputs, program string) string {
	return filepath.Join(r.Cache, "image-"+r.Arch+"-"+keyOf(r.key(in), program))
}

// These are the files in the directories of bases and images.
const (
	kernelFile = "kernel"
	initrdFile = "initrd"
	imageFile  = "image.json"
)

func readJSON[T any](file string) (v T, err error) {
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	return v, err
}

// cached returns an image if the cache contains it. A directory that has its final name is complete, because
// renaming it is the last step.
func (r Recipe) cached(in inputs, program string) (Image, bool) {
	base := r.baseDir(in)
	dir := r.imageDir(in, program)
	img, err := readJSON[Image](filepath.Join(dir, imageFile))
	if err != nil {
		return Image{}, false
	}

	img.Kernel, img.Initrd = filepath.Join(base, kernelFile), filepath.Join(dir, initrdFile)
	if !whole(img.Kernel, img.Initrd) {
		return Image{}, false
	}

	now := time.Now()
	for _, d := range []string{base, dir} {
		_ = os.Chtimes(d, now, now) // marks the directory as used, for forgetOld
	}

	return img, true
}

// errOutdated reports that a package in the lists is no longer available.
var errOutdated = errors.New("the package lists may be outdated")

// prepareBase builds the base unless it is in the cache. If a package is unavailable, prepareBase downloads
// the lists again, because mirrors remove superseded packages, and retries once.
func (r Recipe) prepareBase(ctx context.Context) (inputs, error) {
	for again := false; ; again = true {
		in, err := r.findInputs(ctx)
		if err != nil {
			return inputs{}, err
		}

		base := r.baseDir(in)
		if whole(filepath.Join(base, kernelFile), filepath.Join(base, initrdFile),
			filepath.Join(base, imageFile)) {
			return in, nil
		}

		err = r.buildBase(ctx, in)
		if err == nil {
			return in, nil
		}

		if again || !errors.Is(err, errOutdated) || ctx.Err() != nil {
			return inputs{}, err
		}

		_ = os.Remove(r.resolvedFile()) // makes findInputs update the lists and resolve packages again
		_ = os.Remove(r.apt().stamp())
	}
}

// buildBase builds a base, which consists of the kernel and an archive of everything except the program for
// the guest.
func (r Recipe) buildBase(ctx context.Context, in inputs) error {
	work, err := os.MkdirTemp(r.Cache, workFolder)
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	tree := root{filepath.Join(work, "root"), r.apt().machine}
	if err := r.unpack(ctx, in.Packages, tree.dir); err != nil {
		return err
	}

	kernel := r.Kernel
	modules := r.Modules
	if kernel == "" {
		if kernel, modules, err = tree.kernel(); err != nil {
			return err
		}
	}

	a := archive{}
	addSkeleton(a)
	r.say("choosing the kernel's modules")
	release, err := addModules(ctx, a, modules, tree.machine)
	if err != nil {
		return err
	}

	if err := tree.addUserland(a); err != nil {
		return err
	}

	boot, err := os.ReadFile(kernel)
	if err != nil {
		return fmt.Errorf("read the kernel: %w", err)
	}

	r.say("packing %d files, %d MB", len(a), a.size()/1e6)
	var packed bytes.Buffer
	if err := a.pack(&packed); err != nil {
		return err
	}

	img := Image{Arch: r.Arch, Release: release, Key: r.key(in), Packages: in.names()}
	return r.finish(r.baseDir(in), img, map[string][]byte{kernelFile: boot, initrdFile: packed.Bytes()})
}

// buildImage appends the program for the guest to the base.
func (r Recipe) buildImage(in inputs, program string) error {
	base := r.baseDir(in)
	img, err := readJSON[Image](filepath.Join(base, imageFile))
	if err != nil {
		return fmt.Errorf("read the image's base: %w", err)
	}

	initrd, err := os.ReadFile(filepath.Join(base, initrdFile))
	if err != nil {
		return fmt.Errorf("read the image's base: %w", err)
	}

	binary, err := os.ReadFile(r.Program)
	if err != nil {
		return fmt.Errorf("read the guest's program: %w", err)
	}

	sum := sha256.Sum256(binary)
	if hex.EncodeToString(sum[:]) != program {
		return fmt.Errorf("read the guest's program: %s was changed meanwhile", r.Program)
	}

	r.say("packing the guest's program, %d MB", len(binary)/1e6)
	a := archive{}
	a.add("init", modeProgram, binary)
	packed := bytes.NewBuffer(initrd)
	if err := a.pack(packed); err != nil {
		return err
	}

	img.Key = keyOf(img.Key, program)
	return r.finish(r.imageDir(in, program), img, map[string][]byte{initrdFile: packed.Bytes()})
}

// finish writes the files to a new directory, and then renames the directory to its final name.
func (r Recipe) finish(name string, img Image, files map[string][]byte) error {
	work, err := os.MkdirTemp(r.Cache, workFolder)
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	files[imageFile], _ = json.MarshalIndent(img, "", "\t") // never returns an error
	for file, data := range files {
		if err := writeSynced(filepath.Join(work, file), data); err != nil {
			return err
		}
	}

	// An existing directory with this name is incomplete.
	if err := os.RemoveAll(name); err != nil {
		return err
	}

	return os.Rename(work, name)
}

// unpack extracts packages into a directory. It does not run their scripts.
func (r Recipe) unpack(ctx context.Context, items []aptItem, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil || len(items) == 0 {
		return err
	}

	a := r.apt()
	if err := a.prepare(); err != nil {
		return err
	}

	files, err := a.download(ctx, items)
	if err != nil {
		return err
	}

	r.say("unpacking %d packages", len(files))
	for _, f := range files {
		if _, err := host.Output(ctx, "dpkg-deb", "--extract", f, dir); err != nil {
			return fmt.Errorf("unpack %s: %w", filepath.Base(f), err)
		}
	}

	a.prune(files)
	return nil
}

// kernel returns the paths of the kernel and its modules among the unpacked packages.
func (r root) kernel() (kernel, modules string, err error) {
	// On MIPS, the file is vmlinux, an ELF file. Otherwise, it is vmlinuz.
	for _, pattern := range []string{"boot/vmlinuz-*", "boot/vmlinux-*", "usr/lib/modules/*/vmlinuz",
		"lib/modules/*/vmlinuz"} {
		found, _ := fs.Glob(os.DirFS(r.dir), pattern) // cannot fail, because the patterns are valid
		if len(found) == 1 {
			kernel = filepath.Join(r.dir, found[0])
			break
		}
	}

	if kernel == "" {
		return "", "", check.WithHint(errors.New("find the kernel in its package: it is not in boot, or "+
			"there are several"), ownKernel)
	}

	_, release, _ := strings.Cut(filepath.Base(kernel), "-")
	release = cmp.Or(release, filepath.Base(filepath.Dir(kernel)))
	for _, lib := range []string{"usr/lib/modules", "lib/modules"} {
		dir := filepath.Join(r.dir, lib, release)
		if _, err := os.Stat(filepath.Join(dir, "kernel")); err == nil {
			return kernel, dir, nil
		}
	}

	return "", "", check.WithHint(fmt.Errorf("find the modules of kernel %s in its packages: there are none",
		release), ownKernel)
}

// addModules adds the modules that a router needs and the lists that modprobe reads. It returns the release
// of the kernel.
func addModules(ctx context.Context, a archive, dir string, m machine) (string, error) {
	if dir == "" {
		return "", nil // the kernel needs no modules
	}

	tree, err := openModules(dir, m)
	if err != nil {
		return "", err
	}

	chosen, err := tree.choose(ctx, wantedModule)
	if err != nil {
		return "", err
	}

	if len(chosen) == 0 {
		return "", check.WithHint(fmt.Errorf("read the kernel's modules: %s has none", dir),
			"name the folder …/lib/modules/RELEASE")
	}

	release, err := releaseOf(chosen)
	if err != nil {
		return "", err
	}

	place := path.Join("lib/modules", release)
	for _, m := range sortedModules(chosen) {
		a.add(path.Join(place, m.place()), modeFile, m.data)
	}

	dep, alias := moduleLists(chosen)
	a.text(path.Join(place, "modules.dep"), dep)
	a.text(path.Join(place, "modules.alias"), alias)
	a.text("etc/chokepoint/modules", bootList(chosen))
	builtin, err := os.ReadFile(filepath.Join(dir, "modules.builtin"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("read the kernel's modules: %w", err)
	}

	a.add(path.Join(place, "modules.builtin"), modeFile, builtin)
	return release, nil
}
