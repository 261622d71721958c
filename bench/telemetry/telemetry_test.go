package main

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

func TestEnough(t *testing.T) {
	const all = "cpu 50\nsoftirq 50\nsoftnet 50\nnetdev 50\nqdisc 50\n"
	for _, test := range []struct {
		name, said, want string
	}{
		{"all", all, ""},
		{"one late read", strings.Replace(all, "cpu 50", "cpu 49", 1), ""},
		{"too few", strings.Replace(all, "qdisc 50", "qdisc 44", 1), "qdisc was read 44 times, want 45"},
		{"one is missing", strings.Replace(all, "cpu 50\n", "", 1), "4 sources"},
		{"nothing", "", "0 sources"},
		{"garbage", "panic: x\n", "read what the watcher said"},
	} {
		err := enough(test.said, 10, 5*time.Second)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(),
			test.want)) {
			t.Errorf("%s: got %v, want %q", test.name, err, test.want)
		}
	}
}

// The watch reads what it is asked for, and its process has a clock.
func TestWatchReadsAllSources(t *testing.T) {
	in, feed := io.Pipe()
	time.AfterFunc(300*time.Millisecond, func() { feed.Close() })
	var out strings.Builder
	if err := sample(context.Background(), "20", in, &out); err != nil {
		t.Fatal(err)
	}

	if err := enough(out.String(), 10, 300*time.Millisecond); err != nil {
		t.Errorf("%v of\n%s", err, out.String())
	}

	before, err := processTime(os.Getpid())
	if err != nil || before <= 0 {
		t.Errorf("CPU time of this process: %d, %v", before, err)
	}

	for _, bad := range []string{"0", "1001", "x", ""} {
		if sample(context.Background(), bad, strings.NewReader(""), io.Discard) == nil {
			t.Errorf("rate %q was taken", bad)
		}
	}
}

func TestTable(t *testing.T) {
	got := table(options{blocks: 6, seconds: 5, seed: 1}, "a machine",
		[][]float64{{.001, .002, .003, .003, .004, .005}})
	want := "| five fast sources, 10 Hz | 0.300 | 0.100 to 0.500 (96.9 %) | 6 |"
	if !strings.Contains(got,
		want) {
		t.Errorf("the table lacks %q:\n%s", want, got)
	}
}
