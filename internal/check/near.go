package check

import "strings"

// Nearest returns the candidate that text was probably meant to be, or "".
func Nearest(text string, candidates []string) string {
	best := ""
	limit := min(3, len(text)/2+1)
	for _, c := range candidates {
		d := distance(strings.ToLower(text), c, limit)
		if d < limit {
			best, limit = c, d
		}
	}

	return best
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
