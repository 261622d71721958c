package check

import (
	"strings"
	"unicode"
)

// Nearest returns the candidate with the smallest edit distance to text, ignoring case. It returns "" if no
// candidate is near enough.
func Nearest(text string, candidates []string) string {
	best := ""
	limit := min(3, len(text)/2+1)
	for _, c := range candidates {
		d := distance(strings.ToLower(text), strings.ToLower(c), limit)
		if d < limit {
			best, limit = c, d
		}
	}

	return best
}

// Meant returns a hint with the word that was probably meant, or "" if no word is near enough.
func Meant(text string, words []string) string {
	near := Nearest(text, words)
	if near == "" {
		return ""
	}
	return "did you mean " + near + "?"
}

// Choice returns a hint for a word that is not in words. The hint contains the word that was probably meant.
// This word is similar to text, contains text or is contained in text. If there is no such word, the hint
// lists all words after the noun.
func Choice(text, noun string, words []string) string {
	near := Nearest(text, words)
	if near == "" {
		near = containing(text, words)
	}

	if near != "" {
		return "did you mean " + near + "?"
	}

	return noun + ": " + strings.Join(words, ", ")
}

// containing returns the shortest word that contains text. If there is none, it returns the longest word that
// text contains, or "". It compares only letters and digits, and ignores strings with fewer than three of
// them.
func containing(text string, words []string) string {
	const least = 3
	want := letters(text)
	longer := ""
	shorter := ""
	for _, w := range words {
		have := letters(w)
		switch {
		case min(len(want), len(have)) < least:
		case strings.Contains(have, want) && (longer == "" || len(w) < len(longer)):
			longer = w
		case strings.Contains(want, have) && len(w) > len(shorter):
			shorter = w
		}
	}

	if longer != "" {
		return longer
	}

	return shorter
}

// letters returns the letters and digits of a text in lower case.
func letters(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, text)
}

// distance returns the number of insertions, deletions, replacements and transpositions that turn a into b
// (optimal string alignment), but at most limit. It returns limit for strings of more than 64 bytes.
func distance(a, b string, limit int) int {
	if len(a) > 64 || len(b) > 64 || len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}

	var rows [3][65]int
	before := &rows[0]
	above := &rows[1]
	row := &rows[2]
	for j := range len(b) + 1 {
		above[j] = j
	}

	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}

			row[j] = min(above[j]+1, row[j-1]+1, above[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}

		before, above, row = above, row, before
	}

	return above[len(b)]
}
