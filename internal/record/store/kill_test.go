package store

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// killEnv makes the test binary a writer instead of a test: its value is the store's path.
const killEnv = "CHOKEPOINT_TEST_STORE_WRITER"

func TestMain(m *testing.M) {
	if path := os.Getenv(killEnv); path != "" {
		if err := writeForever(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}

		os.Exit(1)
	}

	if path := os.Getenv(readOnlyEnv); path != "" {
		if err := readMounted(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}

		os.Exit(0)
	}

	os.Exit(m.Run())
}

// readOnlyEnv makes the test binary a reader of the store at this path, whose directory it has mounted
// read-only for itself.
const readOnlyEnv = "CHOKEPOINT_TEST_STORE_READER"

func readOnlyChild(t *testing.T, dir, path string) (string, error) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), readOnlyEnv+"="+path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}

	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	return string(out), err
}

func readMounted(path string) error {
	dir := filepath.Dir(path)
	for _, flags := range []uintptr{syscall.MS_REC | syscall.MS_PRIVATE, syscall.MS_BIND,
		syscall.MS_BIND | syscall.MS_REMOUNT | syscall.MS_RDONLY} {
		target := dir
		if flags&syscall.MS_PRIVATE != 0 {
			target = "/"
		}

		if err := syscall.Mount(dir, target, "", flags, ""); err != nil {
			return err
		}
	}

	ctx := context.Background()
	s, err := OpenReadOnly(ctx, path)
	if err != nil {
		return err
	}
	defer s.Close()
	heads, err := s.Runs(ctx)
	if err != nil {
		return err
	}

	trials, err := s.Trials(ctx, formatRun)
	fmt.Printf("%d runs, %d trials\n", len(heads), len(trials))
	return err
}

// writeForever continues the run where the last writer was killed and says each trial's index once the
// store has confirmed it.
func writeForever(path string) error {
	ctx := context.Background()
	s, err := Open(ctx, path)
	if err != nil {
		return err
	}

	done, err := s.Index(ctx, "killed")
	if err != nil {
		return err
	}

	for i := len(done) + 1; i <= len(done)+2000; i++ {
		fmt.Printf("try %d\n", i)
		if err := s.AppendTrial(ctx, sampleTrial("killed", i)); err != nil {
			return err
		}

		fmt.Printf("stored %d\n", i)
	}

	return fmt.Errorf("nobody killed the writer")
}

// TestKill9 kills a writer at 20 seeded moments, from before its store is open to the middle of a commit.
// The store must open each time, hold every confirmed trial whole, and none twice.
func TestKill9(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.db")
	s, err := Open(t.Context(), path)
	must(t, err)
	must(t, s.CreateRun(t.Context(), sampleRun("killed")))
	must(t, s.Close())
	r := rand.New(rand.NewPCG(9, 9))
	confirmed, unconfirmed := 0, 0
	for round := range 20 {
		// The first rounds die while the store is being opened, the others within a few trials' time of one
		// of them.
		after := 0
		if round >= 4 {
			after = 1 + r.IntN(3)
		}

		delay := time.Duration(r.Int64N(int64(4 * time.Millisecond)))
		confirmed = max(confirmed, killWriter(t, path, confirmed+after, after == 0, delay))
		open := Open
		if round%2 == 1 {
			open = OpenReadOnly // list and show come first after a crash, too
		}

		got := checkKilled(t, path, open, confirmed)
		if got > confirmed {
			unconfirmed++
		}

		confirmed = got
	}

	if confirmed < 16 {
		t.Errorf("only %d trials were ever stored: the kills came too early to prove anything", confirmed)
	}

	t.Logf("%d trials survived 20 kills; %d kills fell between a commit and its confirmation", confirmed,
		unconfirmed)
}

// killWriter lets a writer confirm trials up to the given one, waits the delay and kills it. It returns the
// last confirmed index.
func killWriter(t *testing.T, path string, upTo int, atOnce bool, delay time.Duration) int {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), killEnv+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	last := 0
	lines := bufio.NewScanner(out)
	for !atOnce && last < upTo && lines.Scan() {
		last = max(last, confirmation(lines.Text()))
	}

	time.Sleep(delay)
	must(t, cmd.Process.Kill())
	for lines.Scan() {
		last = max(last, confirmation(lines.Text()))
	}

	if err := cmd.Wait(); err == nil || cmd.ProcessState.Exited() {
		t.Fatalf("the writer ended by itself: %v", err)
	}

	return last
}

func confirmation(line string) int {
	text, ok := strings.CutPrefix(line, "stored ")
	if !ok {
		return 0
	}

	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}

	return n
}

// checkKilled reads the whole store and returns the number of its trials.
func checkKilled(t *testing.T, path string, open func(context.Context, string) (*Store, error),
	confirmed int) int {
	t.Helper()
	s, err := open(t.Context(), path)
	must(t, err)
	defer s.Close()
	var verdict string
	must(t, s.db.QueryRowContext(t.Context(), `PRAGMA integrity_check`).Scan(&verdict))
	if verdict != "ok" {
		t.Fatalf("integrity check: %s", verdict)
	}

	trials, err := s.Trials(t.Context(), "killed")
	must(t, err)
	n := len(trials)
	if n < confirmed || n > confirmed+1 {
		t.Fatalf("%d trials stored, %d confirmed", n, confirmed)
	}

	want := make([]record.Trial, len(trials))
	for i := range want {
		want[i] = sampleTrial("killed", i+1)
	}

	d := cmp.Diff(trials, want, same)
	if d != "" {
		t.Fatalf("stored trials differ (-got +want):\n%s", d)
	}

	return len(trials)
}
