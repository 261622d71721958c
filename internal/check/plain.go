package check

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Steers reports whether r, instead of being shown, controls a terminal or changes how text is read. Such
// characters are control characters except line feed and tab, characters that change the text direction
// (Unicode Bidi_Control), and the separators U+2028 and U+2029.
func Steers(r rune) bool {
	return unicode.Is(unicode.Cc, r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) ||
		r == '\u2028' || r == '\u2029'
}

// Plain returns text as valid UTF-8 without the characters that Steers reports. Text from another machine, a
// guest or a third-party program passes through Plain before it is shown or stored.
func Plain(text string) string {
	return strings.Map(func(r rune) rune {
		if Steers(r) {
			return -1
		}
		return r
	}, text) // strings.Map replaces invalid UTF-8 with U+FFFD
}

// PlainJSON applies Plain to all strings in a JSON text.
func PlainJSON(b []byte) []byte {
	var out []byte
	from := 0
	for i := 0; i < len(b); {
		r, n := runeOfJSON(b[i:])
		if Steers(r) {
			out = append(out, b[from:i]...)
			from = i + n
		}

		i += n
	}

	if from == 0 {
		return b
	}

	return append(out, b[from:]...)
}

// JSONOffset returns the byte offset of a JSON decoding error, or -1 if the error has none.
func JSONOffset(err error) int64 {
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return e.Offset
	}

	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && e.Offset > 0 {
		return e.Offset
	}
	return -1
}

// JSONWords rewords a JSON decoding error without Go's type names. The new text contains the field, the
// expected type and the value found. JSONWords returns other errors unchanged.
func JSONWords(err error) error {
	e, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return err
	}

	field := e.Field
	if field != "" {
		field += ": "
	}

	got, known := map[string]string{"object": "an object", "array": "a list", "string": "a text",
		"bool": "true or false", "number": "a number"}[e.Value]
	if !known {
		got = strings.TrimPrefix(e.Value, "number ") // the number is valid JSON but out of range
	}

	return fmt.Errorf("%swant %s, got %.40s", field, wantedWords(e.Type), got)
}

// wantedWords describes the JSON type that decodes into a Go type.
func wantedWords(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number in its range"
	case reflect.String:
		return "a text"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Pointer:
		return wantedWords(t.Elem())
	}
	return "a whole number in its range"
}

// runeOfJSON returns the first character of a JSON text and its encoded length in bytes. It returns a space
// for white space between values and for half of a surrogate pair.
func runeOfJSON(b []byte) (rune, int) {
	switch {
	case b[0] < ' ':
		return ' ', 1
	case b[0] != '\\':
		return utf8.DecodeRune(b)
	case len(b) > 5 && b[1] == 'u':
		r := rune(0)
		for _, c := range b[2:6] {
			r = r<<4 | rune(max(strings.IndexByte("0123456789abcdef", c|0x20), 0))
		}
		return r, 6
	case len(b) > 1 && (b[1] == 'b' || b[1] == 'f' || b[1] == 'r'):
		return '\b', 2
	}
	return ' ', min(2, len(b))
}
