package probe

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// readCalls are the read calls that this thread has made, by the kernel's count (proc_pid_io(5), syscr).
func readCalls(t *testing.T) float64 {
	t.Helper()
	b, err := os.ReadFile("/proc/thread-self/io")
	if err != nil {
		t.Skipf("skip: this kernel counts no calls: %v", err)
	}

	got := []float64{nan}
	if err := parsePairs(b, map[string]int{"syscr": 0}, got); err != nil {
		t.Fatal(err)
	}

	return got[0]
}

// A short file of the kernel is read by one call, not by another one to hear that it has ended.
func TestAShortFileTakesOneCall(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, path := range []string{"/proc/softirqs", "/proc/uptime", "/proc/net/softnet_stat"} {
		f, err := openFile(path, "")
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() { f.Close() })
		const rounds = 50
		b, err := f.read()
		if err != nil || len(b) == 0 {
			t.Fatalf("read %s: got %d bytes, %v", path, len(b), err)
		}

		if len(b) >= shortRead {
			continue // a machine of many cores
		}

		none := readCalls(t)
		own := readCalls(t) - none // of counting
		before := readCalls(t)
		for range rounds {
			f.read()
		}

		got := readCalls(t) - before - own
		if got != rounds {
			t.Errorf("%d reads of %s: got %v calls, want one each", rounds, path, got)
		}
	}
}

// What is read is the whole file, whatever its length and however the kernel cuts it.
func TestAFileIsReadWhole(t *testing.T) {
	paths := []string{"/proc/filesystems", "/proc/devices", "/proc/iomem"}
	for _, n := range []int{0, 1, 1023, 1024, 1025, 2047, 2048, 2049, 4096, 10000} {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, bytes.Repeat([]byte("x"), n), 0o644); err != nil {
			t.Fatal(err)
		}

		paths = append(paths, path)
	}

	for _, path := range paths {
		want, err := os.ReadFile(path)
		if err != nil {
			continue // not on this machine
		}

		f, err := openFile(path, "")
		if err != nil {
			t.Fatal(err)
		}

		for range 2 {
			if got, err := f.read(); err != nil || !bytes.Equal(got, want) {
				t.Errorf("read %s: got %d bytes, %v, want %d", path, len(got), err, len(want))
			}
		}

		f.Close()
	}
}

// A dump in many datagrams is whole, and begins with a small buffer.
func TestADumpIsWhole(t *testing.T) {
	const getLink, newLink, linkHeader = 18, 16, 16
	list, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}

	s, err := openDump(netlinkRoute, getLink, linkHeader, "links")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if len(s.buf) != minDatagram {
		t.Errorf("buffer at first: got %d bytes, want %d", len(s.buf), minDatagram)
	}

	for range 3 {
		links := 0
		if err := s.dump(func(kind uint16, _ []byte) error {
			if kind == newLink {
				links++
			}
			return nil
		}); err != nil || links != len(list) {
			t.Errorf("links: got %d, %v, want %d", links, err, len(list))
		}
	}
}
