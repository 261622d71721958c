package store_test

import (
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

// A name has one holder at a time, and is free once that one has closed its claim.
func TestClaim(t *testing.T) {
	place := apart.Postgres(t)
	first := &store.Claim{Place: place, Name: "bed lab-1"}
	second := &store.Claim{Place: place, Name: "bed lab-1"}
	other := &store.Claim{Place: place, Name: "bed lab-2"}
	hold := func(c *store.Claim, want bool) {
		t.Helper()
		if held, err := c.Hold(t.Context()); held != want || err != nil {
			t.Errorf("got %v, %v, want %v", held, err, want)
		}
	}
	hold(first, true)
	hold(first, true)
	hold(second, false)
	hold(other, true)
	if err := first.Close(); err != nil {
		t.Error(err)
	}

	hold(second, true)
	hold(first, false)
	for _, c := range []*store.Claim{first, second, other} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
