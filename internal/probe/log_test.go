package probe

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// logOf is a kernel log of these records.
type logOf struct{ records []string }

func (l *logOf) Close() error { return nil }

func (l *logOf) next(buf []byte) (int, error) {
	if len(l.records) == 0 {
		return 0, errNoRecord
	}

	n := copy(buf, l.records[0])
	l.records = l.records[1:]
	return n, nil
}

func TestKernelLogDatesCountsAndRedacts(t *testing.T) {
	l := &logOf{records: []string{
		"3,10,1000,-;early error",
		"6,11,5000,-;eth0: address 52:54:00:12:AB:cd\n DEVICE=n3",
		"4,14,999999,-;warning from the future",
		"30,15,6000,-;a daemon speaks",
		"damaged",
	}}
	s := &kernelLogSampler{
		log:   l,
		now:   func() int64 { return 9_000_000 },
		since: 4_000_000,
		buf:   make([]byte, 8192),
	}
	dst := make([]float64, 4)
	if err := s.Sample(dst); err != nil {
		t.Fatal(err)
	}

	if d := cmp.Diff(dst, []float64{3, 2, 1, 2}); d != "" {
		t.Errorf("lines, warnings, errors, unkept (-got +want):\n%s", d)
	}

	want := []record.LogLine{
		{At: 4_000_000, Severity: 3, Text: "early error"},
		{At: 5_000_000, Severity: 6, Text: "eth0: address xx:xx:xx:xx:xx:xx"},
		{At: 9_000_000, Severity: 4, Text: "warning from the future"},
	}
	if d := cmp.Diff(s.Lines(), want); d != "" {
		t.Errorf("lines (-got +want):\n%s", d)
	}
}

func TestKernelLogIsBounded(t *testing.T) {
	l := &logOf{}
	for i := range 10 * logLinesPerSample {
		l.records = append(l.records, fmt.Sprintf("6,%d,1,-;line", i+1))
	}

	s := &kernelLogSampler{log: l, now: func() int64 { return 1 }, buf: make([]byte, 8192)}
	dst := make([]float64, 4)
	if err := s.Sample(dst); err != nil {
		t.Fatal(err)
	}

	got := len(s.Lines())
	if got != logLinesPerSample || dst[0] != 10*logLinesPerSample ||
		dst[3] != 9*logLinesPerSample {
		t.Errorf("got %d lines kept, counts %v", got, dst)
	}
}

// walk lets a foreign sampler see these processes and returns the ticks that it books to others and to the
// lab.
func walk(s *foreignSampler, seen ...pidStat) (foreign, lab uint64) {
	before := [2]uint64{s.foreign, s.lab}
	first := s.round == 0
	s.round++
	for _, p := range seen {
		s.see(p)
	}

	s.settle(first)
	return s.foreign - before[0], s.lab - before[1]
}

func TestForeignBooksEachTickOnce(t *testing.T) {
	s := &foreignSampler{own: map[int]bool{10: true}, known: map[int]*process{}}
	initial := pidStat{pid: 1, ticks: 1000, childTicks: 5000}
	shell := pidStat{pid: 5, parent: 1, ticks: 70, childTicks: 9}
	lab := pidStat{pid: 10, parent: 5, ticks: 500}
	if f, l := walk(s, initial, shell, lab); f != 0 || l != 0 {
		t.Errorf("first walk: got %d and %d, want nothing: it only notes the start", f, l)
	}

	lab.ticks += 40
	child := pidStat{pid: 11, parent: 10, start: 9, ticks: 7}
	if f, l := walk(s, initial, shell, lab, child); f != 0 || l != 47 {
		t.Errorf("lab works: got %d and %d, want 0 and 47", f, l)
	}

	// A compiler is born, works for 30, and ends after 50 more; its shell then has it all as child time.
	// Only 50 are new then.
	compiler := pidStat{pid: 6, parent: 5, start: 10, ticks: 30}
	if f, _ := walk(s, initial, shell, lab, child, compiler); f != 30 {
		t.Errorf("compiler: got %d, want 30", f)
	}

	shell.childTicks += 80
	if f, _ := walk(s, initial, shell, lab, child); f != 50 {
		t.Errorf("compiler's last moments: got %d, want 50", f)
	}

	// One that no walk ever saw counts by its parent's child time.
	shell.childTicks += 12
	if f, _ := walk(s, initial, shell, lab, child); f != 12 {
		t.Errorf("short-lived: got %d, want 12", f)
	}

	// An orphan is waited for by the first process, not by who made it.
	daemon := pidStat{pid: 7, parent: 5, start: 11, ticks: 600}
	if f, _ := walk(s, initial, shell, lab, child, daemon); f != 600 {
		t.Errorf("daemon: got %d, want 600", f)
	}

	initial.childTicks += 601 + 70 + 101
	if f, _ := walk(s, initial, lab, child); f != 1 {
		t.Errorf("shell and daemon end together: got %d, want the 1 that is new", f)
	}

	// A child of the lab that loses its parent stays the lab's.
	child.parent, child.ticks = 1, 17
	if f, l := walk(s, initial, child); f != 0 || l != 10 {
		t.Errorf("orphan of the lab: got %d and %d, want 0 and 10", f, l)
	}

	// The number of the dead lab process is given to somebody else.
	other := pidStat{pid: 11, parent: 1, start: 99, ticks: 5}
	if f, l := walk(s, initial, other); f != 5 || l != 0 {
		t.Errorf("number given again: got %d and %d, want 5 and 0", f, l)
	}
}
