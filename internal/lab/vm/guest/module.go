package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

var errUnknown = errors.New("no such module") // no module has the name or the alias

// modules loads kernel modules with their dependencies. Root is the directory with the lists of depmod(8) and
// the modules; load passes one file to the kernel.
type modules struct {
	root   string // /lib/modules/RELEASE
	load   func(file string) error
	files  map[string][]string // by normal name: its file, and its dependencies
	loaded map[string]bool     // files that need not be loaded again
}

// openModules reads the list of modules. If it is missing there are none.
func openModules(root string, load func(file string) error) (*modules, error) {
	m := &modules{root: root, load: load, loaded: map[string]bool{}}
	text, err := readList(filepath.Join(root, "modules.dep"))
	if err != nil {
		return nil, err
	}

	m.files = parseDependencies(text)
	return m, nil
}

func readList(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read list of modules: %w", err)
	}
	return string(b), nil
}

// parseDependencies parses modules.dep into the files of its lines "file: dependency …", by name, below the
// list's directory. It skips malformed lines, and lines with files outside the directory.
func parseDependencies(text string) map[string][]string {
	all := map[string][]string{}
	for line := range strings.Lines(text) {
		first, rest, ok := strings.Cut(line, ":")
		files := strings.Fields(first)
		if !ok || len(files) != 1 {
			continue
		}

		name := moduleName(files[0])
		files = append(files, strings.Fields(rest)...)
		if name != "" && !slices.ContainsFunc(files, func(f string) bool { return !filepath.IsLocal(f) }) {
			all[name] = files
		}
	}
	return all
}

// moduleName returns the normal name of a module's file: the part before ".ko".
func moduleName(file string) string {
	name, _, ok := strings.Cut(path.Base(file), ".ko")
	if !ok {
		return ""
	}
	return normal(name)
}

// parseAliases returns the modules in modules.alias ("alias PATTERN MODULE") for a normal name, each once.
func parseAliases(text, name string) []string {
	var found []string
	for line := range strings.Lines(text) {
		// The list is long and the kernel waits: no allocation for a line that begins otherwise.
		rest, ok := strings.CutPrefix(line, "alias ")
		if !ok || !mayMatch(rest, name) {
			continue
		}

		f := strings.Fields(rest)
		if len(f) == 2 && matches(normal(f[0]), name) && !slices.Contains(found, normal(f[1])) {
			found = append(found, normal(f[1]))
		}
	}
	return found
}

// mayMatch compares the literal prefix of a pattern.
func mayMatch(pattern, name string) bool {
	for i := range len(name) {
		if i == len(pattern) {
			return false
		}

		switch c := pattern[i]; c {
		case '*', '?', '[', '\\':
			return true
		case '-', '_':
			if name[i] != '_' {
				return false
			}
		case '/', 0: // these are equal for matches
			if name[i] != '/' && name[i] != 0 {
				return false
			}
		default:
			if c != name[i] {
				return false
			}
		}
	}
	return true
}

// builtIn reports whether modules.builtin lists a module of that name: one built into the kernel.
func builtIn(text, name string) bool {
	return slices.ContainsFunc(strings.Fields(text), func(f string) bool { return moduleName(f) == name })
}

// wantAll loads all names and reports each that cannot be loaded.
func (m *modules) wantAll(names []string) error {
	var failed []error
	for _, name := range names {
		failed = append(failed, m.want(name))
	}
	return errors.Join(failed...)
}

// want loads what a name refers to: the module itself, or else all modules that have it as an alias, one of
// which must load. Several drivers offer one algorithm, and the first may be for another CPU. Modules built
// into the kernel need no loading.
func (m *modules) want(asked string) error {
	name := normal(asked)
	if files, ok := m.files[name]; ok {
		return m.one(files)
	}

	aliases, err := readList(filepath.Join(m.root, "modules.alias"))
	if err != nil {
		return err
	}

	some := false
	var failed []error
	for _, module := range parseAliases(aliases, name) {
		files, ok := m.files[module]
		if !ok {
			continue // not in this image
		}

		if err := m.one(files); err != nil {
			failed = append(failed, err)
		} else {
			some = true
		}
	}

	if some {
		return nil
	}

	own, err := readList(filepath.Join(m.root, "modules.builtin"))
	switch {
	case err != nil:
		return err
	case builtIn(own, name):
		return nil
	case len(failed) > 0:
		return errors.Join(failed...)
	}

	return fmt.Errorf("load %s: %w", asked, errUnknown)
}

// one loads a module after its dependencies, which follow it in the list, the deepest last.
func (m *modules) one(files []string) error {
	for _, file := range slices.Backward(files) {
		if m.loaded[file] {
			continue
		}

		if err := m.load(filepath.Join(m.root, file)); err != nil && !errors.Is(err, syscall.EEXIST) {
			return fmt.Errorf("load %s: %w", moduleName(file), err)
		}

		m.loaded[file] = true
	}
	return nil
}

// parseRequest parses the arguments of modprobe that load something; the kernel's are "-q -- ALIAS". quiet
// means that an unknown name is not reported. Module parameters are not supported.
func parseRequest(args []string) (names []string, quiet bool, err error) {
	flags := true
	for _, a := range args {
		switch {
		case flags && a == "--":
			flags = false
		case flags && (a == "-q" || a == "--quiet"):
			quiet = true
		case flags && (a == "-a" || a == "--all"):
		case flags && strings.HasPrefix(a, "-"):
			return nil, false, fmt.Errorf("flag %s is not among -q, -a and --", a)
		case a == "" || strings.ContainsRune(a, '='):
			return nil, false, fmt.Errorf("%q is not a module's name", a)
		default:
			names = append(names, a)
		}
	}

	if len(names) == 0 {
		return nil, false, errors.New("no module's name")
	}

	return names, quiet, nil
}

// normal converts a module's name or an alias for comparison: "-" and "_" are the same, except in a pattern's
// brackets, where "-" is a range (as in kmod).
func normal(text string) string {
	b := []byte(text)
	inside := false
	for i, c := range b {
		switch {
		case c == '[':
			inside = true
		case c == ']':
			inside = false
		case c == '-' && !inside:
			b[i] = '_'
		}
	}

	return string(b)
}

// asPath converts a pattern of fnmatch(3) for path.Match, where "/" is special and "!" does not negate.
var asPath = strings.NewReplacer("/", "\x00", "[!", "[^")

// matches reports whether a shell pattern covers the whole of a text. A malformed pattern, such as one with
// an open bracket, covers nothing: the kernel's build produces none. Invalid UTF-8 bytes are treated alike,
// as are a slash and NUL.
func matches(pattern, text string) bool {
	ok, err := path.Match(asPath.Replace(pattern), strings.ReplaceAll(text, "/", "\x00"))
	return ok && err == nil
}
