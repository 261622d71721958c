package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/progress"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/userfile"
)

// TestMemoryOfTheEndOfALongRun ends a soak, whose length is a day where CHOKEPOINT_LONG is set, within the
// memory that a day may take.
func TestMemoryOfTheEndOfALongRun(t *testing.T) {
	const most = 150 << 20
	data := t.TempDir()
	if err := os.Mkdir(filepath.Join(data, "chokepoint"), 0o700); err != nil {
		t.Fatal(err)
	}

	// A child's peak begins with ours, which is forgotten here (proc(5), clear_refs).
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		t.Skipf("skip: peaks cannot be told: %v", err)
	}

	cmd := exec.Command(os.Args[0])
	cmd.Args = []string{endSoak}
	cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+data, "XDG_STATE_HOME="+data)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	peaks := regexp.MustCompile(`(?m)^storing (\d+) kB, ending (\d+) kB$`).FindSubmatch(out)
	if peaks == nil {
		t.Fatalf("got no peak:\n%s", out)
	}

	t.Logf("%s", peaks[0])
	kB, err := strconv.ParseInt(string(peaks[2]), 10, 64)
	if err != nil || kB<<10 > most {
		t.Errorf("ending: %d kB, %v, want %d at most", kB, err, most>>10)
	}
}

// endSoak is a command of this test. It stores a soak trial by trial, as a run does, and ends it.
const endSoak = "end-soak"

// runEndSoak does what a run does from its first trial on but for the measuring itself: it stores its trials,
// which it keeps in memory too, makes sure of them, derives the document and writes the report.
func runEndSoak() error {
	ctx := context.Background()
	d := FindDirs(os.Getenv, os.Geteuid())
	windows := 3
	if apart.Wanted() {
		windows = 24 * 12
	}

	run := labtest.Soak(windows)
	run.ID, run.Started = "20260108-030405-cccc", run.Started.Add(-48*time.Hour)
	place := filepath.Join(d.Data, "ended.html")
	st, err := store.Open(ctx, d.StoreFile())
	if err != nil {
		return err
	}

	if err := st.CreateRun(ctx, run); err != nil {
		return err
	}

	keeper := &store.Keeper{Store: st, Run: run.ID}
	for t := range labtest.Soaked(run, windows, "") {
		if err := keeper.AppendTrial(ctx, t); err != nil {
			return err
		}
	}

	out, err := userfile.Create(place)
	if err != nil {
		return err
	}

	x := presenting(d, run, st, keeper, out, place)
	x.began = true
	x.sink = progress.Quiet(os.Stderr)
	stored := peakOf()
	debug.FreeOSMemory() // of what made the trials up
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		return err
	}

	err = errors.Join(x.end(ctx, nil, nil), x.shut())
	fmt.Printf("storing %s kB, ending %s kB\n", stored, peakOf())
	return err
}

// peakOf returns this process's largest resident size since it was last cleared, in kB.
func peakOf() string {
	status, _ := os.ReadFile("/proc/self/status")
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	return strings.Fields(after)[0]
}

func endSoakMain() {
	if err := runEndSoak(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
