package knob

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

const busyRole = "CHOKEPOINT_TEST_BUSY"

// TestMain lets the test program be the process whose threads are limited.
func TestMain(m *testing.M) {
	if os.Getenv(busyRole) != "" {
		runtime.LockOSThread() // the first thread keeps the process' name
		busy()
	}

	os.Exit(m.Run())
}

// busy keeps a guest's console open, and has two threads that are named as QEMU names those of a guest's
// vCPUs, and never rest.
func busy() {
	console, err := os.Create(strings.TrimPrefix(os.Args[len(os.Args)-1], "path="))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}

	ready := make(chan struct{})
	for i := range 2 {
		go func() {
			runtime.LockOSThread()
			name := []byte(fmt.Sprintf("CPU %d/TCG\x00", i))
			if err := unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name[0])), 0, 0, 0); err != nil {
				fmt.Println(err)
				os.Exit(1)
			}

			ready <- struct{}{}
			for spins := 0; ; spins++ {
			}
		}()
		<-ready
	}

	fmt.Println("ready")
	os.Stdin.Read(make([]byte, 1)) // until the test ends
	console.Close()
	os.Exit(0)
}

// TestCPUQuotaHoldsThreads: threads that would take a core each get what the quota says, with the cgroups
// of this machine, of either version; then all is as before.
func TestCPUQuotaHoldsThreads(t *testing.T) {
	exe, err := os.Executable()
	must(t, err)
	dir := t.TempDir()
	name := filepath.Join(dir, "qemu-busy")
	must(t, os.Symlink(exe, name))
	end, hold, err := os.Pipe()
	must(t, err)
	defer hold.Close()
	p, err := host.Local().Start(t.Context(), host.Command{
		Path: name,
		Args: []string{"-name", "router",
			"path=" + dir + "/router.console"},
		Env:   []string{busyRole + "=1", "GOMAXPROCS=4"},
		Stdin: end,
	})
	must(t, err)
	end.Close()
	defer p.Wait()
	defer p.Kill()
	if line, err := bufio.NewReader(p.Stdout()).ReadString('\n'); line != "ready\n" {
		t.Fatalf("busy process: got %q, %v", line, err)
	}

	at := Place{Node: "host", Lab: dir}
	k := CPUQuota()
	a := k.Check(t.Context(), at, "10%")
	if a.State != check.Yes {
		t.Skip("skip: no cgroup here can limit a CPU: " + a.Reason)
	}

	before := cgroupsOf(t, dir)
	for _, tt := range []struct {
		level State
		most  float64
	}{{"25%", 1.2}, {"3%", 0.3}} {
		must(t, k.Apply(t.Context(), at, tt.level))
		if got, err := k.Read(t.Context(), at, ""); err != nil || !k.Same(tt.level, got) {
			t.Errorf("read back: got %q, %v, want %s", got, err, tt.level)
		}

		began := time.Now()
		used := threadTime(t, dir)
		time.Sleep(600 * time.Millisecond)
		share := float64(threadTime(t, dir)-used) / float64(time.Since(began))
		t.Logf("%s: both took %.1f %% of a core", tt.level, 100*share)
		if share > tt.most || share == 0 {
			t.Errorf("%s: both took %.1f %% of a core, want more than nothing and at most %.0f %%", tt.level,
				100*share, 100*tt.most)
		}
	}

	must(t, k.Apply(t.Context(), at, "off"))
	if got, err := k.Read(t.Context(), at, ""); err != nil || got != "off" {
		t.Errorf("read at the end: got %q, %v, want off", got, err)
	}

	if got := cgroupsOf(t, dir); got != before {
		t.Errorf("cgroups at the end:\n%swant\n%s", got, before)
	}

	must(t, k.Apply(t.Context(), at, "25%"))
	p.Kill() // its cgroups can still be removed
	if err := k.Apply(t.Context(), at, "off"); err != nil {
		t.Error(err)
	}

	left, _ := filepath.Glob("/sys/fs/cgroup/*/chokepoint-" + filepath.Base(dir) + "*")
	more, _ := filepath.Glob("/sys/fs/cgroup/chokepoint-" + filepath.Base(dir) + "*")
	if left = append(left, more...); len(left) > 0 {
		t.Errorf("left behind: %v, want nothing", left)
	}
}

// threads are the directories in /proc of the vCPUs' threads.
func threads(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	all, err := filepath.Glob("/proc/[0-9]*/task/*/comm")
	must(t, err)
	for _, f := range all {
		comm, _ := os.ReadFile(f)
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "cmdline"))
		if strings.HasPrefix(string(comm), "CPU ") && strings.Contains(string(line), dir) {
			out = append(out, filepath.Dir(f))
		}
	}

	if len(out) != 2 {
		t.Fatalf("threads named as a guest's vCPUs: got %v, want 2", out)
	}

	return out
}

func cgroupsOf(t *testing.T, dir string) string {
	var all strings.Builder
	for _, d := range threads(t, dir) {
		text, err := os.ReadFile(filepath.Join(d, "cgroup"))
		must(t, err)
		all.Write(text)
	}
	return all.String()
}

// threadTime returns what both threads have run, from their schedstat.
func threadTime(t *testing.T, dir string) time.Duration {
	var sum int64
	for _, d := range threads(t, dir) {
		text, err := os.ReadFile(filepath.Join(d, "schedstat"))
		f := strings.Fields(string(text))
		if err != nil || len(f) == 0 {
			t.Fatalf("read %s/schedstat: %q, %v", d, text, err)
		}

		ns, err := strconv.ParseInt(f[0], 10, 64)
		must(t, err)
		sum += ns
	}
	return time.Duration(sum)
}

func TestSpellPercent(t *testing.T) {
	got := spellPercent(kernel.Quota(333))
	if got != "3.33%" {
		t.Errorf("spell 333: got %s, want 3.33%%", got)
	}
}
