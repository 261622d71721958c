package main

import (
	"strings"
	"testing"
)

func TestTableIsPrintedAndHoldsItsLimits(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), []string{"-seeds", "20"}, &out, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}

	got := strings.Count(out.String(), "\n|")
	if got != 2+3*len(devices) {
		t.Errorf("got %d rows, want one per device and preset below the head:\n%s", got, out.String())
	}

	if err := run(t.Context(), []string{"-seeds", "3"}, &out, &out); err == nil {
		t.Error("three seeds: got no error, want that there is no interval")
	}
}
