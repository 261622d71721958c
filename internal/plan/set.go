package plan

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	yaml "go.yaml.in/yaml/v4"
)

// applySets writes each "path=value" into the tree before the plan is read. Values from the command line are
// thus checked like values of the file. applySets records the written nodes for messages.
func (r *reader) applySets(root *yaml.Node, sets []string) {
	if root.Kind != yaml.MappingNode {
		return // the reader will note the error
	}

	for _, set := range sets {
		r.note(r.applySet(root, set))
	}
}

func (r *reader) applySet(root *yaml.Node, set string) error {
	path, value, ok := strings.Cut(set, "=")
	origin := "--set " + path
	if !ok || path == "" {
		return &Error{
			File:     "--set " + set,
			Text:     "there is no path=value",
			HintText: "write, for example, --set method.duration=5s",
		}
	}

	if err := checkBytes(origin, []byte(set)); err != nil {
		return &Error{File: origin, Text: err.(*Error).Text}
	}

	return r.set(root, path, value, origin)
}

func (r *reader) set(n *yaml.Node, path, value, origin string) error {
	rest := path
	inLevels := false
	done := ""
	for depth := 0; ; depth++ {
		key, tail, more := strings.Cut(rest, ".")
		free := isFree(done)
		if n.Kind == yaml.MappingNode && free {
			// Names of factors and conditions may contain dots.
			key = rest
			tail = ""
			more = false
			i := strings.LastIndexByte(rest, '.')
			if i > 0 && factor.WholeForm().MatchString(rest[i+1:]) {
				v := valueOf(n, rest[:i])
				if v != nil && v.Kind == yaml.SequenceNode {
					key = rest[:i]
					tail = rest[i+1:]
					more = true
				}
			}
		}

		if key == "" {
			return &Error{File: origin, Text: "the path has an empty part"}
		}

		inLevels = inLevels || key == "matrix" || key == "include" || key == "exclude"
		child, err := r.child(n, key, origin, done)
		if err != nil {
			return err
		}

		if !more {
			with := levelNode(value, inLevels && n.Kind == yaml.MappingNode && free)
			if key == "require" && done == "" {
				with = thresholdsNode(value)
			}

			r.replace(child, with, origin)
			return nil
		}

		if isNull(child) { // child is new, or empty in the file
			r.replace(child, &yaml.Node{Kind: containerKind(key, tail), Tag: "!!map"}, origin)
		}

		n, rest, done = child, tail, strings.TrimPrefix(done+"."+key, ".")
	}
}

// valueOf returns the value of a key in a map, or nil.
func valueOf(n *yaml.Node, key string) *yaml.Node {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// isFree reports whether the map at a path has arbitrary keys, such as names, instead of fixed ones.
func isFree(path string) bool {
	list, index, nested := strings.Cut(path, ".")
	if nested {
		return (list == "include" || list == "exclude") && index != ""
	}
	return path == "matrix" || path == "conditions" || path == "baseline"
}

// containerKind returns the YAML kind of a new value of key that will contain the path tail.
func containerKind(key, tail string) yaml.Kind {
	if key == "require" && tail == record.Validity {
		return yaml.MappingNode
	}

	switch key {
	case "include", "exclude", "require", "steps", "notes":
		return yaml.SequenceNode
	}
	return yaml.MappingNode
}

// child returns the value of key in n, adding it if it is missing.
func (r *reader) child(n *yaml.Node, key, origin, done string) (*yaml.Node, error) {
	switch n.Kind {
	case yaml.MappingNode:
		if v := valueOf(n, key); v != nil {
			return v, nil
		}

		k, v := scalarNode(key), scalarNode("")
		r.origin[k], r.origin[v] = origin, origin
		n.Content = append(n.Content, k, v)
		return v, nil
	case yaml.SequenceNode:
		i, err := factor.ParseWhole(key, 0, int64(len(n.Content)))
		if err != nil {
			return nil, &Error{
				File: origin,
				Text: fmt.Sprintf("%s is a list of %d: %q is no place in it",
					done, len(n.Content), key),
				HintText: "places count from 0; " + strconv.Itoa(len(n.Content)) + " appends",
			}
		}

		if int(i) == len(n.Content) {
			v := scalarNode("")
			r.origin[v] = origin
			n.Content = append(n.Content, v)
		}

		return n.Content[i], nil
	}
	return nil, &Error{File: origin, Text: fmt.Sprintf("%s is a single value and has no part %q", done, key)}
}

func (r *reader) replace(n, with *yaml.Node, origin string) {
	*n = *with
	r.origin[n] = origin
	for _, c := range n.Content {
		r.origin[c] = origin
	}
}

// thresholdsNode returns a list of thresholds from a YAML list in brackets or from a single threshold.
func thresholdsNode(value string) *yaml.Node {
	inner, open := strings.CutPrefix(strings.TrimSpace(value), "[")
	inner, closed := strings.CutSuffix(inner, "]")
	node := levelNode(value, false)
	if open && closed {
		node = levelNode(inner, true)
	}

	if node.Kind == yaml.SequenceNode || isNull(node) {
		return node
	}

	return &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Content: []*yaml.Node{node}}
}

// scalarNode returns a text, or a missing value if the text is empty.
func scalarNode(text string) *yaml.Node {
	if text == "" {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"}
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
}

// levelNode returns a scalar, or a list if there are several levels separated by commas. A level that
// contains a comma must be in double quotes.
func levelNode(value string, levels bool) *yaml.Node {
	scalar := func(text string) *yaml.Node {
		v := strings.TrimSpace(text)
		if levels && len(v) > 1 && v[0] == '"' && v[len(v)-1] == '"' {
			v = v[1 : len(v)-1]
		}
		return scalarNode(v)
	}
	if !levels {
		return scalar(value)
	}

	list := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
	from, quoted := 0, false
	for i, c := range value + "," {
		switch {
		case c == '"':
			quoted = !quoted
		case i == len(value) || c == ',' && !quoted:
			list.Content = append(list.Content, scalar(value[from:i]))
			from = i + 1
		}
	}

	if len(list.Content) == 1 {
		return list.Content[0]
	}

	return list
}
