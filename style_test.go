package chokepoint_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/scanner"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// mayStartGoroutines: whoever starts one waits for it, so few packages may.
var mayStartGoroutines = []string{"trial", "trial/traffic", "trial/traffic/stream", "trial/traffic/frames",
	"trial/traffic/latency", "trial/traffic/responsiveness", "trial/traffic/iperf3", "trial/watch",
	"trial/ciphers", "lab",
	"lab/host", "lab/agent",
	"lab/isp", "lab/pair", "lab/ssh", "progress", "app", "serve", "bed", "labtest", "labtest/apart",
	"labtest/killed", "labtest/routeros", "labtest/steady"}

func isProgram(pkg string) bool {
	return strings.HasPrefix(pkg, "cmd/") || strings.HasPrefix(pkg, "bench/") || pkg == "dist"
}

func strayGoroutines(t *tree) []string {
	var found []string
	for _, f := range t.production() {
		if slices.Contains(mayStartGoroutines, f.pkg) || isProgram(f.pkg) {
			continue
		}

		ast.Inspect(f.ast, func(n ast.Node) bool {
			starts := false
			switch n := n.(type) {
			case *ast.GoStmt:
				starts = true
			case *ast.CallExpr: // sync.WaitGroup.Go, errgroup.Group.Go, time.AfterFunc
				sel, ok := n.Fun.(*ast.SelectorExpr)
				starts = ok && (sel.Sel.Name == "Go" || sel.Sel.Name == "AfterFunc")
			}

			if starts {
				found = append(found, fmt.Sprintf("%s: package %s starts a goroutine", t.at(n), f.pkg))
			}

			return true
		})
	}
	return found
}

// strayExits: only the main function of a program ends the process.
func strayExits(t *tree) []string {
	var found []string
	for _, f := range t.production() {
		var main *ast.FuncDecl
		if f.ast.Name.Name == "main" {
			for _, d := range f.ast.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "main" {
					main = fn
				}
			}
		}

		f.selections(func(n ast.Node, imported, member string) {
			exits := member == "Exit" && (imported == "os" || imported == "syscall" ||
				imported == "golang.org/x/sys/unix") ||
				imported == "log" && (strings.HasPrefix(member, "Fatal") || strings.HasPrefix(member,
					"Panic"))
			inMain := main != nil && main.Pos() <= n.Pos() && n.End() <= main.End()
			if exits && !inMain {
				found = append(found, fmt.Sprintf("%s: %s.%s outside of a main function", t.at(n), imported,
					member))
			}
		})
	}
	return found
}

// driverHomes lists the drivers that register themselves when they are imported, and who may import them.
var driverHomes = map[string]string{"github.com/dbos-inc/dbos-transact-golang/dbos/driver/sqlite": "bed"}

func initFunctions(t *tree) []string {
	var found []string
	for _, f := range t.sources {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				found = append(found, fmt.Sprintf("%s: init function", t.at(fn)))
			}
		}

		f.imports(func(spec *ast.ImportSpec, name, imported string) {
			if name == "_" && imported != "embed" && driverHomes[imported] != f.pkg {
				found = append(found, fmt.Sprintf("%s: import of %s for its side effect", t.at(spec),
					imported))
			}
		})
	}
	return found
}

func packageComments(t *tree) []string {
	docs := map[string][]string{}
	for _, f := range t.production() {
		if f.ast.Doc != nil {
			docs[f.pkg] = append(docs[f.pkg], f.path)
		}
	}

	var found []string
	for _, pkg := range t.packages() {
		n := len(docs[pkg])
		if n != 1 {
			found = append(found, fmt.Sprintf("package %s has %d package comments %v, want exactly one", pkg,
				n, docs[pkg]))
		}
	}

	return found
}

// mutableState finds package variables that something assigns to, or that can only be there to be changed
// (locks, atomics).
func mutableState(t *tree) []string {
	var found []string
	vars := map[string]map[string]bool{} // package → its variables
	for _, f := range t.production() {
		if vars[f.pkg] == nil {
			vars[f.pkg] = map[string]bool{}
		}

		for _, spec := range packageVars(f.ast) {
			for _, name := range spec.Names {
				vars[f.pkg][name.Name] = true
			}

			if typ, ok := spec.Type.(*ast.SelectorExpr); ok {
				if id, ok := typ.X.(*ast.Ident); ok && (id.Name == "sync" || id.Name == "atomic") {
					found = append(found, fmt.Sprintf("%s: package variable of type %s.%s", t.at(spec),
						id.Name, typ.Sel.Name))
				}
			}
		}
	}

	for _, f := range t.production() {
		for _, n := range assigned(f.ast) {
			id := root(n)
			if id != nil && vars[f.pkg][id.Name] && !declaredLocally(f.ast, id) {
				found = append(found, fmt.Sprintf("%s: package variable %s is changed", t.at(n), id.Name))
			}
		}
	}

	sort.Strings(found)
	return found
}

// patternsAtStart finds package variables of the program that hold compiled patterns, which each process of a
// lab would compile.
func patternsAtStart(t *tree) []string {
	var found []string
	for _, f := range t.production() {
		if r := room(f.pkg); r == "bench" || r == "dist" { // no part of the program
			continue
		}

		f.selections(func(n ast.Node, imported, member string) {
			if imported != "regexp" || member != "MustCompile" {
				return
			}

			for _, spec := range packageVars(f.ast) {
				if spec.Pos() <= n.Pos() && n.End() <= spec.End() {
					found = append(found, fmt.Sprintf("%s: pattern compiled at the start, use check.Pattern",
						t.at(n)))
				}
			}
		})
	}
	return found
}

func packageVars(f *ast.File) []*ast.ValueSpec {
	var specs []*ast.ValueSpec
	for _, d := range f.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR {
			for _, s := range g.Specs {
				specs = append(specs, s.(*ast.ValueSpec))
			}
		}
	}
	return specs
}

// assigned returns what the functions of a file assign to, delete from or count up.
func assigned(f *ast.File) []ast.Expr {
	var targets []ast.Expr
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				targets = append(targets, n.Lhs...)
			}
		case *ast.IncDecStmt:
			targets = append(targets, n.X)
		case *ast.CallExpr:
			if id, ok := n.Fun.(*ast.Ident); ok && (id.Name == "delete" || id.Name == "clear") &&
				len(n.Args) > 0 {
				targets = append(targets, n.Args[0])
			}
		}
		return true
	})
	return targets
}

// root is the variable at the left end of x.f[i] and the like.
func root(e ast.Expr) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x
		case *ast.SelectorExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return nil
		}
	}
}

// declaredLocally tells a local variable from a package's of the same name: the parser resolves names
// within a file, and leaves those of the package's other files unresolved.
func declaredLocally(f *ast.File, id *ast.Ident) bool {
	if id.Obj == nil {
		return false
	}

	spec, ok := id.Obj.Decl.(*ast.ValueSpec)
	return !ok || !slices.Contains(packageVars(f), spec)
}

// misplacedContext: ctx comes first, but for the testing.T of a suite, and is never kept in a struct.
// Function literals, which only their neighbours call, may order their parameters as they like.
func misplacedContext(t *tree) []string {
	isFrom := func(pkg string, e ast.Expr, names ...string) bool {
		if star, ok := e.(*ast.StarExpr); ok {
			e = star.X
		}

		sel, ok := e.(*ast.SelectorExpr)
		if !ok {
			return false
		}

		id, ok := sel.X.(*ast.Ident)
		return ok && id.Name == pkg && slices.Contains(names, sel.Sel.Name)
	}
	isContext := func(e ast.Expr) bool { return isFrom("context", e, "Context") }
	var found []string
	for _, f := range t.production() {
		literals := map[*ast.FuncType]bool{}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncLit: // comes before its type
				literals[n.Type] = true
			case *ast.StructType:
				for _, field := range n.Fields.List {
					if isContext(field.Type) {
						found = append(found, fmt.Sprintf("%s: context kept in a struct", t.at(field)))
					}
				}
			case *ast.FuncType:
				params := n.Params.List
				if len(params) > 0 && isFrom("testing", params[0].Type, "T", "B", "F", "TB") {
					params = params[1:]
				}

				for i, field := range params {
					if i > 0 && isContext(field.Type) && !literals[n] {
						found = append(found, fmt.Sprintf("%s: context is not the first parameter",
							t.at(field)))
					}
				}
			}
			return true
		})
	}

	return found
}

// wideInterfaces: a contract, that is an exported interface, has at most four methods; more ability is a
// second interface, found by assertion.
func wideInterfaces(t *tree) []string {
	var found []string
	for _, f := range t.production() {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}

			if i, ok := spec.Type.(*ast.InterfaceType); ok && spec.Name.IsExported() &&
				i.Methods.NumFields() > 4 {
				found = append(found, fmt.Sprintf("%s: interface %s has %d methods, at most 4 are allowed",
					t.at(spec), spec.Name.Name, i.Methods.NumFields()))
			}

			return true
		})
	}
	return found
}

const (
	maxColumns = 110
	tabColumns = 4
)

// tooWide finds the lines that do not fit beside another window. Excepted is what no line break may change:
// raw strings; and in tests the rows of a table, which begin with a brace or a string.
func tooWide(t *tree) []string {
	var found []string
	for _, f := range t.sources {
		raw := map[int]bool{}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && strings.HasPrefix(lit.Value, "`") {
				for line := t.fset.Position(lit.Pos()).Line; line <= t.fset.Position(lit.End()).Line; line++ {
					raw[line] = true
				}
			}
			return true
		})
		for i, line := range strings.Split(string(t.files[f.path]), "\n") {
			text := strings.TrimLeft(line, "\t")
			columns := utf8.RuneCountInString(line) + (tabColumns-1)*strings.Count(line, "\t")
			row := f.test && (strings.HasPrefix(text, "{") || strings.HasPrefix(text, `"`))
			if columns > maxColumns && !raw[i+1] && !row {
				found = append(found, fmt.Sprintf("%s:%d: %d columns, at most %d are allowed", f.path, i+1,
					columns, maxColumns))
			}
		}
	}
	return found
}

// firstText is the leading string literal of an expression.
func firstText(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		return s, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		return firstText(e.X)
	}
	return "", false
}

// tokenBudgets bounds each room of the program, without tests, in tokens as go/scanner counts them (comments
// left out), so that no layout is denser for it. A budget is raised only with a reason in the commit.
var tokenBudgets = map[string]int{
	"analysis":  194_000,
	"app":       43_300,
	"bed":       17_200,
	"bundle":    7_600,
	"catalogue": 2_700,
	"cipher":    2_700,
	"check":     2_100,
	"cmd":       65_600,
	"factor":    9_100,
	"foreign":   23_000,
	"lab":       237_400,
	"overhead":  2_900,
	"plan":      26_600,
	"probe":     40_900,
	"progress":  6_900,
	"qdisc":     4_300,
	"record":    32_700,
	"registry":  3_100,
	"report":    91_100,
	"serve":     17_100,
	"trial":     138_000,
	"unit":      1_400,
	"userfile":  2_200,
}

// room is the part of the tree that has one budget: a folder of internal, or all of cmd.
func room(pkg string) string {
	name, _, _ := strings.Cut(pkg, "/")
	return name
}

func tokens(text []byte) int {
	var s scanner.Scanner
	s.Init(token.NewFileSet().AddFile("", -1, len(text)), text, nil, 0)
	n := 0
	for {
		_, tok, _ := s.Scan()
		if tok == token.EOF {
			return n
		}

		n++
	}
}

func TestRoomsStaySmall(t *testing.T) {
	tr, err := wholeTree()
	if err != nil {
		t.Fatal(err)
	}

	counts := map[string]int{}
	total := 0
	for _, f := range tr.production() {
		r := room(f.pkg)
		if r != "bench" && r != "labtest" && r != "dist" { // no part of the program
			n := tokens(tr.files[f.path])
			counts[r] += n
			total += n
		}
	}

	for r, n := range counts {
		budget := tokenBudgets[r]
		t.Logf("%-10s %7d of %7d tokens", r, n, budget)
		if n > budget {
			t.Errorf("%s has %d tokens of Go without tests, its budget is %d", r, n, budget)
		}
	}

	t.Logf("%-10s %7d tokens", "all", total)
}

// developerPath is a path of somebody's machine, also inside of binary samples.
var developerPath = regexp.MustCompile(`/(home|Users)/[A-Za-z][A-Za-z0-9._-]*/|/root/[A-Za-z.]|[A-Z]:\\Users\\`)

func developerPaths(t *tree) []string {
	var found []string
	for _, name := range slices.Sorted(maps.Keys(t.files)) {
		if name == "style_test.go" { // the rule itself
			continue
		}

		for i, line := range bytes.Split(t.files[name], []byte("\n")) {
			m := developerPath.Find(line)
			if m != nil {
				fault := fmt.Sprintf("%s:%d: holds a path of a developer's machine, %q", name, i+1, m)
				found = append(found, fault)
			}
		}
	}
	return found
}
