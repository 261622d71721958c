package foreign

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// document holds one JSON object in a text.
type document struct {
	from, to int
	text     []byte // text of the object, with null in place of numbers that are not finite
	joined   bool   // joined from several lines, so offsets do not refer to the file
}

// opening matches the beginning of a JSON object. A brace in prose has other characters after it.
var opening = check.Pattern(`\{\s*["}]`)

// documents returns the successive JSON objects in a text. The text may be the output of several tests in
// one file or list, or output pasted with prompts, warnings and code fences. If an object at the start of
// a line is damaged, documents returns an *Error.
func documents(text []byte) ([]document, error) {
	if err := bounded(text); err != nil {
		return nil, err
	}

	var out []document
	braces := 0 // number of braces in prose, which do not begin an object
	for from := 0; ; {
		found := opening().FindIndex(text[from:])
		if found == nil {
			return out, nil
		}

		d := document{from: from + found[0]}
		before := text[from:d.from]
		begins := len(bytes.Trim(before[bytes.LastIndexByte(before, '\n')+1:], " \t\r,[]")) == 0
		d.to = objectEnd(text, d.from)
		d.text = nullNotFinite(text[d.from:d.to])
		switch {
		case json.Valid(d.text):
			out = append(out, d)
			from = d.to
			continue
		case begins || braces == maxBraces:
			return nil, damaged(text, d)
		}

		braces++
		from = d.from + 1
	}
}

// maxBraces is the maximum number of braces in prose. Each of them causes a scan to the end of the text.
const maxBraces = 20

// damaged returns an error with the position at which the document is damaged.
func damaged(text []byte, d document) *Error {
	var value json.RawMessage
	err := json.Unmarshal(d.text, &value)
	offset := check.JSONOffset(err)
	if offset < 0 || d.from+int(offset) >= len(text) {
		return place(text, len(text), errors.New("it ends in the middle"))
	}

	return place(text, d.from+int(offset), check.JSONWords(err))
}

// objectEnd returns the offset of the first byte after the object that begins at from, or the length of
// the text.
func objectEnd(text []byte, from int) int {
	depth := 0
	quoted := false
	for i := from; i < len(text); i++ {
		switch b := text[i]; {
		case quoted && b == '\\':
			i++
		case b == '"':
			quoted = !quoted
		case quoted:
		case b == '{':
			depth++
		case b == '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}

	return len(text)
}

// each returns a reader that calls the function read for each of the JSON documents in a text.
func each(read func([]byte) ([]Result, error)) func([]byte) ([]Result, error) {
	return func(text []byte) ([]Result, error) {
		docs, err := documents(text)
		if err != nil {
			return nil, err
		}

		if len(docs) == 0 { // read returns the error for a wrong format
			return read(text)
		}

		return resultsOf(text, docs, func(d document) ([]Result, error) {
			results, err := read(d.text)
			return results, at(d.text, err)
		})
	}
}

// resultsOf calls the function read for each document. Documents without a result are skipped, with the
// reason in LeftOut. If no document has a result, resultsOf returns the first error.
func resultsOf(text []byte, docs []document, read func(document) ([]Result, error)) ([]Result, error) {
	var out []Result
	var first error
	results := 0
	for _, d := range docs {
		found, err := read(d)
		if err != nil {
			err = within(text, d, err)
			first = cmp.Or(first, err)
			found = []Result{{LeftOut: err.Error()}}
		} else {
			results += len(found)
		}

		if out = append(out, found...); len(out) > maxTrials {
			return nil, place(text, d.from, fmt.Errorf("there are more than %d results", maxTrials))
		}
	}

	if results == 0 {
		return nil, first
	}

	return out, nil
}

// within converts the position in an error about a document to a position in the whole text. If the error has
// no position and the text contains more than the document, the error gets the start of the document.
func within(text []byte, d document, err error) error {
	wrong, ok := errors.AsType[*Error](err)
	if !ok {
		wrong = &Error{Err: err}
	}

	offset := d.from
	switch {
	case wrong.Line > 0:
		offset += int(wrong.Offset)
	case len(bytes.TrimSpace(text[:d.from])) == 0 && len(bytes.TrimSpace(text[d.to:])) == 0:
		return wrong
	}

	return place(text, offset, wrong.Err)
}
