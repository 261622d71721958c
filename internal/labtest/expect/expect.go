// Package expect compares results of tests with expected values.
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

// Same fails the test if want and got differ. NaN equals NaN.
func Same(t testing.TB, what string, want, got any, options ...cmp.Option) {
	t.Helper()
	diff := cmp.Diff(want, got, append(options, cmpopts.EquateNaNs())...)
	if diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// Error fails the test unless err matches every error in parts and contains every text in parts. An empty
// text means that err must be nil.
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

// Hint fails the test unless err has a hint that contains text. An empty text means that err must have no
// hint.
func Hint(t testing.TB, what string, err error, text string) {
	t.Helper()
	hint := check.HintOf(err)
	if err == nil || (hint == "") != (text == "") || !strings.Contains(hint, text) {
		t.Errorf("%s: got %v with the hint %q, want %q in it", what, err, hint, text)
	}
}

// Soon fails the test unless read returns want within the given time. An empty value counts as equal to a
// missing one.
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
