package main

import (
	"bytes"
	"testing"
)

// TestForgedLines: what others wrote looks neither like another note nor like another row.
func TestForgedLines(t *testing.T) {
	var b bytes.Buffer
	streams{Err: &b}.note("trigger git: %s", "remote: no\nchokepoint: note: 10.0.0.1 has signed in\n")
	const want = "chokepoint: note: trigger git: remote: no\n  chokepoint: note: 10.0.0.1 has signed in\n"
	if got := b.String(); got != want {
		t.Errorf("note: got %q, want %q", got, want)
	}

	if got := layout(grid{{"lab-1", "x\nlab-2  y"}}, 0); got != "lab-1  x lab-2  y\n" {
		t.Errorf("row: got %q, want one line", got)
	}
}
