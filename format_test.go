package chokepoint_test

import (
	"fmt"
	"go/ast"
	"os"
	"path"
	"reflect"
	"strings"
	"testing"
)

// schema writes the JSON form of Go types as Markdown, from the types themselves, so that docs/format.md
// cannot fall behind.
type schema struct {
	types map[string]*ast.TypeSpec // "record.Trial"
	docs  map[string]string
	todo  []string
	done  map[string]bool
}

func newSchema(t *testing.T) *schema {
	t.Helper()
	tr, err := readTree(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	s := &schema{types: map[string]*ast.TypeSpec{}, docs: map[string]string{}, done: map[string]bool{}}
	for _, f := range tr.production() {
		pkg := path.Base(f.pkg)
		if f.pkg != "record" && pkg != "analysis" && !strings.HasPrefix(f.pkg, "analysis/") {
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
				}
			}
		}
	}
	return s
}

// write describes a type and every type it leads to that no earlier call has described.
func (s *schema) write(root string) string {
	var b strings.Builder
	b.WriteString("\n")
	s.todo = append(s.todo, root)
	for len(s.todo) > 0 {
		name := s.todo[0]
		s.todo = s.todo[1:]
		ts := s.types[name]
		if s.done[name] || ts == nil {
			continue
		}
		s.done[name] = true
		if st, ok := ts.Type.(*ast.StructType); ok {
			s.writeStruct(&b, name, st)
		}
	}
	return b.String()
}

func (s *schema) writeStruct(b *strings.Builder, name string, st *ast.StructType) {
	pkg, short, _ := strings.Cut(name, ".")
	fmt.Fprintf(b, "#### %s\n\n%s\n\n| field | type | meaning |\n|---|---|---|\n", short, s.docs[name])
	for _, field := range st.Fields.List {
		tag := ""
		if field.Tag != nil {
			tag = reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("json")
		}
		key, options, _ := strings.Cut(tag, ",")
		if key == "" || key == "-" {
			continue
		}
		kind := s.kind(pkg, field.Type)
		if strings.Contains(options, "string") {
			kind = "text (a whole number)"
		}
		if strings.Contains(options, "omit") {
			kind += ", may be absent"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", key, kind, strings.Join(strings.Fields(field.Comment.Text()+
			field.Doc.Text()), " "))
	}
	b.WriteString("\n")
}

// kind words a Go type as what it is in JSON.
func (s *schema) kind(pkg string, e ast.Expr) string {
	switch x := e.(type) {
	case *ast.StarExpr:
		if id, ok := x.X.(*ast.Ident); ok && id.Name == "float64" {
			return "number or null"
		}
		return s.kind(pkg, x.X)
	case *ast.ArrayType:
		if id, ok := x.Elt.(*ast.Ident); ok && id.Name == "byte" {
			return "base64"
		}
		return "list of " + s.kind(pkg, x.Elt)
	case *ast.MapType:
		return "map of " + s.kind(pkg, x.Value)
	case *ast.SelectorExpr:
		return s.named(x.X.(*ast.Ident).Name, x.Sel.Name)
	case *ast.Ident:
		switch x.Name {
		case "string":
			return "text"
		case "bool":
			return "true or false"
		case "int", "int64", "uint64", "uint32", "float64":
			return "number"
		}
		return s.named(pkg, x.Name)
	}
	return "?"
}

func (s *schema) named(pkg, name string) string {
	switch pkg + "." + name {
	case "time.Time":
		return "time (RFC 3339)"
	case "time.Duration":
		return "number (ns)"
	case "json.RawMessage":
		return "any"
	case "record.Table":
		return "[table](#tables), base64"
	}
	ts := s.types[pkg+"."+name]
	if ts == nil {
		return "?"
	}
	if _, ok := ts.Type.(*ast.StructType); !ok {
		return s.kind(pkg, ts.Type)
	}
	s.todo = append(s.todo, pkg+"."+name)
	return fmt.Sprintf("[%s](#%s)", name, strings.ToLower(name))
}

func TestFormatDescribesEveryField(t *testing.T) {
	s := newSchema(t)
	for _, part := range []struct{ block, root string }{
		{"document", "analysis.Document"}, {"event", "record.Event"}, {"run", "record.Run"},
		{"trial", "record.Trial"},
	} {
		text := s.write(part.root)
		if strings.Contains(text, "| ?") || strings.Contains(text, "of ?") {
			t.Errorf("block %s: got a field of unknown type in\n%s", part.block, text)
		}
		holdBlock(t, "docs/format.md", part.block, text)
	}
}

// TestFormatShowsTheSchema: the SQL of the newest version, as it is executed.
func TestFormatShowsTheSchema(t *testing.T) {
	var sql strings.Builder
	for _, text := range constants(t, "record/store", "schema") {
		sql.WriteString(text)
	}
	holdBlock(t, "docs/format.md", "schema", "\n```sql\n"+strings.TrimSpace(sql.String())+"\n```\n\n")
}
