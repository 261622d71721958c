package foreign

import (
	"bytes"
	"encoding/binary"
	"errors"
	"unicode/utf16"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// byteOrderMark is U+FEFF in UTF-8. Windows programs write one at the start of a file.
const byteOrderMark = "\ufeff"

// Encoded reports whether a file is encoded as UTF-16, or as UTF-8 with a byte order mark. head is the
// beginning of the file.
func Encoded(head []byte) bool {
	return bytes.HasPrefix(head, []byte(byteOrderMark)) || utf16Order(head) != nil
}

// utf16Order returns the byte order of UTF-16, or nil for any other text. Windows PowerShell writes a
// program's output in UTF-16. Without a byte order mark, the zero bytes of ASCII characters show the
// order.
func utf16Order(head []byte) binary.ByteOrder {
	head = head[:min(len(head), 512)]
	switch {
	case bytes.HasPrefix(head, []byte{0xff, 0xfe}):
		return binary.LittleEndian
	case bytes.HasPrefix(head, []byte{0xfe, 0xff}):
		return binary.BigEndian
	}

	var zeros [2]int // zero bytes at even and at odd offsets
	for i, b := range head {
		if b == 0 {
			zeros[i%2]++
		}
	}

	switch {
	case zeros[0] == 0 && zeros[1] > len(head)/4:
		return binary.LittleEndian
	case zeros[1] == 0 && zeros[0] > len(head)/4:
		return binary.BigEndian
	}

	return nil
}

// decoded converts a text to UTF-8 and removes byte order marks. In a concatenated file, each part may
// begin with one.
func decoded(text []byte) ([]byte, error) {
	order := utf16Order(text)
	if order != nil {
		if len(text)%2 != 0 {
			return nil, &Error{Err: errors.New("it is UTF-16 and ends in the middle of a character")}
		}

		units := make([]uint16, len(text)/2)
		for i := range units {
			units[i] = order.Uint16(text[2*i:])
		}

		text = []byte(string(utf16.Decode(units)))
	}

	if !bytes.Contains(text, []byte(byteOrderMark)) {
		return text, nil
	}

	return bytes.ReplaceAll(text, []byte(byteOrderMark), nil), nil
}

// notFinite matches numbers that JSON does not allow but programs print. C's printf and Python print "nan",
// "-nan", "inf" and "Infinity". Windows programs print "-nan(ind)" and "1.#INF".
var notFinite = check.Pattern(
	`(?i)^[+-]?(?:nan(?:\([0-9a-z_]*\))?|inf(?:inity)?|[0-9]\.[0-9]*#(?:ind|inf|[qs]nan)[0-9]*)$`)

// nullNotFinite replaces numbers that are not finite with null. Where possible, it overwrites adjacent
// white space, so that offsets in the text stay the same.
func nullNotFinite(text []byte) []byte {
	var out []byte
	from := 0
	quoted := false
	for i := 0; i < len(text); i++ {
		switch {
		case quoted && text[i] == '\\':
			i++
			continue
		case text[i] == '"':
			quoted = !quoted
			continue
		case quoted || !startsValue(text, i):
			continue
		}

		end := i
		for end < len(text) && end-i < 40 && !bytes.ContainsRune([]byte(" \t\r\n,]}"), rune(text[end])) {
			end++
		}

		if notFinite().Match(text[i:end]) {
			start := i
			if end-i < len("null") && start > from && bytes.ContainsRune([]byte(" \t"), rune(text[start-1])) {
				start--
			}

			out = append(append(out, text[from:start]...), "null"...)
			for range end - start - len("null") {
				out = append(out, ' ')
			}

			from = end
		}

		i = end - 1
	}

	if from == 0 {
		return text
	}

	return append(out, text[from:]...)
}

// startsValue reports whether a number that is not finite may start at this offset.
func startsValue(text []byte, at int) bool {
	return bytes.IndexByte([]byte("nNiI+-1"), text[at]) >= 0 &&
		(at == 0 || bytes.IndexByte([]byte(" \t\r\n:,["), text[at-1]) >= 0)
}
