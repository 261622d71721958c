// Package chokepoint_test holds the tests of the whole tree: its layers, its house rules and its documents.
// Each rule is a function from a tree to findings; the real tree must have none, and a planted fault per
// rule under testdata/layers proves that the rule can fail.
package chokepoint_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/rogpeppe/go-internal/txtar"
)

const module = "github.com/chokepoint-lab/chokepoint"

// source is a parsed Go file, whatever its build constraints: a rule holds on every GOOS and GOARCH at
// once.
type source struct {
	path string // from the module's root
	pkg  string // directory without "internal/", as in the layer table
	test bool
	ast  *ast.File
}

// tree is a module to be checked.
type tree struct {
	fset    *token.FileSet
	sources []source
	files   map[string][]byte // every file, for rules about text
}

// rule is one law of the house.
type rule struct {
	name  string
	check func(t *tree) []string
}

var rules = []rule{
	{"listed", unlisted},
	{"table", unusedEntries},
	{"layers", upwardImports},
	{"homes", strayDependencies},
	{"pure", impure},
	{"goroutines", strayGoroutines},
	{"exit", strayExits},
	{"init", initFunctions},
	{"package-comment", packageComments},
	{"state", mutableState},
	{"patterns", patternsAtStart},
	{"context", misplacedContext},
	{"interface", wideInterfaces},
	{"width", tooWide},
	{"paths", developerPaths},
	{"kinds", askedKinds},
}

func TestRules(t *testing.T) {
	tr, err := wholeTree()
	if err != nil {
		t.Fatal(err)
	}

	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			for _, f := range r.check(tr) {
				t.Error(f)
			}
		})
	}
}

// TestRulesCanFail runs each rule over the planted faults named after it:
// testdata/layers/<rule>-<fault>.txtar. The archive's comment has one line per finding that must come, in
// order, no more and no fewer; a last line "..." admits others. Beside each fault the archive holds what
// must not be found.
func TestRulesCanFail(t *testing.T) {
	planted, err := filepath.Glob("testdata/layers/*.txtar")
	if err != nil {
		t.Fatal(err)
	}

	seen := map[string]bool{}
	for _, file := range planted {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		r, ok := ruleOf(name)
		if !ok {
			t.Errorf("%s: no rule has this name", file)
			continue
		}

		seen[r.name] = true
		t.Run(name, func(t *testing.T) { checkPlanted(t, r, file) })
	}

	for _, r := range rules {
		if !seen[r.name] {
			t.Errorf("rule %s: no planted fault under testdata/layers proves that it can fail", r.name)
		}
	}
}

func ruleOf(fault string) (rule, bool) {
	best := rule{}
	for _, r := range rules {
		if (fault == r.name || strings.HasPrefix(fault, r.name+"-")) && len(r.name) > len(best.name) {
			best = r
		}
	}
	return best, best.name != ""
}

func checkPlanted(t *testing.T, r rule, file string) {
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}

	fsys := fstest.MapFS{}
	for _, f := range archive.Files {
		fsys[f.Name] = &fstest.MapFile{Data: f.Data}
	}

	tr, err := readTree(fsys)
	if err != nil {
		t.Fatal(err)
	}

	got := r.check(tr)
	want := strings.Split(strings.TrimSpace(string(archive.Comment)), "\n")
	n := len(want) - 1
	if want[n] == "..." && len(got) >= n {
		want = want[:n]
		got = got[:n]
	}

	if len(got) != len(want) {
		t.Fatalf("findings: got %q, want %q", got, want)
	}

	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("finding %d: got %q, want it to contain %q", i, got[i], want[i])
		}
	}
}

// wholeTree is the project's own tree, parsed once.
var wholeTree = sync.OnceValues(func() (*tree, error) { return readTree(os.DirFS(".")) })

// readTree reads every file that belongs to the project. Hidden folders other than .ci, and what git
// ignores, are not part of it; testdata is read as text only, without the planted faults.
func readTree(fsys fs.FS) (*tree, error) {
	t := &tree{fset: token.NewFileSet(), files: map[string][]byte{}}
	err := fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		if d.IsDir() {
			hidden := strings.HasPrefix(d.Name(), ".") && p != "." && p != ".ci"
			if hidden || p == "dist/out" || p == "testdata/layers" {
				return fs.SkipDir
			}
			return nil
		}

		if !d.Type().IsRegular() || p == "chokepoint" || p == "chokepoint-agent" {
			return nil
		}

		data, err := fs.ReadFile(fsys, p)
		if err != nil {
			return err
		}

		t.files[p] = data
		if !strings.HasSuffix(p, ".go") || strings.Contains(p, "testdata/") {
			return nil
		}

		f, err := parser.ParseFile(t.fset, p, data, parser.ParseComments)
		if err != nil {
			return fmt.Errorf("parse %s: %w", p, err)
		}

		t.sources = append(t.sources, source{
			path: p,
			pkg:  strings.TrimPrefix(path.Dir(p), "internal/"),
			test: strings.HasSuffix(p, "_test.go"),
			ast:  f,
		})
		return nil
	})
	return t, err
}

// production returns the files that end up in a binary.
func (t *tree) production() []source {
	var s []source
	for _, f := range t.sources {
		if !f.test {
			s = append(s, f)
		}
	}
	return s
}

// packages returns the production packages, sorted.
func (t *tree) packages() []string {
	seen := map[string]bool{}
	var names []string
	for _, f := range t.production() {
		if !seen[f.pkg] {
			seen[f.pkg] = true
			names = append(names, f.pkg)
		}
	}

	sort.Strings(names)
	return names
}

func (t *tree) at(n ast.Node) string { return t.fset.Position(n.Pos()).String() }

// imports calls f with every import of a file: the local name under which it is used, and the path.
func (s source) imports(f func(spec *ast.ImportSpec, name, imported string)) {
	for _, spec := range s.ast.Imports {
		imported := strings.Trim(spec.Path.Value, `"`)
		name := path.Base(imported)
		if name == "v2" || name == "v4" {
			name = path.Base(path.Dir(imported))
		}

		if spec.Name != nil {
			name = spec.Name.Name
		}

		f(spec, name, imported)
	}
}

// selections calls f with every use of a member of an imported package, as ("time", "Now").
func (s source) selections(f func(n ast.Node, imported, member string)) {
	names := map[string]string{}
	s.imports(func(_ *ast.ImportSpec, name, imported string) { names[name] = imported })
	ast.Inspect(s.ast, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}

		// Obj is set for a name declared in the file: a variable that shadows the package.
		if id, ok := sel.X.(*ast.Ident); ok && id.Obj == nil && names[id.Name] != "" {
			f(sel, names[id.Name], sel.Sel.Name)
		}

		return true
	})
}
