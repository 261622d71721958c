package report

import (
	"maps"
	"slices"
	"sort"
	"strings"
)

// palette holds every colour of the page, light and dark. The five series colours keep apart for the common
// kinds of colour vision and have at least 3:1 contrast to the ground they stand on (WCAG 2.2, 1.4.11);
// text colours have 4.5:1.
func palette() map[string][2]string {
	return map[string][2]string{
		"ground":  {"#fcfcfa", "#121519"},
		"surface": {"#ffffff", "#191d23"},
		"sunken":  {"#f3f4f1", "#20252c"},
		"ink":     {"#1b1f24", "#e8eaed"},
		"soft":    {"#59626d", "#9ba5b1"},
		"rule":    {"#dfe2e4", "#323942"},
		"faint":   {"#eceeee", "#272d35"},
		"link":    {"#0b5cab", "#7db8f0"},
		"good":    {"#1a7346", "#5cc48f"},
		"doubt":   {"#8f5a00", "#e2b04a"},
		"bad":     {"#b3261e", "#ff8a80"},
		"c1":      {"#1f6fb2", "#5aa7e8"},
		"c2":      {"#c95a12", "#f0914e"},
		"c3":      {"#128069", "#41bfa0"},
		"c4":      {"#8a4fa3", "#c592de"},
		"c5":      {"#7d6a14", "#cfb94a"},
		"heat":    {"#c2410c", "#ff9d5c"},
	}
}

// variables declares the colours of one theme (0 light, 1 dark).
func variables(theme int) string {
	p := palette()
	names := slices.Sorted(maps.Keys(p))
	var b strings.Builder
	for _, n := range names {
		b.WriteString("--" + n + ":" + p[n][theme] + ";")
	}
	return b.String()
}

// resolve replaces variables by their colours, for files that leave the page.
func resolve(css string, theme int) string {
	p := palette()
	var pairs []string
	names := slices.Sorted(maps.Keys(p))
	sort.Sort(sort.Reverse(sort.StringSlice(names)))
	for _, n := range names {
		pairs = append(pairs, "var(--"+n+")", p[n][theme])
	}
	return strings.NewReplacer(pairs...).Replace(css)
}
