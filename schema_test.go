package chokepoint_test

import (
	"fmt"
	"go/ast"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// schema writes the JSON form of Go types as Markdown, from the types themselves, so that docs/reference
// cannot fall behind.
type schema struct {
	types map[string]*ast.TypeSpec // "record.Trial"
	docs  map[string]string
	file  map[string]string // that declares a type
	page  map[string]string // that describes a type
	todo  []string
	done  map[string]bool
}

// printed lists the packages whose types appear in JSON, with those below analysis.
var printed = []string{"analysis", "bundle", "catalogue", "check", "cipher", "cmd/chokepoint", "factor",
	"overhead", "record", "trial"}

func newSchema(t *testing.T) *schema {
	t.Helper()
	tr, err := wholeTree()
	if err != nil {
		t.Fatal(err)
	}

	s := &schema{
		types: map[string]*ast.TypeSpec{},
		docs:  map[string]string{},
		file:  map[string]string{},
		page:  map[string]string{},
		done:  map[string]bool{},
	}
	for _, f := range tr.production() {
		pkg := path.Base(f.pkg)
		if !slices.Contains(printed, f.pkg) && !strings.HasPrefix(f.pkg, "analysis/") {
			continue
		}

		for _, d := range f.ast.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}

			for _, spec := range g.Specs {
				if ts, ok := spec.(*ast.TypeSpec); ok {
					s.types[pkg+"."+ts.Name.Name] = ts
					s.docs[pkg+"."+ts.Name.Name] = strings.TrimSpace(g.Doc.Text())
					s.file[pkg+"."+ts.Name.Name] = f.path
				}
			}
		}
	}

	return s
}

// assign gives a page to a type and to every type it leads to that has none.
func (s *schema) assign(page, root string) {
	s.todo = append(s.todo, root)
	for len(s.todo) > 0 {
		name := s.todo[0]
		s.todo = s.todo[1:]
		ts := s.types[name]
		if ts != nil && s.page[name] == "" {
			s.page[name] = page
			if st, ok := ts.Type.(*ast.StructType); ok {
				s.writeStruct(&strings.Builder{}, page, name, st)
			}
		}
	}
}

// write describes a type and every type of the same page it leads to.
func (s *schema) write(page, root string) string {
	var b strings.Builder
	b.WriteString("\n")
	s.todo = append(s.todo, root)
	for len(s.todo) > 0 {
		name := s.todo[0]
		s.todo = s.todo[1:]
		if s.done[name] || s.page[name] != page {
			continue
		}

		s.done[name] = true
		if st, ok := s.types[name].Type.(*ast.StructType); ok {
			s.writeStruct(&b, page, name, st)
		}
	}

	return b.String()
}

func (s *schema) writeStruct(b *strings.Builder, page, name string, st *ast.StructType) {
	pkg, short, _ := strings.Cut(name, ".")
	fmt.Fprintf(b, "#### %s\n\n", short)
	if s.docs[name] != "" {
		b.WriteString(s.docs[name] + "\n\n")
	}

	fmt.Fprintf(b, "The type is declared in `%s`.\n\n", s.file[name])
	b.WriteString("| field | type | meaning |\n|---|---|---|\n")
	s.writeFields(b, page, pkg, st)
	b.WriteString("\n")
}

// typeName returns the package and the name of a type that a package's source names.
func typeName(pkg string, named ast.Expr) (from, name string) {
	switch x := named.(type) {
	case *ast.SelectorExpr:
		return x.X.(*ast.Ident).Name, x.Sel.Name
	case *ast.Ident:
		return pkg, x.Name
	}
	return pkg, ""
}

// writeFields writes the lines of a struct's fields; those of an embedded struct stand in its place.
func (s *schema) writeFields(b *strings.Builder, page, pkg string, st *ast.StructType) {
	for _, field := range st.Fields.List {
		if len(field.Names) == 0 && field.Tag == nil {
			from, name := typeName(pkg, field.Type)
			ts := s.types[from+"."+name]
			if ts != nil {
				s.writeFields(b, page, from, ts.Type.(*ast.StructType))
			}

			continue
		}

		tag := ""
		if field.Tag != nil {
			tag = reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("json")
		}

		key, options, _ := strings.Cut(tag, ",")
		if key == "" || key == "-" {
			continue
		}

		kind := s.kind(page, pkg, field.Type)
		if strings.Contains(options, "string") {
			kind = "text (a whole number)"
		}

		if strings.Contains(options, "omit") {
			kind += ", may be absent"
		}

		fmt.Fprintf(b, "| `%s` | %s | %s |\n", key, kind, strings.Join(strings.Fields(field.Comment.Text()+
			field.Doc.Text()), " "))
	}
}

// kind words a Go type as what it is in JSON.
func (s *schema) kind(page, pkg string, e ast.Expr) string {
	switch x := e.(type) {
	case *ast.StarExpr:
		if id, ok := x.X.(*ast.Ident); ok && id.Name == "float64" {
			return "number or null"
		}
		return s.kind(page, pkg, x.X)
	case *ast.ArrayType:
		if id, ok := x.Elt.(*ast.Ident); ok && id.Name == "byte" {
			return "base64"
		}
		return "list of " + s.kind(page, pkg, x.Elt)
	case *ast.MapType:
		return "map of " + s.kind(page, pkg, x.Value)
	case *ast.SelectorExpr:
		return s.named(page, x.X.(*ast.Ident).Name, x.Sel.Name)
	case *ast.Ident:
		switch x.Name {
		case "string":
			return "text"
		case "bool":
			return "true or false"
		case "int", "int64", "uint64", "uint32", "float64":
			return "number"
		}
		return s.named(page, pkg, x.Name)
	}
	return "?"
}

func (s *schema) named(page, pkg, name string) string {
	switch pkg + "." + name {
	case "time.Time":
		return "time (RFC 3339)"
	case "time.Duration":
		return "number (ns)"
	case "json.RawMessage":
		return "any"
	case "record.Table":
		return "[table](store.md#tables), base64"
	}

	ts := s.types[pkg+"."+name]
	if ts == nil {
		return "?"
	}

	if _, ok := ts.Type.(*ast.StructType); !ok {
		return s.kind(page, pkg, ts.Type)
	}

	s.todo = append(s.todo, pkg+"."+name)
	other := s.page[pkg+"."+name]
	if other == page {
		other = ""
	}

	return fmt.Sprintf("[%s](%s#%s)", name, other, strings.ToLower(name))
}
