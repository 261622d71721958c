package rig

import (
	"context"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestRatioAndItsInterval(t *testing.T) {
	got := Ratio([]float64{2, 4, 6, 8, 10, 60}, []float64{2, 2, 2, 2, 2, 2})
	if got.Median != 3.5 || got.Low != 1 || got.High != 30 || got.Level < .95 {
		t.Errorf("got %+v, want 3.5 in 1–30 with 95 %%", got)
	}
	if v := Ratio([]float64{1, 2, 3, 4, 5}, []float64{1, 1, 1, 1, 1}); v.Level != 0 || MinPairs != 6 {
		t.Errorf("fewer than %d pairs: got an interval of %v, want none", MinPairs, v.Level)
	}
}

// TestBlocks: each thing once per block, in orders that the seed alone decides.
func TestBlocks(t *testing.T) {
	order := func(seed uint64) (all []int) {
		_ = Blocks(Draw(seed), 8, 3, func(block, i int) error {
			all = append(all, i)
			return nil
		})
		return all
	}
	first := order(1)
	for at := 0; at < len(first); at += 3 {
		if got := slices.Sorted(slices.Values(first[at : at+3])); !slices.Equal(got, []int{0, 1, 2}) {
			t.Errorf("block %d: got %v, want each once", at/3, got)
		}
	}
	if len(first) != 24 || !slices.Equal(first, order(1)) || slices.Equal(first, order(2)) {
		t.Errorf("orders: %v, %v, %v; want 24, the same by the same seed only", first, order(1), order(2))
	}
	if err := Blocks(Draw(1), 2, 2, func(int, int) error { return io.EOF }); err != io.EOF {
		t.Errorf("got %v, want the first error", err)
	}
}

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		args []string
		ok   bool
	}{{[]string{"-n", "3"}, true}, {[]string{"-n", "0"}, false}, {[]string{"-x"}, false},
		{[]string{"more"}, false}} {
		flags := flag.NewFlagSet("x", flag.ContinueOnError)
		n := flags.Int("n", 1, "")
		if err := Parse(flags, tt.args, io.Discard, func() bool { return *n > 0 }); (err == nil) != tt.ok {
			t.Errorf("%v: got %v, want it to pass: %v", tt.args, err, tt.ok)
		}
	}
}

// TestProgram: the program is a copy in a folder of its own, and sees folders of its own only.
func TestProgram(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "sh"), []byte("#!/bin/sh\necho $HOME $XDG_DATA_HOME $USER\n"),
		0o755); err != nil {
		t.Fatal(err)
	}
	p, err := NewProgram(filepath.Join(dir, "own"), filepath.Join(dir, "sh"), os.Geteuid())
	if err != nil {
		t.Fatal(err)
	}
	want := p.At("home") + " " + p.At("data") + "\n"
	if said, err := p.Say(context.Background()); said != want || err != nil {
		t.Errorf("got %q, %v; want %q", said, err, want)
	}
}
