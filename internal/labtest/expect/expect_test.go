package expect_test

import (
	"errors"
	"fmt"
	"io"
	"math"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

// recorder is a test that only notes that it failed.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.failed = true }

func TestExpectationsFail(t *testing.T) {
	err := check.WithHint(fmt.Errorf("read it: %w", io.EOF), "write it first")
	reads := 0
	for what, tt := range map[string]struct {
		fails bool
		wants func(t testing.TB)
	}{
		"same":            {false, func(t testing.TB) { expect.Same(t, "", math.NaN(), math.NaN()) }},
		"other":           {true, func(t testing.TB) { expect.Same(t, "", 1, 2) }},
		"nothing":         {true, func(t testing.TB) { expect.Same(t, "", []int{}, []int(nil)) }},
		"error":           {false, func(t testing.TB) { expect.Error(t, "", err, io.EOF, "read it") }},
		"another error":   {true, func(t testing.TB) { expect.Error(t, "", err, io.ErrClosedPipe) }},
		"another text":    {true, func(t testing.TB) { expect.Error(t, "", err, "read it", "write it") }},
		"an error, none":  {true, func(t testing.TB) { expect.Error(t, "", nil, "read it") }},
		"no error":        {false, func(t testing.TB) { expect.Error(t, "", nil, "") }},
		"no error, one":   {true, func(t testing.TB) { expect.Error(t, "", err, "") }},
		"hint":            {false, func(t testing.TB) { expect.Hint(t, "", err, "write") }},
		"another hint":    {true, func(t testing.TB) { expect.Hint(t, "", err, "read") }},
		"a hint, none":    {true, func(t testing.TB) { expect.Hint(t, "", errors.New("write"), "write") }},
		"no hint":         {false, func(t testing.TB) { expect.Hint(t, "", io.EOF, "") }},
		"no hint, one":    {true, func(t testing.TB) { expect.Hint(t, "", err, "") }},
		"soon":            {false, func(t testing.TB) { expect.Soon(t, time.Minute, "", 3, func() int { reads++; return reads }) }},
		"not soon enough": {true, func(t testing.TB) { expect.Soon(t, 0, "", 3, func() int { return 2 }) }},
	} {
		var r recorder
		if tt.wants(&r); r.failed != tt.fails {
			t.Errorf("%s: failed %v, want %v", what, r.failed, tt.fails)
		}
	}
}
