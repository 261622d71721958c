package probe

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// aThread writes what /proc tells of a thread; a process is its own first one.
func aThread(t *testing.T, proc string, pid, tid, parent, ticks int, comm string) {
	t.Helper()
	stat := fmt.Sprintf("%d (%s) S %d 1 1 0 -1 4194304 0 0 0 0 %d 0 0 0 20 0 1 0 77 0 0", tid, comm, parent,
		ticks)
	dirs := []string{filepath.Join(proc, fmt.Sprint(pid), "task", fmt.Sprint(tid))}
	if pid == tid {
		dirs = append(dirs, filepath.Join(proc, fmt.Sprint(pid)))
	}

	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}

		for name, text := range map[string]string{"stat": stat, "comm": comm + "\n",
			"cmdline": "qemu-system-x86_64\x00-name\x00router,debug-threads=on\x00"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestGuests(t *testing.T) {
	proc := t.TempDir()
	aThread(t, proc, 10, 10, 1, 5, "chokepoint")
	aThread(t, proc, 11, 11, 10, 5, "chokepoint")
	aThread(t, proc, 50, 50, 1, 900, "qemu-system-x86") // somebody else's
	if s, err := (Root{Proc: proc}).openGuests(Options{Own: []int{10}}); err == nil {
		t.Fatalf("no guest of ours: got columns %v, want none", s.Columns())
	}

	aThread(t, proc, 12, 12, 11, 3, "qemu-system-x86")
	aThread(t, proc, 12, 13, 11, 70, "CPU 0/TCG")
	aThread(t, proc, 12, 14, 11, 40, "CPU 1/TCG")
	aThread(t, proc, 12, 15, 11, 9, "worker")
	s, err := (Root{Proc: proc}).openGuests(Options{Own: []int{10}})
	if err != nil {
		t.Fatal(err)
	}

	want := []string{"router/main/guest_cpu_ns", "router/vcpu0/guest_cpu_ns", "router/vcpu1/guest_cpu_ns"}
	if diff := cmp.Diff(want, s.Columns()); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}

	got := make([]float64, 3)
	if err := s.Sample(got); err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff([]float64{3 * nsPerTick, 70 * nsPerTick, 40 * nsPerTick}, got); diff != "" {
		t.Errorf("sample (-want +got):\n%s", diff)
	}

	if err := os.RemoveAll(filepath.Join(proc, "12")); err != nil {
		t.Fatal(err)
	}

	if err := s.Sample(got); !errors.Is(err, ErrColumns) || len(s.Columns()) != 0 {
		t.Errorf("after the guest's end: got %v and %v, want changed columns, none", err, s.Columns())
	}

	if err := s.Sample(nil); err != nil {
		t.Errorf("while no guest runs: got %v, want no error", err)
	}

	aThread(t, proc, 20, 20, 11, 1, "qemu-system-x86")
	if err := s.Sample(nil); !errors.Is(err, ErrColumns) || len(s.Columns()) != 1 {
		t.Errorf("after the fresh guest's start: got %v and %v, want changed columns, its own", err,
			s.Columns())
	}
}

func FuzzGuestNames(f *testing.F) {
	f.Add("CPU 0/TCG", []byte("qemu\x00-name\x00router,debug-threads=on\x00"))
	f.Fuzz(func(t *testing.T, comm string, line []byte) {
		threadLabel(comm)
		guestName(line)
	})
}

// TestThrottles: a thread that is moved from cgroup to cgroup, each of which counts from zero, never was held
// back for less than before.
func TestThrottles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "cpu.stat")
	of := &throttles{file: func() string { return file }}
	for _, step := range []struct {
		stat string
		want float64
	}{
		{"nr_throttled 1\nthrottled_time 500\n", 500}, {"throttled_time 900\n", 900},
		{"throttled_time 100\n", 1000}, {"throttled_usec 1\n", 1900}, {"throttled_time 0\n", 1900},
	} {
		if err := os.WriteFile(file, []byte(step.stat), 0o600); err != nil {
			t.Fatal(err)
		}

		got := of.read()
		if got != step.want {
			t.Errorf("%q: got %v, want %v", step.stat, got, step.want)
		}
	}

	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}

	if got := of.read(); got == got {
		t.Errorf("without a cgroup: got %v, want none", got)
	}
}
