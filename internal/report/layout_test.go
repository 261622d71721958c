package report

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"testing"
)

// TestSectionsHoldNoMarkup: sections build blocks, renderers draw them.
func TestSectionsHoldNoMarkup(t *testing.T) {
	files, err := filepath.Glob("section_*.go")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d sections, %v", len(files), err)
	}

	for _, f := range append(files, "view.go", "factors.go") {
		for _, found := range markupImports(t, f, nil) {
			t.Errorf("%s imports %s", f, found)
		}
	}

	planted := "package report\nimport (\n\"html/template\"\n\"strings\"\n)"
	got := markupImports(t, "planted.go", planted)
	if len(got) != 1 {
		t.Errorf("the planted import was not found: %v", got)
	}
}

func markupImports(t *testing.T, name string, source any) (found []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}

	for _, i := range f.Imports {
		path, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			t.Fatal(err)
		}

		if path == "html" || path == "html/template" || path == "text/template" || path == "embed" {
			found = append(found, path)
		}
	}

	return found
}
