package plan

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	yaml "go.yaml.in/yaml/v4"
)

const (
	maxFile  = 1 << 20
	maxDepth = 10 // plans need five
)

// tree parses YAML into maps, lists and texts. It notes other features of YAML as errors, because they can
// hide what a plan means.
func (r *reader) tree(data []byte) (*yaml.Node, error) {
	file := r.file
	if err := checkBytes(file, data); err != nil {
		return nil, err
	}

	if len(bytes.TrimSpace(data)) == 0 {
		return nil, r.empty
	}

	loader, err := yaml.NewLoader(bytes.NewReader(data))
	if err != nil {
		return nil, &Error{File: file, Text: err.Error()}
	}

	var doc, second yaml.Node
	switch err := loader.Load(&doc); {
	case errors.Is(err, io.EOF), err == nil && (len(doc.Content) != 1 || isNull(doc.Content[0])):
		return nil, r.empty
	case err != nil:
		return nil, yamlError(file, data, err)
	}

	root := doc.Content[0]
	switch err := loader.Load(&second); {
	case err == nil:
		return nil, &Error{file, second.Line, second.Column, "a second document starts here",
			"a file holds one plan; remove the line --- or split the file"}
	case !errors.Is(err, io.EOF):
		return nil, yamlError(file, data, err)
	}

	r.root = root
	r.inspect(root, 1)
	if r.wrong[root] {
		return nil, together(r.errs)
	}

	return root, nil
}

// checkBytes returns an error for binary data, before it reaches the parser.
func checkBytes(file string, data []byte) error {
	if len(data) > maxFile {
		return &Error{file, 1, 1, fmt.Sprintf("the file has %d bytes, a plan has at most %d", len(data),
			maxFile), ""}
	}

	line, column := 1, 1
	for i := 0; i < len(data); {
		c, size := utf8.DecodeRune(data[i:])
		switch {
		case c == utf8.RuneError && size == 1:
			return &Error{file, line, column, fmt.Sprintf("byte 0x%02x is not UTF-8", data[i]),
				"save the file as UTF-8"}
		case isControl(c):
			return &Error{file, line, column, fmt.Sprintf("control character U+%04X", c),
				"save the file as plain text in UTF-8"}
		}

		if column++; c == '\n' {
			line++
			column = 1
		}

		i += size
	}

	return nil
}

// isControl reports whether c is a character that YAML 1.2 does not allow unescaped.
func isControl(c rune) bool {
	switch c {
	case '\t', '\n', '\r', 0x85:
		return false
	case 0xFFFE, 0xFFFF:
		return true
	}
	return c < 0x20 || c >= 0x7f && c < 0xa0
}

func yamlError(file string, data []byte, err error) error {
	var at *yaml.LoadError
	if !errors.As(err, &at) || at.Mark.Line < 1 {
		return &Error{File: file, Line: 1, Column: 1, Text: "not YAML: " + err.Error()}
	}

	text := at.Message
	if at.ContextMsg != "" {
		text = at.ContextMsg + ": " + text
	}

	if strings.Contains(text, "unknown anchor") || strings.Contains(text, "scanning an alias") {
		return &Error{file, at.Mark.Line, at.Mark.Column, aliasText, aliasHint}
	}

	// A tab that YAML does not allow is usually in the line where the parser stopped, or in the line above
	// it.
	lines := strings.Split(string(data), "\n")
	for n := min(at.Mark.Line, len(lines)); n > 0 && n >= at.Mark.Line-1; n-- {
		line := lines[n-1]
		indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
		i := strings.IndexByte(indent, '\t')
		if i >= 0 {
			return &Error{file, n, i + 1, "a tab in front of the first word", "YAML wants spaces, not tabs"}
		}
	}

	return &Error{file, at.Mark.Line, at.Mark.Column, "not YAML: " + text, ""}
}

const (
	aliasText = "an alias (*) is not allowed"
	aliasHint = "write the value out; a text that starts with * needs quotes"
)

// inspect checks the whole tree, so that later code can rely on its form: plain scalars, lists, and maps
// whose keys are scalars. It notes deviations and marks their nodes as wrong.
func (r *reader) inspect(n *yaml.Node, depth int) {
	fail := func(at *yaml.Node, hint, format string, args ...any) {
		r.wrong[at] = true
		r.note(r.fail(at, hint, format, args...))
	}
	switch {
	case depth > maxDepth:
		fail(n, "", "nested more than %d levels deep", maxDepth)
		r.wrong[r.root] = true
		return
	case n.Kind == yaml.AliasNode:
		fail(n, aliasHint, aliasText)
		return
	case n.Anchor != "":
		fail(n, "write the value out where it is needed", "an anchor (&%s) is not allowed", n.Anchor)
		return
	case n.Style&yaml.TaggedStyle != 0:
		fail(n, "remove it; each value is read by its key", "a tag (%s) is not allowed", n.ShortTag())
		return
	}

	for i, c := range n.Content {
		switch isKey := n.Kind == yaml.MappingNode && i%2 == 0; {
		case isKey && c.Tag == "!!merge":
			fail(c, "write the keys out", "a merge key (<<) is not allowed")
		case isKey && (c.Kind == yaml.MappingNode || c.Kind == yaml.SequenceNode):
			fail(c, "", "a key must be one word")
		default:
			r.inspect(c, depth+1)
		}
	}
}

// isNull reports whether a value is missing.
func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }
