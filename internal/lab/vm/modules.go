package vm

import (
	"bytes"
	"compress/gzip"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
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

// modinfo is what a kernel module says of itself, in its section .modinfo.
type modinfo struct {
	depends  []string // modules whose symbols it uses
	soft     []string // modules that it works better with, loaded before or after
	aliases  []string // patterns of what the kernel may ask for it by
	vermagic string   // "6.1.0-56-cloud-amd64 SMP preempt mod_unload modversions "
}

// release is the kernel's release, the first word of vermagic.
func (m modinfo) release() string {
	release, _, _ := strings.Cut(m.vermagic, " ")
	return release
}

// readModinfo reads a module's file.
func readModinfo(file []byte) (*elf.File, modinfo, error) {
	f, err := elf.NewFile(bytes.NewReader(file))
	if err != nil {
		return nil, modinfo{}, err
	}
	s := f.Section(".modinfo")
	if s == nil || s.Type != elf.SHT_PROGBITS {
		return nil, modinfo{}, fmt.Errorf("no section .modinfo: not a kernel module")
	}
	b, err := s.Data()
	if err != nil {
		return nil, modinfo{}, err
	}
	return f, parseModinfo(string(b)), nil
}

// parseModinfo reads "key=value" texts that end with a NUL each.
func parseModinfo(section string) modinfo {
	var m modinfo
	for field := range strings.SplitSeq(section, "\x00") {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "depends":
			m.depends = append(m.depends, moduleNamesIn(strings.Split(value, ","))...)
		case "softdep":
			m.soft = append(m.soft, moduleNamesIn(strings.Fields(value))...)
		case "alias":
			// The lists have a line per alias, and words are parted by blanks.
			if value != "" && !strings.ContainsAny(value, " \t\r\n") {
				m.aliases = append(m.aliases, value)
			}
		case "vermagic":
			m.vermagic = value
		}
	}
	return m
}

// moduleNamesIn drops what is not a name: "pre:" and "post:" of a softdep, and the empty field of a module
// that depends on nothing.
func moduleNamesIn(fields []string) []string {
	var names []string
	for _, f := range fields {
		if f != "" && !strings.HasSuffix(f, ":") && !strings.ContainsAny(f, "/\n") {
			names = append(names, normalName(f))
		}
	}
	return names
}

// normalName is the one form of a module's name: the kernel takes "-" and "_" for the same.
func normalName(name string) string { return strings.ReplaceAll(name, "-", "_") }

// compressions are what may follow a module's ".ko".
var compressions = []string{"", ".gz", ".xz", ".zst"}

// readCompressed reads a file, unpacked according to its name. Guests get their modules unpacked, because
// not every kernel can do it by itself.
func readCompressed(ctx context.Context, name string) ([]byte, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	switch filepath.Ext(name) {
	case ".gz":
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(b)); err == nil {
			b, err = io.ReadAll(z)
		}
	case ".zst":
		var z *zstd.Decoder
		if z, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1)); err == nil {
			b, err = z.DecodeAll(b, nil)
			z.Close()
		}
	case ".xz":
		b, err = host.Run(ctx, host.Local(), host.Command{Path: "xz", Args: []string{"-dc"},
			Stdin: bytes.NewReader(b)})
		if errors.Is(err, host.ErrUnsupported) {
			err = check.WithHint(err,
				"install xz (package xz-utils), or give modules that are not compressed")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", name, err)
	}
	return b, nil
}
