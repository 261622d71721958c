package main

import (
	"strings"
	"testing"
)

func TestByHand(t *testing.T) {
	text := "The 'numbers' are in 1000s of bytes per second processed.\ntype       16384 bytes\n" +
		"AES-128-GCM    2411265.08k\n"
	m := shown.FindStringSubmatch(text)
	if m == nil || m[1] != "2411265.08" {
		t.Errorf("got %q, want 2411265.08", m)
	}
}

func TestFewPairsAreRefused(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), []string{"-pairs", "5"}, &out, &out); err == nil {
		t.Error("five pairs: got no error, want that there is no interval")
	}
}
