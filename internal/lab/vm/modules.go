package vm

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// module is a file of the kernel's tree of modules.
type module struct {
	name string // normal form
	path string // below the tree, as its package has it: kernel/net/tls/tls.ko.xz
	data []byte // uncompressed
	modinfo
}

// place is where the image has it, uncompressed.
func (m *module) place() string {
	base, _, _ := strings.Cut(path.Base(m.path), ".ko")
	return path.Join(path.Dir(m.path), base+".ko")
}

// moduleTree is the folder /lib/modules/RELEASE of a kernel. Modules are read when they are needed: a
// distribution has thousands, we take hundreds.
type moduleTree struct {
	dir     string
	machine machine
	paths   map[string]string // by normal name
}

func openModules(dir string, m machine) (*moduleTree, error) {
	t := &moduleTree{dir: dir, machine: m, paths: map[string]string{}}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base, suffix, ok := strings.Cut(d.Name(), ".ko")
		// "build" and "source" are links to the kernel's headers.
		if !ok || !d.Type().IsRegular() || !slices.Contains(compressions, suffix) {
			return nil
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		name := normalName(base)
		// Two of one name: that of updates/ or extra/ is the newer, and depmod prefers it too; kernel/
		// sorts between them.
		if old, ok := t.paths[name]; !ok || strings.HasPrefix(old, "kernel/") {
			t.paths[name] = filepath.ToSlash(rel)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the kernel's modules: %w", err)
	}
	return t, nil
}

// choose reads the wanted modules and everything that they depend on, by name. A dependency that has no file
// is part of the kernel.
func (t *moduleTree) choose(ctx context.Context, wanted func(name, path string) bool) (map[string]*module,
	error) {
	var queue []string
	for name, p := range t.paths {
		if wanted(name, p) {
			queue = append(queue, name)
		}
	}
	slices.Sort(queue)
	chosen := map[string]*module{}
	for ; len(queue) > 0; queue = queue[1:] {
		name := queue[0]
		p, ok := t.paths[name]
		if !ok || chosen[name] != nil {
			continue
		}
		data, err := readCompressed(ctx, filepath.Join(t.dir, filepath.FromSlash(p)))
		if err != nil {
			return nil, err
		}
		f, info, err := readModinfo(data)
		if err != nil {
			return nil, fmt.Errorf("read module %s: %w", p, err)
		}
		if !t.machine.runs(f) {
			return nil, fmt.Errorf("read module %s: it is for %v, not for %s", p, f.Machine, t.machine.arch)
		}
		chosen[name] = &module{name: name, path: p, data: data, modinfo: info}
		queue = append(append(queue, info.depends...), info.soft...)
	}
	return chosen, nil
}

// dependencies returns what must be loaded before a module, the deepest last: each comes before all that it
// depends on itself.
func dependencies(chosen map[string]*module, name string) []*module {
	var done []*module
	seen := map[string]bool{name: true}
	var visit func(m *module)
	visit = func(m *module) {
		for _, d := range m.depends {
			if seen[d] || chosen[d] == nil {
				continue
			}
			seen[d] = true
			visit(chosen[d])
			done = append(done, chosen[d])
		}
	}
	visit(chosen[name])
	slices.Reverse(done)
	return done
}

// moduleLists writes modules.dep and modules.alias, as depmod(8) does.
func moduleLists(chosen map[string]*module) (dep, alias string) {
	var deps, aliases strings.Builder
	for _, m := range sortedModules(chosen) {
		deps.WriteString(m.place() + ":")
		for _, d := range dependencies(chosen, m.name) {
			deps.WriteString(" " + d.place())
		}
		deps.WriteString("\n")
		for _, a := range m.aliases {
			aliases.WriteString("alias " + a + " " + m.name + "\n")
		}
	}
	return deps.String(), aliases.String()
}

// sortedModules orders by place, so that equal trees make equal lists.
func sortedModules(chosen map[string]*module) []*module {
	return slices.SortedFunc(maps.Values(chosen),
		func(a, b *module) int { return strings.Compare(a.place(), b.place()) })
}

// releaseOf is the release that all modules were built for: the kernel looks for them in a folder of that
// name. dir's name is not asked; a user may have renamed it.
func releaseOf(chosen map[string]*module) (string, error) {
	release, from := "", ""
	for _, m := range sortedModules(chosen) {
		switch r := m.release(); {
		case r == "" || strings.ContainsAny(r, "/"):
			return "", fmt.Errorf("read module %s: it does not say for which kernel it is", m.path)
		case release != "" && r != release:
			return "", fmt.Errorf("read the kernel's modules: %s is for %s, %s for %s", from, release,
				m.path, r)
		default:
			release, from = r, m.path
		}
	}
	return release, nil
}
