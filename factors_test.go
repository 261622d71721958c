package chokepoint_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// namesAllowed are folders and files that may know factors by name, with the reason.
var namesAllowed = map[string]string{
	"internal/factor/":        "declares them",
	"internal/record/path.go": "what older runs, which do not say it, took for loads",
	"internal/lab/driver/":    "says which knobs a system has commands for",
	"internal/labtest/":       "the fake lab plays a node that has some of the knobs",
	"bench/":                  "reads the numbers of plans of its own",
}

func mayName(path string) bool {
	for allowed := range namesAllowed {
		if strings.HasPrefix(path, allowed) {
			return true
		}
	}
	return false
}

// declaredFactors are the factors' names with the files that declare them: a constant of factor.Name, or the
// Name of a factor.Declaration.
func declaredFactors(t *tree) map[string][]string {
	names := map[string][]string{}
	for _, f := range t.production() {
		consts := map[string]string{}
		note := func(value ast.Expr) {
			name := text(value)
			if id, ok := value.(*ast.Ident); ok {
				name = consts[id.Name]
			}
			if name = strings.TrimSuffix(name, ":"); name != "" {
				names[name] = append(names[name], f.path)
			}
		}
		declaration := func(e ast.Expr) bool { return strings.HasSuffix(typeText(e), "Declaration") }
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				for i, id := range n.Names {
					if i < len(n.Values) {
						consts[id.Name] = text(n.Values[i])
						if f.pkg == "factor" && typeText(n.Type) == "Name" {
							note(n.Values[i])
						}
					}
				}
			case *ast.CompositeLit:
				literals := []*ast.CompositeLit{n}
				if !declaration(n.Type) {
					literals = nil
					if list, ok := n.Type.(*ast.ArrayType); ok && declaration(list.Elt) {
						for _, e := range n.Elts {
							if l, ok := e.(*ast.CompositeLit); ok {
								literals = append(literals, l)
							}
						}
					}
				}
				for _, l := range literals {
					for _, e := range l.Elts {
						if kv, ok := e.(*ast.KeyValueExpr); ok && typeText(kv.Key) == "Name" {
							note(kv.Value)
						}
					}
				}
			}
			return true
		})
	}
	return names
}

// text is the value of a string literal, or "".
func text(e ast.Expr) string {
	if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
		s, _ := strconv.Unquote(l.Value)
		return s
	}
	return ""
}

// typeText is the last word of a type or of another expression: "Declaration" of factor.Declaration.
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

// Words by which code calls a cell, and the name of a factor. Other things have names like those of factors,
// such as the rate of a queueing discipline.
var (
	cellWords = []string{"f", "c", "cell", "factors", "Factors", "given", "Against", "Baseline", "path"}
	nameWords = []string{"n", "name", "Name", "plain", "plainName", "factor", "Factor", "of"}
)

// askedFactors: who wants a factor's level asks the factor (factor.Streams.Of), and what is known of a factor
// stands in its declaration. So no code but that of the declaration itself compares the name of a factor,
// takes a level out of a cell by it, or keeps a list or table of such names.
func askedFactors(t *tree) []string {
	var found []string
	names := declaredFactors(t)
	for _, f := range t.production() {
		if mayName(f.path) {
			continue
		}
		// is says which factor an expression names; one that this file declares is its own.
		is := func(e ast.Expr) (string, bool) {
			if call, ok := e.(*ast.CallExpr); ok && typeText(call.Fun) == "string" && len(call.Args) == 1 {
				e = call.Args[0]
			}
			if s, ok := e.(*ast.SelectorExpr); ok && typeText(s.X) == "factor" {
				for name := range names {
					if strings.EqualFold(strings.ReplaceAll(name, "_", ""), s.Sel.Name) {
						return name, true
					}
				}
			}
			name := text(e)
			files, known := names[name]
			return name, known && !slices.Contains(files, f.path)
		}
		fault := func(at ast.Node, how, name string) {
			found = append(found, fmt.Sprintf("%s: %s the factor %s by its name", t.at(at), how, name))
		}
		compare := func(at ast.Node, what, with ast.Expr) {
			if name, ok := is(with); ok && slices.Contains(nameWords, typeText(what)) {
				fault(at, "compares", name)
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.IndexExpr:
				if name, ok := is(n.Index); ok && slices.Contains(cellWords, typeText(n.X)) {
					fault(n, "looks up", name)
				}
			case *ast.BinaryExpr:
				if n.Op == token.EQL || n.Op == token.NEQ {
					compare(n, n.X, n.Y)
					compare(n, n.Y, n.X)
				}
			case *ast.SwitchStmt:
				for _, clause := range n.Body.List {
					for _, e := range clause.(*ast.CaseClause).List {
						if n.Tag != nil {
							compare(e, n.Tag, e)
						}
					}
				}
			case *ast.CompositeLit:
				var listed []string
				for _, e := range n.Elts {
					if kv, ok := e.(*ast.KeyValueExpr); ok {
						if _, isMap := n.Type.(*ast.MapType); !isMap {
							return true
						}
						e = kv.Key
					}
					if name, ok := is(e); ok && text(e) != "" {
						listed = append(listed, name)
					}
				}
				if len(listed) > 2 && len(listed) == len(n.Elts) {
					fault(n, "lists", listed[0])
				}
			}
			return true
		})
	}
	return found
}
