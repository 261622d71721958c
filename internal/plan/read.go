package plan

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v4"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Read reads a plan and expands it into cells. Each text in sets has the form "path=value" and replaces a
// value of the file. The argument file is the name shown in messages. The error is an *Error, or several of
// them joined if there are several mistakes.
func Read(file string, data []byte, v Vocabulary, sets []string) (*Plan, error) {
	r := newReader(file, "the plan is empty", "chokepoint plan list names the built-in plans")
	r.v = v
	root, err := r.tree(data)
	if err != nil {
		return nil, err
	}

	r.applySets(root, sets)
	hidden := len(r.errs)
	p := &Plan{Design: record.Design{
		Procedure: record.Procedure{
			Set:     append([]string(nil), sets...),
			Method:  defaultMethod(),
			Measure: defaultMeasure(),
		},
		Name:   baseName(file),
		Source: file,
		Text:   string(data),
	}}
	var m matrix
	r.note(r.plan(root, p, &m))
	switch {
	case r.expandable(&m):
		if r.note(r.expand(p, &m, root)) == nil {
			r.checkWhere(p)
			r.checkSteps(p, root)
		}
	case hidden == 0:
		r.checkLevels(&m)
	}

	if !r.broken["method"] && !r.broken["measure"] {
		r.note(r.checkSearch(p, root))
	}

	if len(r.errs) > 0 {
		return nil, together(r.errs)
	}

	return p, nil
}

func baseName(file string) string {
	name := file[strings.LastIndexByte(file, '/')+1:]
	name = strings.TrimSuffix(strings.TrimSuffix(name, ".yaml"), ".yml")
	if !nameForm().MatchString(name) {
		return "plan"
	}

	return name
}

var nameForm = check.Pattern(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// reader reads the tree of a plan. After an error, it adds the error to errs and continues.
type reader struct {
	file     string
	empty    error // error for a file without content
	v        Vocabulary
	root     *yaml.Node
	wrong    map[*yaml.Node]bool   // nodes with YAML that is not allowed in a plan
	origin   map[*yaml.Node]string // node written by a --set → that --set
	where    []placedRequirement
	baseline *yaml.Node
	labels   map[string]map[string]string // factor → level → label
	places   map[string]*yaml.Node        // full key in a lab or bed file, such as alarm.webhook → node

	errs   []error
	broken map[string]bool // keys of the plan that contain errors or are misspelled
	below  int             // number of errors that belong to a key of the plan
}

func newReader(file, empty, emptyHint string) *reader {
	return &reader{
		file:   file,
		empty:  &Error{file, 1, 1, empty, emptyHint},
		wrong:  map[*yaml.Node]bool{},
		origin: map[*yaml.Node]string{},
		broken: map[string]bool{},
		labels: map[string]map[string]string{},
		places: map[string]*yaml.Node{},
	}
}

// errNoted stands for an error that has been noted. It tells the caller that there is no value to use.
var errNoted = errors.New("failed")

// note adds err to errs, unless err has been noted before, and returns errNoted. It returns nil if err is
// nil.
func (r *reader) note(err error) error {
	if err == nil {
		return nil
	}

	if !errors.Is(err, errNoted) {
		r.errs = append(r.errs, err)
	}
	return errNoted
}

// expandable reports whether the cells can be determined despite errors.
func (r *reader) expandable(m *matrix) bool {
	switch {
	case len(r.errs) == 0:
		return true
	case len(r.errs) > r.below || m.full.at == nil && len(m.include) == 0:
		return false
	}
	return !slices.ContainsFunc([]string{"method", "matrix", "include", "exclude", "baseline"},
		func(key string) bool { return r.broken[key] })
}

// field is an allowed key of a map.
type field struct {
	name string
	read func(*yaml.Node) error
}

func (r *reader) plan(root *yaml.Node, p *Plan, m *matrix) error {
	d := &p.Design
	fields := []field{
		r.name(&d.Name),
		r.text("description", 4000, &d.Description),
		r.line("device", record.MaxDevice, &d.Device),
		r.notes(&d.Notes),
		{"method", func(n *yaml.Node) error { return r.method(n, p) }},
		r.combination("matrix", &m.full),
		{"include", func(n *yaml.Node) error { return r.combinations(n, "include", &m.include) }},
		{"exclude", func(n *yaml.Node) error { return r.combinations(n, "exclude", &m.exclude) }},
		{"baseline", func(n *yaml.Node) error { return r.namedBaseline(n, d) }},
		{"measure", func(n *yaml.Node) error { return r.object(n, "measure", r.measureFields(&d.Measure)) }},
		{"require", func(n *yaml.Node) error { return r.require(n, d) }},
		{"conditions", func(n *yaml.Node) error { return r.conditions(n, d) }},
		{"steps", func(n *yaml.Node) error { return r.steps(n, d) }},
		{"experiment", func(n *yaml.Node) error { return r.experiment(n, d) }},
	}
	for i, f := range fields {
		fields[i].read = func(n *yaml.Node) error {
			before := len(r.errs)
			err := r.note(f.read(n))
			r.broken[f.name] = err != nil
			r.below += len(r.errs) - before
			return err
		}
	}

	return r.object(root, wholePlan, fields)
}

// notes reads the notes of a run. Each note is a single line.
func (r *reader) notes(into *[]string) field {
	of := r.words("notes", record.MaxNote, record.MaxNotes, "write fewer", into)
	return field{of.name, func(n *yaml.Node) error {
		err := of.read(n)
		for i, text := range *into {
			(*into)[i] = oneLine(text)
		}
		return err
	}}
}

func oneLine(text string) string { return check.Plain(strings.Join(strings.Fields(text), " ")) }

// line reads a single-line text.
func (r *reader) line(what string, limit int, into *string) field {
	of := r.text(what, limit, into)
	return field{what, func(n *yaml.Node) error {
		err := of.read(n)
		*into = oneLine(*into)
		return err
	}}
}

func (r *reader) fail(n *yaml.Node, hint, format string, args ...any) error {
	e := &Error{
		File:     r.file,
		Line:     n.Line,
		Column:   n.Column,
		Text:     fmt.Sprintf(format, args...),
		HintText: hint,
	}
	if origin, ok := r.origin[n]; ok {
		e.File = origin
		e.Line = 0
		e.Column = 0
	}
	return e
}

// object reads a map with known keys. If several entries of fields have the same name, each of them reads the
// key's value.
func (r *reader) object(n *yaml.Node, what string, fields []field) error {
	names := namesOf(fields)
	return r.pairs(n, what, func(key, value *yaml.Node) error {
		if !slices.Contains(names, key.Value) {
			if what == wholePlan {
				r.broken[r.meant(key.Value, names)] = true
				r.below++
			}
			return r.fail(key, r.keyHint(key.Value, what, names), "%s has no key %q", what, key.Value)
		}

		for _, f := range fields {
			if f.name == key.Value {
				if err := f.read(value); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// namesOf returns the names of fields without duplicates.
func namesOf(fields []field) (names []string) {
	for _, f := range fields {
		if !slices.Contains(names, f.name) {
			names = append(names, f.name)
		}
	}
	return names
}

const wholePlan = "the plan"

// meant returns the known key that an unknown key resembles. If there is none, it returns the key of the map
// in which the unknown key is allowed, or "".
func (r *reader) meant(key string, names []string) string {
	near := check.Nearest(key, names)
	if near != "" {
		return near
	}

	if _, ok := r.v.Lookup(key); ok {
		return "matrix"
	}
	return r.homes()[key]
}

// keyHint suggests a correction for an unknown key. Such a key is often one level too high.
func (r *reader) keyHint(key, what string, names []string) string {
	if what == wholePlan && check.Nearest(key, names) == "" {
		home := r.meant(key, names)
		if home != "" {
			return key + " belongs under " + home
		}
	}
	return choiceHint(key, "keys", names)
}

// homes maps each key below method and measure to the map that it belongs to.
func (r *reader) homes() map[string]string {
	homes := map[string]string{}
	for _, f := range r.methodFields(&record.Method{}) {
		homes[f.name] = "method"
	}

	for _, f := range r.measureFields(&record.Measure{}) {
		homes[f.name] = "measure"
	}

	return homes
}

// factorHint suggests a correction for an unknown factor: another factor, or a key that belongs elsewhere.
func (r *reader) factorHint(name string) string {
	names := r.v.Names()
	switch near := check.Nearest(name, names); {
	case strings.HasSuffix(near, ":"): // near is the prefix of a family of factors
		return fmt.Sprintf("write %sNAME, such as %snet.core.rmem_max", near, near)
	case near != "":
		return choiceHint(name, "factors", names)
	}

	key := name
	homes := r.homes()
	if homes[key] == "" {
		key = check.Nearest(name, slices.Sorted(maps.Keys(homes)))
	}

	switch home := homes[key]; {
	case home == "":
		return choiceHint(name, "factors", names)
	case key == name:
		return fmt.Sprintf("%s belongs under %s: %s.%s", key, home, home, key)
	default:
		return fmt.Sprintf("did you mean %s.%s?", home, key)
	}
}

// pairs reads a map. It notes duplicate keys and missing values.
func (r *reader) pairs(n *yaml.Node, what string, read func(key, value *yaml.Node) error) error {
	if n.Kind != yaml.MappingNode {
		return r.fail(n, "write \"key: value\" lines", "%s must be a map of keys, not %s", what, kind(n))
	}

	seen := make(map[string]bool, len(n.Content)/2)
	pair := func(key, value *yaml.Node) error {
		if seen[key.Value] {
			return r.fail(key, "keep one of them", "%s has the key %q twice", what, key.Value)
		}

		seen[key.Value] = true
		if isNull(value) {
			at := value
			_, set := r.origin[value]
			if !set {
				at = key
			}

			return r.fail(at, "give it a value or remove the key", "%s has no value", key.Value)
		}

		return read(key, value)
	}
	var failed error
	for i := 0; i+1 < len(n.Content); i += 2 {
		if r.wrong[n.Content[i]] || r.wrong[n.Content[i+1]] {
			failed = errNoted
		} else if err := pair(n.Content[i], n.Content[i+1]); err != nil {
			failed = r.note(err)
		}
	}

	return failed
}

func (r *reader) list(n *yaml.Node, what string, read func(i int, item *yaml.Node) error) error {
	if n.Kind != yaml.SequenceNode {
		return r.fail(n, "start each entry with \"- \"", "%s must be a list, not %s", what, kind(n))
	}

	var failed error
	for i, item := range n.Content {
		if r.wrong[item] {
			failed = errNoted
		} else if isNull(item) {
			failed = r.note(r.fail(item, "give it a value or remove it", "entry %d of %s is empty", i+1,
				what))
		} else if err := read(i, item); err != nil {
			failed = r.note(err)
		}
	}

	return failed
}

// scalar returns the text of a scalar.
func (r *reader) scalar(n *yaml.Node, what string) (string, error) {
	if n.Kind != yaml.ScalarNode {
		return "", r.fail(n, "", "%s must be a single value, not %s", what, kind(n))
	}
	return n.Value, nil
}

// scalarOf reads a scalar and passes it to store, which returns an error if the scalar is not valid.
func (r *reader) scalarOf(what string, store func(n *yaml.Node, text string) error) field {
	return field{what, func(n *yaml.Node) error {
		text, err := r.scalar(n, what)
		if err != nil {
			return err
		}
		return store(n, text)
	}}
}

func (r *reader) text(what string, limit int, into *string) field {
	return r.scalarOf(what, func(n *yaml.Node, text string) error {
		text = strings.TrimSpace(text)
		switch {
		case text == "":
			return r.fail(n, "give it a value or remove the key", "%s is empty", what)
		case len(text) > limit:
			return r.fail(n, "", "%s has %d bytes, at most %d are allowed", what, len(text), limit)
		// a quoted scalar can contain control characters as escapes
		case strings.ContainsFunc(text, isControl):
			return r.fail(n, "", "%s contains a control character", what)
		}

		*into = text
		return nil
	})
}

func (r *reader) name(into *string) field {
	return r.scalarOf("name", func(n *yaml.Node, text string) error {
		if !nameForm().MatchString(text) {
			return r.fail(n, "use letters, digits, dots, dashes and underscores, at most 64",
				"%q is not a name for a plan", text)
		}

		*into = text
		return nil
	})
}

func kind(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a map"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "nothing"
	}
	return "a single value"
}
