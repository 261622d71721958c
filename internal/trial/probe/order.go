package probe

import (
	"slices"
	"strings"
)

// sortNatural orders names with the numbers in them by value.
func sortNatural(names []string) { slices.SortFunc(names, compareNatural) }

func compareNatural(a, b string) int {
	for len(a) > 0 && len(b) > 0 {
		na, ra := digits(a)
		nb, rb := digits(b)
		if na != "" && nb != "" {
			na, nb = strings.TrimLeft(na, "0"), strings.TrimLeft(nb, "0")
			if len(na) != len(nb) {
				return len(na) - len(nb)
			}
			if c := strings.Compare(na, nb); c != 0 {
				return c
			}
			a, b = ra, rb
			continue
		}
		if a[0] != b[0] {
			return int(a[0]) - int(b[0])
		}
		a, b = a[1:], b[1:]
	}
	return len(a) - len(b)
}

func digits(s string) (head, rest string) {
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	return s[:i], s[i:]
}
