package chokepoint_test

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/history"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// jsonSchema is a schema of draft 2020-12, with the keys in the order in which people read them.
type jsonSchema struct {
	Schema      string         `json:"$schema"`
	ID          string         `json:"$id"`
	Title       string         `json:"title"`
	Description string         `json:"description"`
	Ref         string         `json:"$ref"`
	Defs        map[string]any `json:"$defs"`
}

// schemaHome is where the schemas of the newest version are found.
const schemaHome = "https://raw.githubusercontent.com/chokepoint-lab/chokepoint/main/"

// typeForms writes the JSON form of Go types as a schema.
type typeForms struct {
	*schema
	t      *testing.T
	custom map[string]bool // types that encode themselves
	names  map[string]int  // short name → types that have it
	forms  map[string]any  // type → its form
}

func newTypeForms(t *testing.T) *typeForms {
	t.Helper()
	tr, err := wholeTree()
	if err != nil {
		t.Fatal(err)
	}

	f := &typeForms{
		schema: newSchema(t),
		t:      t,
		custom: map[string]bool{},
		names:  map[string]int{},
		forms:  map[string]any{},
	}
	for _, file := range tr.production() {
		for _, d := range file.ast.Decls {
			m, ok := d.(*ast.FuncDecl)
			if ok && m.Recv != nil && (m.Name.Name == "MarshalJSON" || m.Name.Name == "MarshalText") {
				receiver := m.Recv.List[0].Type
				if star, ok := receiver.(*ast.StarExpr); ok {
					receiver = star.X
				}

				f.custom[path.Base(file.pkg)+"."+receiver.(*ast.Ident).Name] = true
			}
		}
	}

	return f
}

// write returns the schema of a type, which must be a struct, and of all that it leads to. A reader ignores
// what it does not know, so that no object refuses further fields.
func (f *typeForms) write(file, title, root string, also func(forms map[string]any)) string {
	f.define(root)
	also(f.forms)
	short := func(name string) string {
		_, s, _ := strings.Cut(name, ".")
		if f.names[s] > 1 {
			return name
		}
		return s
	}
	defs := map[string]any{}
	for name, form := range f.forms {
		defs[short(name)] = form
	}

	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	err := e.Encode(jsonSchema{
		Schema:      "https://json-schema.org/draft/2020-12/schema",
		ID:          schemaHome + file,
		Title:       title,
		Description: "Written by go generate. " + sentence(f.docs[root]),
		Ref:         "#/$defs/" + short(root),
		Defs:        defs,
	})
	if err != nil {
		f.t.Fatal(err)
	}

	text := b.String()
	for name := range f.forms {
		text = strings.ReplaceAll(text, `"#/$defs/`+name+`"`, `"#/$defs/`+short(name)+`"`)
	}

	return text
}

func sentence(text string) string { return strings.Join(strings.Fields(text), " ") }

// define adds the form of a struct, unless it is there.
func (f *typeForms) define(name string) {
	if f.forms[name] != nil {
		return
	}

	pkg, short, _ := strings.Cut(name, ".")
	f.names[short]++
	properties := map[string]any{}
	form := map[string]any{"type": "object", "properties": properties}
	f.forms[name] = form // before its fields: they may lead back
	var required []string
	f.fields(pkg, f.types[name].Type.(*ast.StructType), properties, &required)
	if len(required) > 0 {
		slices.Sort(required)
		form["required"] = slices.Compact(required)
	}

	if doc := sentence(f.docs[name]); doc != "" {
		form["description"] = doc
	}
}

// fields adds the fields of a struct; those of an embedded struct stand in its place.
func (f *typeForms) fields(pkg string, st *ast.StructType, properties map[string]any, required *[]string) {
	for _, field := range st.Fields.List {
		if len(field.Names) > 0 || field.Tag != nil {
			continue
		}

		from, name := typeName(pkg, field.Type)
		ts := f.types[from+"."+name]
		if ts == nil {
			f.t.Errorf("schema: %s.%s, which is embedded, is unknown", from, name)
			continue
		}

		f.fields(from, ts.Type.(*ast.StructType), properties, required)
	}

	for _, field := range st.Fields.List {
		if field.Tag == nil {
			continue
		}

		tag := reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("json")
		key, options, _ := strings.Cut(tag, ",")
		if key == "" || key == "-" {
			continue
		}

		form := f.form(pkg, field.Type)
		if strings.Contains(options, "string") {
			form = map[string]any{"type": "string", "pattern": "^-?[0-9]+$"}
		}

		if !strings.Contains(options, "omit") {
			*required = append(*required, key)
			orNull(form)
		} else if star, ok := field.Type.(*ast.StarExpr); ok { // absent instead of null
			form = f.form(pkg, star.X)
		}

		doc := sentence(field.Doc.Text() + field.Comment.Text())
		if doc != "" {
			form["description"] = doc
		}

		properties[key] = form
	}
}

// orNull adds what an empty list or map may be where it is not left out. An array of fixed length is never
// empty.
func orNull(form map[string]any) {
	kind := form["type"]
	if (kind == "array" || kind == "object") && form["minItems"] == nil {
		form["type"] = []any{kind, "null"}
	}
}

// form returns what a Go type is in JSON.
func (f *typeForms) form(pkg string, e ast.Expr) map[string]any {
	switch x := e.(type) {
	case *ast.StarExpr:
		return map[string]any{"anyOf": []any{f.form(pkg, x.X), map[string]any{"type": "null"}}}
	case *ast.ArrayType:
		if id, ok := x.Elt.(*ast.Ident); ok && id.Name == "byte" {
			return map[string]any{"type": "string", "contentEncoding": "base64"}
		}

		form := map[string]any{"type": "array", "items": f.form(pkg, x.Elt)}
		if length, ok := x.Len.(*ast.BasicLit); ok {
			n, err := strconv.Atoi(length.Value)
			if err != nil {
				f.t.Fatal(err)
			}

			form["minItems"] = n
			form["maxItems"] = n
		}
		return form
	case *ast.MapType:
		return map[string]any{"type": "object", "additionalProperties": f.form(pkg, x.Value)}
	case *ast.SelectorExpr:
		return f.named(x.X.(*ast.Ident).Name, x.Sel.Name)
	case *ast.Ident:
		switch x.Name {
		case "string":
			return map[string]any{"type": "string"}
		case "bool":
			return map[string]any{"type": "boolean"}
		case "float64":
			return map[string]any{"type": "number"}
		case "int", "int64":
			return map[string]any{"type": "integer"}
		case "uint64", "uint32":
			return map[string]any{"type": "integer", "minimum": 0}
		}
		return f.named(pkg, x.Name)
	}

	f.t.Errorf("schema: a type of package %s has no form in JSON: %T", pkg, e)
	return map[string]any{}
}

func (f *typeForms) named(pkg, short string) map[string]any {
	name := pkg + "." + short
	switch name {
	case "time.Time":
		return map[string]any{"type": "string", "format": "date-time"}
	case "time.Duration":
		return map[string]any{"type": "integer"}
	case "json.RawMessage":
		return map[string]any{}
	case "record.Table":
		return map[string]any{"type": "string", "contentEncoding": "base64"}
	case "check.State":
		return map[string]any{"enum": []any{check.Yes, check.No, check.Unknown}}
	}

	ts := f.types[name]
	if ts == nil || f.custom[name] {
		f.t.Errorf("schema: the form of %s in JSON is unknown", name)
		return map[string]any{}
	}

	if _, ok := ts.Type.(*ast.StructType); !ok {
		return f.form(pkg, ts.Type)
	}

	f.define(name)
	return map[string]any{"$ref": "#/$defs/" + name}
}

// propertyOf returns the schema of a field of a type.
func propertyOf(forms map[string]any, name, key string) map[string]any {
	return forms[name].(map[string]any)["properties"].(map[string]any)[key].(map[string]any)
}

// TestReferenceHasSchemas: the schemas of what commands print as JSON, from the types. Tests of
// cmd/chokepoint hold real documents and events to them.
func TestReferenceHasSchemas(t *testing.T) {
	for _, d := range []struct{ file, title, root, format string }{
		{"show", "show --json", "analysis.Document", record.Format},
		{"history", "history --format json", "history.History", "chokepoint-history/1"},
		{"comparison", "compare --json and upgrade --json", "analysis.RunComparison",
			"chokepoint-comparison/1"},
		{"bisection", "the result of bisect --json", "analysis.Bisection", "chokepoint-bisection/1"},
		{"plan", "plan check --json and run --dry-run --json", "chokepoint.expanded", "chokepoint-plan/1"},
		{"tuning", "the result of tune --json", "tuning.Result", "chokepoint-tuning/1"},
		{"conformance", "the file of lab conform --output", "trial.Conformance", "chokepoint-conformance/1"},
		{"advice", "advise --json", "chokepoint.adviceDocument", "chokepoint-advice/1"},
		{"limits", "limits --json", "chokepoint.limits", "chokepoint-limits/1"},
	} {
		file := "docs/reference/" + d.file + ".schema.json"
		also := func(forms map[string]any) {
			propertyOf(forms, d.root, "format")["const"] = d.format
			for _, graded := range []string{"analysis.Cell", "analysis.TrialView"} {
				if forms[graded] != nil {
					propertyOf(forms, graded, "grade")["enum"] = constants(t, "analysis/evidence", "Grade")
				}
			}

			if forms["history.Change"] != nil {
				statuses := []string{history.Proposed, history.Confirmed, history.NotRepeated}
				propertyOf(forms, "history.Change", "status")["enum"] = statuses
			}
		}
		holdPage(t, file, newTypeForms(t).write(file, "chokepoint: "+d.title, d.root, also))
	}

	kinds := eventKinds(t)
	if len(kinds) < 8 {
		t.Errorf("got the kinds of events %q", kinds)
	}

	const events = "docs/reference/events.schema.json"
	holdPage(t, events, newTypeForms(t).write(events, "chokepoint: an event of run --json", "record.Event",
		func(forms map[string]any) { propertyOf(forms, "record.Event", "event")["enum"] = kinds }))
}

// eventKinds returns the constants of package progress below the words "Event kinds".
func eventKinds(t *testing.T) (kinds []string) {
	t.Helper()
	tr, err := wholeTree()
	if err != nil {
		t.Fatal(err)
	}

	for _, f := range tr.production() {
		if f.pkg != "progress" {
			continue
		}

		for _, d := range f.ast.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || strings.TrimSpace(g.Doc.Text()) != "Event kinds." {
				continue
			}

			for _, spec := range g.Specs {
				kind, ok := firstText(spec.(*ast.ValueSpec).Values[0])
				if !ok {
					t.Errorf("%s: no kind of event", tr.at(spec))
				}

				kinds = append(kinds, kind)
			}
		}
	}

	return kinds
}
