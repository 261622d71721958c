package vm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// resolved is a cached result of resolving packages.
type resolved struct {
	Request string    `json:"request"` // hash of the sources and requested packages
	Until   time.Time `json:"until"`
	Inputs  inputs    `json:"inputs"`
}

func (r Recipe) resolvedFile() string {
	name := "packages-" + r.Arch
	if r.Kernel+r.Package != "" {
		name += "-" + cmp.Or(r.Package, "own-kernel")
	}
	return filepath.Join(r.Cache, name+".json")
}

// packageName matches a valid package name (deb-control(5)) or an empty string.
var packageName = check.Pattern(`^([a-z0-9][a-z0-9+.-]+)?$`)

// PackageName reports whether name is empty or a valid package name.
func PackageName(name string) bool { return packageName().MatchString(name) }

// kernels returns the names of kernel packages. The first available package is used.
func (r Recipe) kernels() []string {
	if r.Package != "" {
		return []string{r.Package}
	}
	return r.apt().machine.kernels
}

// apt returns the private root directory for r.Arch.
func (r Recipe) apt() apt {
	m, _ := machineOf(r.Arch) // error ignored: Image has checked the architecture
	dir, err := filepath.Abs(r.Cache)
	if err != nil {
		dir = r.Cache
	}

	return apt{filepath.Join(dir, "apt-"+r.Arch), cmp.Or(r.aptDir, "/etc/apt"), m, r.say}
}

// requestKey returns a hash of everything on which the resolution depends.
func (r Recipe) requestKey() string {
	a := r.apt()
	return keyOf(imageFormat, a.sourcesKey(), r.kernels(), programs, present, r.Kernel != "")
}

// remembered returns the last resolution, even if it has expired. It reports whether the request was the
// same.
func (r Recipe) remembered() (resolved, bool) {
	known, err := readJSON[resolved](r.resolvedFile())
	return known, err == nil && known.Request == r.requestKey()
}

// knownInputs returns the inputs if the cache contains a resolution that has not expired.
func (r Recipe) knownInputs(now time.Time) (in inputs, ok bool) {
	known, ok := r.remembered()
	if !ok || now.After(known.Until) || known.Until.After(now.Add(listsAge)) {
		return in, false
	}

	in, err := r.withTree(known.Inputs)
	return in, err == nil
}

// findInputs returns the inputs. If knownInputs does not know them, it resolves the packages. If that fails,
// it extends the validity of the last resolution by an hour. If the user provides a kernel and the system has
// no apt, it continues without packages.
func (r Recipe) findInputs(ctx context.Context) (in inputs, err error) {
	now := time.Now()
	if in, ok := r.knownInputs(now); ok {
		return in, nil
	}

	known := resolved{Request: r.requestKey(), Until: now.Add(listsAge)}
	items, err := r.findPackages(ctx)
	old, isOld := r.remembered()
	switch {
	case err == nil:
		known.Inputs.Packages = items
	case ctx.Err() != nil:
		return in, err
	case isOld:
		r.say("the packages may be outdated: %v", err)
		known.Inputs, known.Until = old.Inputs, now.Add(time.Hour)
	case r.Kernel != "" && errors.Is(err, host.ErrUnsupported):
		r.say("the image has no shell, tools or openvpn: %v", err)
	default:
		return in, err
	}

	b, _ := json.Marshal(known) // never returns an error
	if err := writeWhole(r.resolvedFile(), b); err != nil {
		return in, err
	}

	return r.withTree(known.Inputs)
}

// findPackages resolves the packages of the kernel and of the programs.
func (r Recipe) findPackages(ctx context.Context) ([]aptItem, error) {
	a := r.apt()
	err := a.exists(ctx)
	if err == nil {
		err = a.prepare()
	}

	if err != nil {
		return nil, err
	}

	var stale error
	fresh := a.listsAreFresh(time.Now())
	if !fresh {
		stale = a.update(ctx)
	}

	items, err := r.resolvePackages(ctx, a)
	if err != nil && fresh && ctx.Err() == nil {
		// The lists may be older than the packages on the mirror.
		if stale = a.update(ctx); stale == nil {
			items, err = r.resolvePackages(ctx, a)
		}
	}

	if err != nil && stale != nil {
		return nil, stale // outdated lists are the likely cause
	}

	return items, err
}

func (r Recipe) resolvePackages(ctx context.Context, a apt) ([]aptItem, error) {
	var ask []string
	if r.Kernel == "" {
		ask = append(ask, r.kernels()...)
	}

	for _, p := range programs {
		ask = append(ask, p.Packages...)
	}

	have, err := a.candidates(ctx, ask...)
	if err != nil {
		return nil, err
	}

	isHere := func(name string) bool { return slices.Contains(have, name) }
	var want []string
	if r.Kernel == "" {
		kernels := r.kernels()
		k := slices.IndexFunc(kernels, isHere)
		if k < 0 {
			return nil, check.WithHint(fmt.Errorf("find a kernel package: %w: this distribution has none of "+
				"%s for %s", host.ErrUnsupported, strings.Join(kernels, ", "), r.Arch), ownKernel)
		}

		want = append(want, kernels[k])
	}

	for _, p := range programs {
		i := slices.IndexFunc(p.Packages, isHere)
		if i < 0 {
			r.say("this distribution has no package %s for %s: the image lacks %s", p.Packages[0], r.Arch,
				strings.Join(p.Files, ", "))
			continue
		}

		want = append(want, p.Packages[i])
	}

	if len(want) == 0 {
		return nil, fmt.Errorf("find packages: %w: this distribution has none for %s", host.ErrUnsupported,
			r.Arch)
	}

	items, err := a.resolve(ctx, want)
	if err != nil {
		return nil, err
	}

	return r.withExtraModules(ctx, a, want, items)
}

// withExtraModules adds Ubuntu's package of modules that its kernel for virtual machines lacks, such as
// queueing disciplines.
func (r Recipe) withExtraModules(ctx context.Context, a apt, want []string, items []aptItem) ([]aptItem,
	error) {
	for _, i := range items {
		release, ok := strings.CutPrefix(i.Name, "linux-modules-")
		if !ok || strings.HasPrefix(release, "extra-") {
			continue
		}

		have, err := a.candidates(ctx, "linux-modules-extra-"+release)
		if err != nil || len(have) == 0 {
			return items, err
		}

		return a.resolve(ctx, append(want, have[0]))
	}
	return items, nil
}

// withTree completes the inputs with the hash of the kernel that the user provides. The hash depends on the
// names, sizes and times of the files.
func (r Recipe) withTree(in inputs) (inputs, error) {
	if r.Kernel == "" {
		return in, nil
	}

	paths := []string{r.Kernel}
	if r.Modules != "" {
		paths = append(paths, r.Modules)
	}

	var err error
	for i, p := range paths { // a link, such as /vmlinuz, and its target have different times
		if paths[i], err = filepath.EvalSymlinks(p); err != nil {
			return inputs{}, fmt.Errorf("read the kernel: %w", err)
		}
	}

	if in.tree, err = treesKey(func(fs.DirEntry) bool { return false }, paths...); err != nil {
		return inputs{}, fmt.Errorf("read the kernel and its modules: %w", err)
	}

	return in, nil
}
