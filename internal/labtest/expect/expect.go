// Package expect compares a test's results with the expected ones.
package expect

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// Same expects two equal values; NaN equals NaN.
func Same(t testing.TB, what string, want, got any, options ...cmp.Option) {
	t.Helper()
	diff := cmp.Diff(want, got, append(options, cmpopts.EquateNaNs())...)
	if diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// Error expects an error that matches each of the errors and contains each of the texts; an empty text
// expects none.
func Error(t testing.TB, what string, err error, parts ...any) {
	t.Helper()
	for _, part := range parts {
		is, _ := part.(error)
		text, _ := part.(string)
		if (err == nil) != (part == "") || is != nil && !errors.Is(err, is) ||
			err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("%s: got %v, want %q", what, err, part)
		}
	}
}

// Hint expects an error whose hint contains a text; an empty text expects no hint.
func Hint(t testing.TB, what string, err error, text string) {
	t.Helper()
	hint := check.HintOf(err)
	if err == nil || (hint == "") != (text == "") || !strings.Contains(hint, text) {
		t.Errorf("%s: got %v with the hint %q, want %q in it", what, err, hint, text)
	}
}

// Soon expects read to return a value before long; an empty value equals a missing one.
func Soon[T any](t testing.TB, within time.Duration, what string, want T, read func() T) {
	t.Helper()
	deadline := time.Now().Add(within)
	got := read()
	for !cmp.Equal(want, got, cmpopts.EquateEmpty()) && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
		got = read()
	}

	Same(t, what, want, got, cmpopts.EquateEmpty())
}
