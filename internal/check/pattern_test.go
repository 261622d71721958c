package check

import "testing"

// TestPattern: a pattern is compiled when it is used, and once.
func TestPattern(t *testing.T) {
	wrong := Pattern("(")
	whole := Pattern("^[0-9]+$")
	first := whole()
	if !first.MatchString("12") || first.MatchString("1.2") || whole() != first {
		t.Error("^[0-9]+$: got other matches than of whole numbers, or another expression each time")
	}

	defer func() {
		if recover() == nil {
			t.Error("(: got no panic, want one")
		}
	}()
	wrong()
}
