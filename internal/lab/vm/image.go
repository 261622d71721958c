// Package vm makes virtual machines: the image that a router's guest boots, and the command line that boots
// it.
package vm

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

const imageFormat = 1 // changes when the same inputs make another image

// Image is what QEMU boots.
type Image struct {
	Arch     string   `json:"arch"`
	Release  string   `json:"release"`            // of the kernel; "" if it has no modules
	Kernel   string   `json:"-"`                  // file
	Initrd   string   `json:"-"`                  // file: two gzip members, of two cpio archives
	Key      string   `json:"key"`                // of the inputs: same key, same bytes
	Packages []string `json:"packages,omitempty"` // name=version, sorted
}

// Recipe says what to build an image from.
type Recipe struct {
	Arch string // amd64, arm64 or mipsel, see Arches
	// Kernel and Modules are the user's own kernel file and its folder of modules (…/lib/modules/RELEASE,
	// or "" if it needs none). Without a kernel, the distribution's package is taken.
	Kernel, Modules string
	Program         string // the guest's program, for linux on Arch; see GuestProgram
	Cache           string // folder; made for this user alone
	Say             func(text string)

	aptDir string // the machine's apt configuration; "" is /etc/apt
}

func (r Recipe) say(format string, args ...any) {
	if r.Say != nil {
		r.Say(fmt.Sprintf(format, args...))
	}
}

// Image builds the image, or finds it in the cache if its inputs are the same as before. Builds at the same
// time wait for each other; one that is interrupted leaves nothing that a later one would take for an image.
//
// The image has two parts. The base is the kernel, its modules and the programs for a human; it is made once
// per set of packages. The other part is the guest's own program, which is packed anew whenever it changes.
func (r Recipe) Image(ctx context.Context) (Image, error) {
	if _, err := machineOf(r.Arch); err != nil {
		return Image{}, err
	}
	if err := r.checkFiles(); err != nil {
		return Image{}, err
	}
	program, err := fileSum(r.Program)
	if err != nil {
		return Image{}, fmt.Errorf("read the guest's program: %w", err)
	}
	if err := os.MkdirAll(r.Cache, 0o700); err != nil {
		return Image{}, check.WithHint(fmt.Errorf("create the image cache: %w", err),
			"name a folder that can be written to, by XDG_CACHE_HOME")
	}
	if in, ok := r.knownInputs(time.Now()); ok {
		if img, ok := r.cached(in, program); ok {
			return img, nil
		}
	}
	unlock, err := r.lock(ctx)
	if err != nil {
		return Image{}, err
	}
	defer unlock()
	in, err := r.prepareBase(ctx)
	if err != nil {
		return Image{}, err
	}
	if img, ok := r.cached(in, program); ok {
		return img, nil // another build made it meanwhile
	}
	if err := r.buildImage(in, program); err != nil {
		return Image{}, err
	}
	r.forgetOld(time.Now())
	img, ok := r.cached(in, program)
	if !ok {
		return Image{}, fmt.Errorf("build the image: it is not in the cache %s, where it was just put",
			r.Cache)
	}
	return img, nil
}

// checkFiles finds mistakes in the recipe before any work is done.
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

// inputs is what the base is made from.
type inputs struct {
	Packages []aptItem `json:"packages"` // with the kernel's, unless it is the user's own
	tree     string    // hash over the user's own kernel and modules
}

func (in inputs) names() []string {
	var names []string
	for _, p := range in.Packages {
		names = append(names, p.Name+"="+p.Version)
	}
	return names
}

// key is a hash over the inputs and everything that this program decides.
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

// Files of a base's and an image's folder.
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

// cached returns the image if it is whole. Folders get their names last, so what has one is.
func (r Recipe) cached(in inputs, program string) (Image, bool) {
	base, dir := r.baseDir(in), r.imageDir(in, program)
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
		_ = os.Chtimes(d, now, now) // forgetOld keeps what is in use
	}
	return img, true
}
