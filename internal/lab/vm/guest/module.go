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

var errUnknown = errors.New("no such module") // no module or alias has the requested name

// modules loads kernel modules and their dependencies.
type modules struct {
	root   string // path /lib/modules/RELEASE, which contains the lists written by depmod(8)
	load   func(file string) error
	files  map[string][]string // files of a module and of its dependencies, by normalised name of the module
	loaded map[string]bool     // files that are already loaded
}

// openModules reads modules.dep. If this file is missing, there are no modules.
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

// parseDependencies parses modules.dep, whose lines have the form "file: dependency …", into a map from
// module names to files. It skips lines that are malformed or contain files outside the directory.
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

// moduleName returns the normalised name of a module file, which is the part before ".ko".
func moduleName(file string) string {
	name, _, ok := strings.Cut(path.Base(file), ".ko")
	if !ok {
		return ""
	}
	return normal(name)
}

// parseAliases returns the modules that modules.alias lists for a normalised name. Its lines have the form
// "alias PATTERN MODULE". The result contains each module once.
func parseAliases(text, name string) []string {
	var found []string
	for line := range strings.Lines(text) {
		// Avoid allocations for lines that cannot match, because the list is long and the kernel waits.
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

// mayMatch reports whether a name may match a pattern. It compares only the literal prefix of the pattern.
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
		case '/', 0: // matches treats them as equal
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

// builtIn reports whether modules.builtin lists a module, which is then a part of the kernel.
func builtIn(text, name string) bool {
	return slices.ContainsFunc(strings.Fields(text), func(f string) bool { return moduleName(f) == name })
}

// wantAll loads modules by name. It tries to load all of them, and joins the errors.
func (m *modules) wantAll(names []string) error {
	var failed []error
	for _, name := range names {
		failed = append(failed, m.want(name))
	}
	return errors.Join(failed...)
}

// want loads the module with the given name. If there is none, it loads all modules that have this alias, and
// fails only if all of them fail, because several drivers may implement an algorithm, some of them for
// another CPU. It does not load modules that are built into the kernel.
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
			continue // the file is not in the image
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

// one loads the given files in reverse order. The first file, which is loaded last, is the module itself. The
// others are its dependencies.
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

// parseRequest parses modprobe's arguments for loading modules. The kernel passes "-q -- ALIAS". If quiet is
// set, unknown names are not reported. Module parameters are not supported.
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

// normal normalises a module name or alias. It replaces "-" with "_", except within the brackets of a
// pattern, where "-" denotes a range. kmod does the same.
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

// asPath converts a pattern from the syntax of fnmatch(3) to that of path.Match, in which "/" is special and
// "!" does not negate.
var asPath = strings.NewReplacer("/", "\x00", "[!", "[^")

// matches reports whether a shell pattern matches the whole text. A malformed pattern, such as one with an
// open bracket, matches nothing. Kernel builds do not produce such patterns. Invalid UTF-8 bytes are treated
// as equal to each other, and so are "/" and NUL.
func matches(pattern, text string) bool {
	ok, err := path.Match(asPath.Replace(pattern), strings.ReplaceAll(text, "/", "\x00"))
	return ok && err == nil
}
