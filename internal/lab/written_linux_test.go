package lab

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// TestRoomToWrite: a guest gets a quarter of the free space, 4 GiB at most; with too little nothing boots.
func TestRoomToWrite(t *testing.T) {
	for free, want := range map[uint64]uint64{1 << 30: 256 << 20, 8 << 30: 2 << 30, 1 << 40: 4 << 30} {
		if got, err := roomToWrite("/x", free); err != nil || got != want {
			t.Errorf("%d bytes free: got %d, %v, want %d", free, got, err, want)
		}
	}

	_, err := roomToWrite("/x", 700<<20)
	const want = "/x has 700 MiB free, what the guest writes to its disk needs 1024"
	if err == nil || err.Error() != want || !strings.Contains(check.HintOf(err), "TMPDIR") {
		t.Errorf("700 MiB free: got %v with hint %q, want %s", err, check.HintOf(err), want)
	}
}

// TestMaxFile: a process cannot write more to a temporary file than it may, and it is known why.
func TestMaxFile(t *testing.T) {
	const most = 32 << 20
	file := filepath.Join(t.TempDir(), "written")
	for blocks, want := range map[int]string{8: "<nil>", 60: "it wrote more than 16 MiB to its disk"} {
		script := fmt.Sprintf("trap '' XFSZ; exec 3>%[1]s; rm %[1]s; read x; dd if=/dev/zero "+
			"bs=1M count=%[2]d of=/dev/fd/3 conv=notrunc 2>/dev/null; echo; read x; wc -c /dev/fd/3", file, blocks)
		c, err := host.Spawn{Program: "sh", Args: []string{"-c", script}, MaxFile: most}.Start()
		if err == nil {
			_, err = c.Write([]byte("\n"))
		}

		if err == nil {
			_, err = c.Read(make([]byte, 1)) // it has written
		}

		if err != nil {
			t.Fatal(err)
		}

		if got := fmt.Sprint(errWrote(c.Pid(), most)); got != want {
			t.Errorf("%d MiB: got %s, want %s", blocks, got, want)
		}

		if _, err := c.Write([]byte("\n")); err != nil {
			t.Fatal(err)
		}

		var size int
		if _, err := fmt.Fscan(c, &size); err != nil || size != min(blocks<<20, most) {
			t.Errorf("%d MiB: got a file of %d bytes, %v", blocks, size, err)
		}

		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
