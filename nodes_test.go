package chokepoint_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// What a node is and can is asked of the node. Only kindFile may ask for a lab's kind, to answer for stored
// runs that have no facts of nodes yet; only agentFile may ask whether there is an agent.
const (
	kindFile  = "internal/record/node.go"
	agentFile = "internal/lab/node.go"
)

var kindNames = []string{"LabLocal", "LabVM", "LabPair"}

// namesKind reports whether an expression is the name of a kind of lab, or the field of a run that holds it.
func namesKind(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		kind, _, _ := strings.Cut(s, ":")
		return err == nil && e.Kind == token.STRING && slices.Contains([]string{"local", "vm", "pair"}, kind)
	case *ast.Ident:
		return slices.Contains(kindNames, e.Name)
	case *ast.SelectorExpr:
		if slices.Contains(kindNames, e.Sel.Name) {
			return true
		}

		of, ok := e.X.(*ast.SelectorExpr) // x.Run.Lab
		id, local := e.X.(*ast.Ident)     // run.Lab
		return e.Sel.Name == "Lab" && (ok && strings.EqualFold(of.Sel.Name, "run") ||
			local && strings.EqualFold(id.Name, "run"))
	}
	return false
}

func isNil(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == "nil"
}

func isAgent(e ast.Expr) bool {
	sel, ok := e.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == "Agent"
}

// comparisons of strings that are not operators.
var textComparisons = []string{"HasPrefix", "HasSuffix", "Contains", "Cut", "CutPrefix", "EqualFold", "Index"}

// askedKinds finds code that asks for a lab's kind, or whether a node has an agent, instead of the node.
func askedKinds(t *tree) []string {
	var found []string
	for _, f := range t.production() {
		kind := func(n ast.Node) {
			if f.path != kindFile {
				found = append(found, fmt.Sprintf("%s: asks for a lab's kind: ask the node (lab.Node, "+
					"record.Run.Node)",
					t.at(n)))
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr:
				if n.Op != token.EQL && n.Op != token.NEQ {
					return true
				}

				// Whether a run names a lab at all is no question for its kind.
				empty := func(e ast.Expr) bool { l, ok := e.(*ast.BasicLit); return ok && l.Value == `""` }
				if (namesKind(n.X) || namesKind(n.Y)) && !empty(n.X) && !empty(n.Y) {
					kind(n)
				}

				if f.path != agentFile && (isAgent(n.X) && isNil(n.Y) || isAgent(n.Y) && isNil(n.X)) {
					found = append(found, fmt.Sprintf("%s: asks whether there is an agent: ask "+
						"lab.Node.HasAgent",
						t.at(n)))
				}
			case *ast.SwitchStmt:
				if n.Tag != nil && namesKind(n.Tag) {
					kind(n)
				}
			case *ast.CaseClause:
				if slices.ContainsFunc(n.List, namesKind) {
					kind(n)
				}
			case *ast.CallExpr:
				sel, ok := n.Fun.(*ast.SelectorExpr)
				if !ok || !slices.Contains(textComparisons, sel.Sel.Name) {
					return true
				}

				if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "strings" && slices.ContainsFunc(n.Args,
					namesKind) {
					kind(n)
				}
			}
			return true
		})
	}
	return found
}
