package chokepoint_test

import (
	"fmt"
	"go/ast"
	"regexp"
	"slices"
	"strings"
)

// untypedSkips: a skip says why in a text that begins with "skip: ", and .ci/allowed-skips lists the ones
// that may happen.
func untypedSkips(t *tree) []string {
	var found []string
	for _, f := range t.sources {
		if room, _, _ := strings.Cut(f.pkg, "/"); !f.test && room != "labtest" {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) {
				return true
			}
			text := ""
			if len(call.Args) > 0 {
				text, _ = firstText(call.Args[0])
			}
			if !strings.HasPrefix(text, "skip: ") {
				found = append(found, fmt.Sprintf("%s: skip without a reason that begins with %q", t.at(call),
					"skip: "))
			}
			return true
		})
	}
	return found
}

var disabledName = regexp.MustCompile(`^(_|x|X|disabled|Disabled|no|skip)_?(Test|Benchmark|Fuzz)[A-Z]`)

func disabledTests(t *tree) []string {
	var found []string
	for _, f := range t.sources {
		if !f.test {
			continue
		}
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && disabledName.MatchString(fn.Name.Name) {
				found = append(found, fmt.Sprintf("%s: %s looks like a disabled test", t.at(fn),
					fn.Name.Name))
			}
		}
		for _, c := range f.ast.Comments {
			if strings.Contains(c.Text(), "func Test") {
				found = append(found, fmt.Sprintf("%s: a test in a comment", t.at(c)))
			}
		}
	}
	return found
}

// sharedLimits: a test that limits a resource has a process of its own (labtest/apart). The testing package's
// log and the other tests would have the limit, too.
func sharedLimits(t *tree) []string {
	var found []string
	for _, f := range t.sources {
		if !f.test {
			continue
		}
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			var limits []ast.Node
			alone := false
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					switch typeText(call.Fun) {
					case "Process":
						alone = true
					case "Setrlimit":
						limits = append(limits, call)
					}
				}
				return true
			})
			for _, l := range limits {
				if !alone {
					found = append(found, fmt.Sprintf("%s: %s limits all tests, want apart.Process before it",
						t.at(l), fn.Name.Name))
				}
			}
		}
	}
	return found
}
