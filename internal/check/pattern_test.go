package check

import "testing"

// TestPattern: a pattern is compiled when it is used, and once.
func TestPattern(t *testing.T) {
	wrong := Pattern("(")
	whole := Pattern("^[0-9]+$")
	if !whole().MatchString("12") || whole().MatchString("1.2") || whole() != whole() {
		t.Error("^[0-9]+$: got other matches than of whole numbers, or another expression each time")
	}

	defer func() {
		if recover() == nil {
			t.Error("(: got no panic, want one")
		}
	}()
	wrong()
}
