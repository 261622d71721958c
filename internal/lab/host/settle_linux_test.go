package host

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

func TestAbsolutePath(t *testing.T) {
	for path, want := range map[string]string{
		"/usr/bin:/bin": "/usr/bin:/bin", ".:/bin:bin::/sbin:": "/bin:/sbin", "": usualPath, ".": usualPath,
	} {
		expect.Same(t, fmt.Sprintf("path %q", path), want, absolute(path))
	}
}

// settling is set where this program is to settle, and then to fail.
const settling = "CHOKEPOINT_TEST_SETTLE"

// TestSettleAborts: a fault of the program does not end it with the code of a wrong command line.
func TestSettleAborts(t *testing.T) {
	if os.Getenv(settling) != "" {
		Settle()
		go panic("a fault")
		time.Sleep(time.Minute)
	}

	again := exec.Command(os.Args[0], "-test.run=^TestSettleAborts$")
	again.Env = append(os.Environ(), settling+"=1")
	err := again.Run()
	failed, ok := err.(*exec.ExitError)
	if !ok || failed.Sys().(syscall.WaitStatus).Signal() != syscall.SIGABRT {
		t.Errorf("a fault: got %v, want that SIGABRT ended it", err)
	}
}

// bounding is set where this program is to start another and to be killed.
const bounding = "CHOKEPOINT_TEST_BOUND"

// TestBound: a program that is bound to this process ends with it, also if it is killed.
func TestBound(t *testing.T) {
	if os.Getenv(bounding) != "" {
		p, err := Local().Start(t.Context(), Command{Path: "sleep", Args: []string{"1000"}, Bound: true})
		if err != nil {
			t.Fatal(err)
		}

		fmt.Println(p.(*localProcess).cmd.Process.Pid)
		time.Sleep(time.Minute)
	}

	again := exec.Command(os.Args[0], "-test.run=^TestBound$")
	again.Env = append(os.Environ(), bounding+"=1")
	out, err := again.StdoutPipe()
	if err == nil {
		err = again.Start()
	}

	if err != nil {
		t.Fatal(err)
	}

	line, err := bufio.NewReader(out).ReadString('\n')
	pid, wrong := strconv.Atoi(strings.TrimSpace(line))
	if err := errors.Join(err, wrong, again.Process.Kill()); err != nil {
		t.Fatal(err)
	}

	_ = again.Wait() // it was killed
	for range 100 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}

		time.Sleep(20 * time.Millisecond)
	}

	t.Errorf("process %d lives on", pid)
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

// TestSettle: what the caller has set is not inherited.
func TestSettle(t *testing.T) {
	if !apart.Process(t) {
		return
	}

	var param struct{ priority int32 }
	const batch = 3 // an ordinary user may choose it, too
	if _, _, errno := unix.RawSyscall(unix.SYS_SCHED_SETSCHEDULER, 0, batch,
		uintptr(unsafe.Pointer(&param))); errno != 0 {
		t.Fatal(errno)
	}

	var hard unix.Rlimit
	unix.Getrlimit(unix.RLIMIT_CORE, &hard)
	limit := unix.Rlimit{Cur: 1 << 40, Max: unix.RLIM_INFINITY}
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &limit))
	for range 50 { // threads that make threads, of the class that this one has
		go func() { runtime.LockOSThread(); time.Sleep(time.Minute) }()
	}

	Settle()
	threads, _ := os.ReadDir("/proc/self/task")
	for _, thread := range threads {
		tid, _ := strconv.Atoi(thread.Name())
		class, _, errno := unix.RawSyscall(unix.SYS_SCHED_GETSCHEDULER, uintptr(tid), 0,
			0)
		if class != 0 && errno == 0 {
			t.Errorf("scheduling class of thread %d: got %d, want 0", tid, class)
		}
	}

	if class, _, _ := unix.RawSyscall(unix.SYS_SCHED_GETSCHEDULER, 0, 0, 0); class != 0 {
		t.Errorf("scheduling class: got %d, want 0", class)
	}

	if unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); limit.Cur != limit.Max {
		t.Errorf("limit of files: got %d, want %d", limit.Cur, limit.Max)
	}

	// A pipe is given nothing at 1, and at 0 all; who had a hard limit of 0 cannot raise it.
	if unix.Getrlimit(unix.RLIMIT_CORE, &limit); limit.Max != 1 && hard.Max > 0 {
		t.Errorf("limit of core files: got %+v, want 1", limit)
	}
}
