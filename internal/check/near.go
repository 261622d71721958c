package check

import (
	"strings"
	"unicode"
)

// Nearest returns the candidate that text was probably meant to be, or "". Capitals do not matter.
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

// Choice helps with a word that is not on a list: it returns the hint that names the word that was probably
// meant, by its letters or because one contains the other, and else the whole list behind its noun.
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

// containing returns the shortest word whose letters and digits contain those of text, or the longest word
// that they contain. Three letters are the least that count. It returns "" if there is none.
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

// letters returns the letters and digits of a text, without capitals.
func letters(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, text)
}

// distance counts the insertions, deletions, replacements and swaps of neighbours that turn a into b
// (optimal string alignment), up to limit.
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
