package chokepoint_test

import (
	"fmt"
	"go/ast"
	"path"
	"strings"
	"testing"
)

// counted are the families of additions: who lists them, and how many files without tests one may be in. A
// knob, a probe and a rule are a file and a line of registration.
var counted = []struct {
	family, file, function string
	most                   int
}{
	{"knob", "internal/lab/knob/use.go", "All", 2},
	{"probe", "internal/probe/probe.go", "All", 2},
	{"rule", "internal/analysis/validity/gate.go", "gate", 2},
	{"tunnel", "internal/lab/tunnel/wireguard.go", "All", 4},
	{"engine", "internal/registry/node/engines_linux.go", "Engines", 4},
	{"prober", "internal/registry/node/engines_linux.go", "Probers", 4},
	{"section", "internal/report/report.go", "sections", 4},
	{"class of limit", "internal/analysis/diagnosis/rules.go", "allRules", 2},
	{"driver", "internal/lab/driver/driver.go", "All", 5}, // most of them its own
}

// wider are the entries that more files know, with the reason.
var wider = map[string]string{
	"stream.Native":      "the engine of every plan: verifications, ceilings and fallbacks are its",
	"iperf3.Engine":      "third parties serve it, too: with one of those it is a plan's default",
	"latency.Echo":       "the probe of every plan, and of ends that are not Linux",
	"shortflow.Requests": "doctor measures with it what the tester itself adds",
}

// entry is one thing that a family lists: the name of what makes it, in a package.
type entry struct{ pkg, name string }

func (e entry) String() string { return path.Base(e.pkg) + "." + e.name }

// listed are the calls, literals and functions in what a function returns or goes over, as it lists them.
func listed(t *tree, file, function string) []entry {
	var out []entry
	for _, f := range t.production() {
		if f.path != file {
			continue
		}

		imported := map[string]string{}
		f.imports(func(_ *ast.ImportSpec, name, of string) {
			pkg, ours := projectPackage(of)
			if ours {
				imported[path.Base(pkg)] = pkg
			}
		})
		add := func(e ast.Expr) {
			switch e := e.(type) {
			case *ast.CallExpr:
				if s, ok := e.Fun.(*ast.SelectorExpr); ok && imported[typeText(s.X)] == "" {
					return // slices.Concat
				}

				out = append(out, entryOf(e.Fun, f.pkg, imported))
			case *ast.CompositeLit:
				of := e.Type
				if of == nil { // a row of a table, which ends with what makes the entry
					of = e.Elts[len(e.Elts)-1]
				}

				out = append(out, entryOf(of, f.pkg, imported))
			case *ast.Ident, *ast.SelectorExpr:
				out = append(out, entryOf(e, f.pkg, imported))
			}
		}
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Name.Name != function {
				continue
			}

			ast.Inspect(fn.Body, func(n ast.Node) bool {
				if l, ok := n.(*ast.CompositeLit); ok {
					_, list := l.Type.(*ast.ArrayType)
					if list {
						for _, e := range l.Elts {
							add(e)
						}
						return false
					}
				}
				return true
			})
		}
	}
	return out
}

func entryOf(e ast.Expr, pkg string, imported map[string]string) entry {
	if s, ok := e.(*ast.SelectorExpr); ok {
		p := imported[typeText(s.X)]
		if p != "" {
			return entry{p, s.Sel.Name}
		}
		return entry{pkg, s.Sel.Name} // a method
	}
	return entry{pkg, typeText(e)}
}

// mentions lists the files that name something: alone, by the package of the file, and after the last word of
// another package.
type mentions struct{ alone, after map[entry][]source }

func mentionsIn(t *tree) mentions {
	m := mentions{map[entry][]source{}, map[entry][]source{}}
	for _, f := range t.production() {
		if strings.HasPrefix(f.path, "bench/") {
			continue
		}

		is := func(e ast.Expr) {
			to, named := m.alone, entry{f.pkg, typeText(e)}
			switch e := e.(type) {
			case *ast.SelectorExpr:
				to, named = m.after, entry{typeText(e.X), e.Sel.Name}
			case *ast.Ident:
			default:
				return
			}

			files := to[named]
			if len(files) == 0 || files[len(files)-1].path != f.path {
				to[named] = append(files, f)
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv == nil {
					is(n.Name)
				}
			case *ast.TypeSpec:
				is(n.Name)
			case *ast.ValueSpec:
				for _, name := range n.Names {
					is(name)
				}
			case *ast.CallExpr:
				is(n.Fun)
			case *ast.CompositeLit:
				is(n.Type)
				for _, e := range n.Elts {
					is(e)
				}
			}
			return true
		})
	}
	return m
}

// of returns the files that mention an entry: those of its own package by its name, others with the package's
// before it.
func (m mentions) of(known entry) (out []string) {
	for _, f := range m.alone[known] {
		out = append(out, f.path)
	}

	for _, f := range m.after[entry{path.Base(known.pkg), known.name}] {
		// A driver, which brings some of the knobs to a system without an agent, is an addition of its own.
		if f.pkg != known.pkg && f.pkg != "lab/driver" {
			out = append(out, f.path)
		}
	}

	return out
}

// TestAdditionsTouchFewFiles: what there is of a family is known in as few files as docs/extending.md says a
// new one takes.
func TestAdditionsTouchFewFiles(t *testing.T) {
	tr, err := wholeTree()
	if err != nil {
		t.Fatal(err)
	}

	known := mentionsIn(tr)
	for _, c := range counted {
		entries := listed(tr, c.file, c.function)
		if len(entries) == 0 {
			t.Errorf("%s lists no %s in %s", c.file, c.family, c.function)
		}

		for _, e := range entries {
			files := known.of(e)
			if wider[fmt.Sprint(e)] == "" && (len(files) > c.most || len(files) == 0) {
				t.Errorf("%s %s: %d files know it, want 1 to %d: %s", c.family, e, len(files), c.most,
					strings.Join(files, ", "))
			}
		}
	}
}

// typeText returns the last word of a type or of another expression: "Declaration" of factor.Declaration.
func typeText(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.StarExpr:
		return typeText(e.X)
	case *ast.CallExpr:
		return typeText(e.Fun)
	case *ast.IndexExpr:
		return typeText(e.X)
	}
	return ""
}
