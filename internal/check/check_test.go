package check

import (
	"errors"
	"testing"
)

// TestAnswerIsOneLine: joined errors, of which some are the same, are one sentence.
func TestAnswerIsOneLine(t *testing.T) {
	err := errors.Join(errors.New("flush: no such file"), errors.New("no such file"), errors.New("busy"))
	for _, a := range []Answer{Not("%v", err), CouldNotTell("%v\n", err)} {
		want := "flush: no such file; busy"
		if a.Reason != want {
			t.Errorf("%v: got %q, want %q", a.State, a.Reason, want)
		}
	}
}
