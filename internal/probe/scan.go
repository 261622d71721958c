package probe

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
)

// The parsers walk the text in place, because parsers of fast probes must not allocate.

// line returns the first line of b without its newline, and the rest of b.
func line(b []byte) (head, rest []byte) {
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		return b, nil
	}
	return b[:i], b[i+1:]
}

func blank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == 0 }

// word returns the first run of non-blank characters in b, and the rest of b. head is empty if there is none.
func word(b []byte) (head, rest []byte) {
	i := 0
	for i < len(b) && blank(b[i]) {
		i++
	}

	j := i
	for j < len(b) && !blank(b[j]) {
		j++
	}

	return b[i:j], b[j:]
}

func trim(b []byte) []byte { return bytes.Trim(b, " \t\r\n\x00") }

// number parses an unsigned decimal integer of at most 64 bits.
func number(b []byte) (uint64, bool) {
	var v uint64
	for _, c := range b {
		d := uint64(c - '0')
		if c < '0' || c > '9' || v > (1<<64-1-d)/10 {
			return 0, false
		}

		v = v*10 + d
	}
	return v, len(b) > 0
}

// signed parses a decimal integer with an optional minus sign.
func signed(b []byte) (float64, bool) {
	if len(b) > 0 && b[0] == '-' {
		v, ok := number(b[1:])
		return -float64(v), ok
	}

	v, ok := number(b)
	return float64(v), ok
}

// hexNumber parses a hexadecimal integer of at most 64 bits, without a prefix.
func hexNumber(b []byte) (uint64, bool) {
	if len(b) == 0 || len(b) > 16 {
		return 0, false
	}

	var v uint64
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}

		v = v<<4 | uint64(c)
	}

	return v, true
}

// sortNatural sorts names, comparing numbers in them by value.
func sortNatural(names []string) { slices.SortFunc(names, compareNatural) }

func compareNatural(a, b string) int {
	for a != "" && b != "" {
		m := digits(a)
		n := digits(b)
		if m != "" && n != "" {
			a, b = a[len(m):], b[len(n):]
			m, n = strings.TrimLeft(m, "0"), strings.TrimLeft(n, "0")
		} else {
			m = a[:1]
			n = b[:1]
			a = a[1:]
			b = b[1:]
		}

		c := cmp.Or(len(m)-len(n), strings.Compare(m, n))
		if c != 0 {
			return c
		}
	}
	return len(a) - len(b)
}

// digits returns the leading digits of s.
func digits(s string) string { return s[:len(s)-len(strings.TrimLeft(s, "0123456789"))] }
