package main

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// fitted wraps long lines to the terminal's width. It does not change rows of tables.
func (s streams) fitted(text string) string {
	width := s.width()
	if width == 0 {
		return text
	}

	var b strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		inRow := strings.Contains(strings.TrimLeft(line, " "), "  ")
		if inRow {
			b.WriteString(line + "\n")
			continue
		}

		b.WriteString(strings.Join(wrapped(line, width), "\n") + "\n")
	}

	return b.String()
}

// wrapped wraps a line between words to a width (0 means unlimited). Continuation lines are indented by two
// more columns than the first.
func wrapped(line string, width int) []string {
	words := unbroken(line)
	if width == 0 || utf8.RuneCountInString(line) <= width || len(words) == 0 {
		return []string{line}
	}

	indent := strings.Repeat(" ", len(line)-len(strings.TrimLeft(line, " ")))
	out := []string{indent + words[0]}
	if indent != "" {
		indent += "  "
	}

	for _, word := range words[1:] {
		last := &out[len(out)-1]
		if utf8.RuneCountInString(*last+" "+word) <= width {
			*last += " " + word
		} else {
			out = append(out, indent+word)
		}
	}

	return out
}

// unbroken splits text into words, keeping a number and its unit together.
func unbroken(text string) (out []string) {
	for _, word := range strings.Fields(text) {
		if len(out) > 0 {
			last := &out[len(out)-1]
			end, _ := utf8.DecodeLastRuneInString(*last)
			start, _ := utf8.DecodeRuneInString(word)
			ofNumber := unicode.IsDigit(end) && !unicode.IsDigit(start) && len(word) <= len("Mbit/s,")
			if *last == "≤" || ofNumber {
				*last += " " + word
				continue
			}
		}

		out = append(out, word)
	}
	return out
}

// columnGap is the number of spaces between columns.
const columnGap = 2

// layout formats tables for a width (0 means unlimited). A row with a single cell is a heading that starts a
// new table.
func layout(rows grid, width int) string {
	var b strings.Builder
	from := 0
	for i, r := range rows {
		if len(r) <= 1 {
			b.WriteString(narrowed(rows[from:i], width) + table(rows[i:i+1], 0))
			from = i + 1
		}
	}

	return b.String() + narrowed(rows[from:], width)
}

// narrowed formats a table for a width. It wraps the widest columns. If that does not suffice, it converts
// each row to a list.
func narrowed(rows grid, width int) string {
	wide := widths(rows)
	least := make([]int, len(wide))
	for _, r := range rows {
		for i, cell := range r {
			indent := len(cell) - len(strings.TrimLeft(cell, " "))
			for _, word := range unbroken(cell) {
				least[i] = max(least[i], utf8.RuneCountInString(word)+indent+min(indent, 2))
			}
		}
	}

	if width == 0 || sumOf(wide) <= width {
		return table(rows, 0)
	}

	if sumOf(least) > width {
		return asLists(rows, width)
	}

	for sumOf(wide) > width {
		at := 0
		for i := range wide {
			if wide[at] <= least[at] || wide[i] > wide[at] && wide[i] > least[i] {
				at = i
			}
		}

		wide[at]--
	}

	var out grid
	for _, r := range rows {
		cells := make([][]string, len(r))
		lines := 0
		for i, cell := range r {
			cells[i] = wrapped(cell, wide[i])
			lines = max(lines, len(cells[i]))
		}

		for n := range lines {
			line := make([]string, len(r))
			for i := range cells {
				if n < len(cells[i]) {
					line[i] = cells[i][n]
				}
			}

			out = append(out, line)
		}
	}

	return trimmed(table(out, 0))
}

// widths returns the width of each column.
func widths(rows grid) (wide []int) {
	for _, r := range rows {
		for i, cell := range r {
			if i == len(wide) {
				wide = append(wide, 0)
			}

			wide[i] = max(wide[i], utf8.RuneCountInString(cell))
		}
	}
	return wide
}

// sumOf returns the total width of columns, including gaps.
func sumOf(columns []int) (n int) {
	for _, c := range columns {
		n += c + columnGap
	}
	return n - columnGap
}

// asLists prints the first two cells of each row, followed by a list of the other cells with their
// headings. It omits empty cells.
func asLists(rows grid, width int) string {
	var b strings.Builder
	head := rows[0]
	for _, r := range rows[1:] {
		first := min(2, len(r))
		b.WriteString(strings.Join(wrapped(strings.Join(r[:first], "  "), width), "\n") + "\n")
		var parts []string
		for i := first; i < len(r); i++ {
			if !slices.Contains([]string{"", "-"}, r[i]) {
				parts = append(parts, cmp.Or(strings.ToLower(head[i]), "note")+": "+r[i])
			}
		}

		b.WriteString(strings.Join(wrapped("  "+strings.Join(parts, " · "), width), "\n") + "\n")
	}

	return b.String()
}
