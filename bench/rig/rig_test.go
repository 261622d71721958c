package rig

import (
	"context"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func TestRatioAndItsInterval(t *testing.T) {
	got := Ratio([]float64{2, 4, 6, 8, 10, 60}, []float64{2, 2, 2, 2, 2, 2})
	if got.Median != 3.5 || got.Low != 1 || got.High != 30 || got.Level < .95 {
		t.Errorf("got %+v, want 3.5 in 1–30 with 95 %%", got)
	}

	v := Ratio([]float64{1, 2, 3, 4, 5}, []float64{1, 1, 1, 1, 1})
	if v.Level != 0 || MinPairs != 6 {
		t.Errorf("fewer than %d pairs: got an interval of %v, want none", MinPairs, v.Level)
	}
}

func TestDeviation(t *testing.T) {
	got := Deviation([]float64{8, 10, 12})
	if math.Abs(got-math.Sqrt(8./3)/10) > 1e-15 {
		t.Errorf("got %v, want 0.163", got)
	}
}

// TestMeasure: each thing once per block, in orders that the seed alone decides.
func TestMeasure(t *testing.T) {
	order := func(seed uint64) (all []int) {
		by, _ := Measure(Draw(seed), 8, 3, func(block, i int) (int, error) {
			all = append(all, i)
			return 10*block + i, nil
		})
		if len(by) != 3 || len(by[2]) != 8 || by[2][7] != 72 {
			t.Errorf("got %v, want what each of three gave, block by block", by)
		}
		return all
	}
	first := order(1)
	for at := 0; at < len(first); at += 3 {
		got := slices.Sorted(slices.Values(first[at : at+3]))
		if !slices.Equal(got, []int{0, 1, 2}) {
			t.Errorf("block %d: got %v, want each once", at/3, got)
		}
	}

	if len(first) != 24 || !slices.Equal(first, order(1)) || slices.Equal(first, order(2)) {
		t.Errorf("orders: %v, %v, %v; want 24, the same by the same seed only", first, order(1), order(2))
	}

	if _, err := Measure(Draw(1), 2, 2, func(int, int) (int, error) { return 0, io.EOF }); err != io.EOF {
		t.Errorf("got %v, want the first error", err)
	}
}

func TestSum(t *testing.T) {
	usage := map[string]record.EndUsage{"near": {UserNs: 1e9, MemoryBytes: 5}, "far": {
		SystemNs:    2e9,
		MemoryBytes: 6,
	}}
	tests := []struct {
		name  string
		flows []record.Flow
		want  Sums // none: an error
	}{
		{"two streams", []record.Flow{{ReceivedBytes: 1e9, ReceiverNs: 1e9},
			{ReceivedBytes: 5e8, ReceiverNs: 5e8}},
			Sums{Goodput: 16e9, Gigabytes: 1.5, CPU: 3, Memory: 11}},
		{"packets", []record.Flow{{
			ReceivedBytes: 1e9,
			ReceiverNs:    1e9,
			SenderNs:      2e9,
			Packets: &record.Packets{
				Sent:       4,
				Received:   3,
				Lost:       1,
				Duplicates: new(int64(5)),
				Reordered:  new(int64(6)),
			},
		}},
			Sums{
				Goodput:    8e9,
				Gigabytes:  1,
				CPU:        3,
				Memory:     11,
				PPS:        3,
				SentPPS:    2,
				Sent:       4,
				Lost:       1,
				Duplicates: 5,
				Reordered:  6,
			}},
		{"open accounts", []record.Flow{{
			ReceivedBytes: 1,
			ReceiverNs:    1,
			SenderNs:      1,
			Packets:       &record.Packets{Sent: 4, Received: 3},
		}}, Sums{}},
		{"no time", []record.Flow{{ReceivedBytes: 1000}}, Sums{}},
		{"no byte", []record.Flow{{ReceiverNs: 1e9}}, Sums{}},
		{"no stream", nil, Sums{}},
	}
	for _, tt := range tests {
		got, err := Sum(&record.Traffic{Flows: tt.flows, Ends: usage})
		if err != nil {
			got = Sums{}
		}

		if got != tt.want || (err != nil) != (tt.want == Sums{}) {
			t.Errorf("%s: got %+v (%v), want %+v", tt.name, got, err, tt.want)
		}
	}

	loss := (Sums{Sent: 4, Lost: 1}).Loss()
	if loss != .25 {
		t.Errorf("loss %v, want a quarter", loss)
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
