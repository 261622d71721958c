package lab

import (
	"io/fs"
	"os"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

// TestSweepSparesALabThatIsStarting: its directory is there, and nothing says yet that it is up.
func TestSweepSparesALabThatIsStarting(t *testing.T) {
	labs := t.TempDir()
	held, err := makeDir(labs, labs+"/x")
	must(t, err)
	if got, err := sweep(labs); err != nil || len(got) > 0 {
		t.Errorf("sweep while the lab starts: got %v, %v, want nothing removed", got, err)
	}

	if _, err := os.Stat(labs + "/x"); err != nil {
		t.Errorf("its directory: %v", err)
	}

	must(t, held.Close())
	if got, err := sweep(labs); err != nil || len(got) != 1 {
		t.Errorf("sweep after the starter's death: got %v, %v, want the directory removed", got, err)
	}

	_, err = os.Stat(labs + "/x")
	expect.Error(t, "its directory", err, fs.ErrNotExist)
}
