package traffic

import (
	"os"
	"testing"
)

func TestCPUOf(t *testing.T) {
	const line = "42 (a name) with) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 " +
		"27 28 29 30 31 32 33 34 17 6 7"
	// Field 39 is the 36th behind the state.
	if got := cpuOf(line); got != 6 {
		t.Errorf("got core %d, want 6", got)
	}

	for _, bad := range []string{"", "1 (x) S 2", ") S" +
		" x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x"} {
		got := cpuOf(bad)
		if got != -1 {
			t.Errorf("%q: got core %d, want -1", bad, got)
		}
	}

	if got := lastCPU(os.Getpid()); got < 0 {
		t.Errorf("of this thread: got %d", got)
	}
}
