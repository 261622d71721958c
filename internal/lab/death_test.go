package lab_test

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
)

// controller starts a part of the play and waits until it is where it wants to be. It is killed, at the
// latest, with the test.
func controller(t *testing.T, part, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), partMark+"="+part, partDir+"="+dir)
	var talk strings.Builder
	cmd.Stderr = &talk
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { kill(t, cmd) })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		io.Copy(io.Discard, out)
		cmd.Wait()
		labtest.Refused(t, errors.New(talk.String()))
		t.Fatalf("%s: %v: %s", part, err, talk.String())
	}

	if line != "ready\n" {
		t.Fatalf("%s: got %q, want ready", part, line)
	}

	return cmd
}

func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if cmd.ProcessState != nil {
		return
	}

	must(t, cmd.Process.Kill())
	cmd.Wait() // says that it was killed
}

func alive(pids []int) []int {
	return slices.DeleteFunc(slices.Clone(pids), func(pid int) bool {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		return err != nil || strings.Contains(string(b), ") Z ")
	})
}

// TestKilledControllerTakesItsLabAlong: the namespaces end with the controller, and Restore clears away the
// rest.
func TestKilledControllerTakesItsLabAlong(t *testing.T) {
	dir := t.TempDir()
	leavesNothing(t, func() {
		cmd := controller(t, "owner", dir)
		pids := labtest.Descendants(cmd.Process.Pid)
		if len(pids) < 5 {
			t.Errorf("processes of the lab: got %v, want a holder, three anchors and an agent", pids)
		}

		kill(t, cmd)
		died := time.Now()
		for len(alive(pids)) > 0 && time.Since(died) < time.Second {
			time.Sleep(time.Millisecond)
		}

		left := alive(pids)
		if len(left) > 0 {
			t.Errorf("one second after the controller was killed: processes %v live, want none", left)
		}

		t.Logf("gone %s after the controller", time.Since(died))
		got, err := lab.Restore(labtest.Context(t), dir+"/journal", "", nil, dir+"/labs")
		if err != nil {
			t.Errorf("restore: %v", err)
		}

		if len(got.Living) > 0 || !slices.Contains(got.Undone, "took down lab owned") {
			t.Errorf("restored: got %+v, want the lab among what is undone and no living owner", got)
		}
	})
	wantEmpty(t, dir+"/labs")
	wantEmpty(t, dir+"/journal")
}

// TestKilledControllerTakesAGuestAlongThatBoots: a guest that would boot for minutes ends with its
// controller.
func TestKilledControllerTakesAGuestAlongThatBoots(t *testing.T) {
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		t.Skip("skip: no QEMU here")
	}

	if tun, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0); err != nil {
		t.Skipf("skip: no TUN device for this user: %v", err)
	} else {
		tun.Close()
	}

	dir := t.TempDir()
	up(t, lab.Local{ID: "probe", Dir: dir + "/probe"}).Close(labtest.Context(t))
	sector := make([]byte, 512)
	copy(sector, "\xeb\xfe") // jumps to itself
	copy(sector[510:], "\x55\xaa")
	must(t, os.WriteFile(dir+"/disk", sector, 0o600))
	cmd := controller(t, "booting", dir)
	isQEMU := func(pid int) bool {
		b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
		return strings.HasPrefix(string(b), "qemu-system")
	}
	var pids []int
	for began := time.Now(); !slices.ContainsFunc(pids, isQEMU); pids = labtest.Descendants(cmd.Process.Pid) {
		if time.Since(began) > 10*time.Second {
			t.Fatalf("processes of a lab that boots: got %v, want QEMU among them", pids)
		}

		time.Sleep(5 * time.Millisecond)
	}

	kill(t, cmd)
	died := time.Now()
	for len(alive(pids)) > 0 && time.Since(died) < 5*time.Second {
		time.Sleep(time.Millisecond)
	}

	left := alive(pids)
	if len(left) > 0 {
		t.Errorf("5 s after the controller was killed: processes %v live, want none", left)
	}

	t.Logf("gone %s after the controller", time.Since(died))
}

// TestRestorePutsBackWhatADeadGuestLeft: the guest of a detached lab and its agent die in the same moment,
// so that nobody undoes the setting.
func TestRestorePutsBackWhatADeadGuestLeft(t *testing.T) {
	dir := t.TempDir()
	up(t, lab.Local{ID: "kept", Dir: dir + "/labs", Detached: true})
	kept := onlyLab(t, dir+"/labs")
	t.Cleanup(func() {
		must(t, lab.Down(dir+"/labs", kept))
	})
	watcher := attach(t, dir+"/labs", nil)
	t.Cleanup(func() { watcher.Close(labtest.Context(t)) })
	length := func() string { return queueLength(t, watcher) }
	before := length()
	own := labtest.Descendants(kept.Pid)
	cmd := controller(t, "guest", dir)
	for _, pid := range labtest.Descendants(kept.Pid) {
		if !slices.Contains(own, pid) { // the guest's agent
			must(t, syscall.Kill(pid, syscall.SIGKILL))
		}
	}

	if got := length(); got != aSetting.Value || got == before {
		t.Fatalf("with the guest's agent killed: queue length %s, want the guest's %s", got, aSetting.Value)
	}

	restored, err := lab.Restore(labtest.Context(t), dir+"/journal", "", nil, dir+"/labs")
	if err != nil || len(restored.Undone) > 0 || !slices.Equal(restored.Living, []string{"guest"}) {
		t.Errorf("restore while the guest lives: got %+v, %v, want nothing undone", restored, err)
	}

	if got := length(); got != aSetting.Value {
		t.Errorf("restore while the guest lives: queue length %s, want it untouched", got)
	}

	kill(t, cmd)
	restoreBesideAnotherRun(t, dir)
	if got := length(); got != aSetting.Value {
		t.Errorf("restore while another run has the lab: queue length %s, want it untouched", got)
	}

	restored, err = lab.Restore(labtest.Context(t), dir+"/journal", "", nil, dir+"/labs")
	if err != nil || len(restored.Undone) != 1 || !strings.HasPrefix(restored.Undone[0],
		"put back txqueuelen="+before) {
		t.Errorf("restore after the guest's death: got %+v, %v, want its one setting put back", restored, err)
	}

	if got := length(); got != before {
		t.Errorf("after restore: queue length %s, want %s", got, before)
	}

	if !kept.Alive() {
		t.Error("after restore: the detached lab is gone, want it untouched")
	}

	wantEmpty(t, dir+"/journal")
}

// restoreBesideAnotherRun: what is to be put back is in a lab that a campaign is using.
func restoreBesideAnotherRun(t *testing.T, dir string) {
	t.Helper()
	j := newJournal(t, t.TempDir(), "another")
	another := attach(t, dir+"/labs", j)
	restored, err := lab.Restore(labtest.Context(t), dir+"/journal", "", nil, dir+"/labs")
	if err != nil || len(restored.Undone) > 0 || !slices.Equal(restored.Held, []string{"kept"}) {
		t.Errorf("restore while another run has the lab: got %+v, %v, want the lab held and nothing undone",
			restored, err)
	}

	wantClosed(t, another, j)
}

// TestRestoreLeavesTheLivingAlone: the owner of this lab is this process.
func TestRestoreLeavesTheLivingAlone(t *testing.T) {
	dir := t.TempDir()
	l, j := upForwardIn(t, dir)
	restored, err := lab.Restore(labtest.Context(t), dir+"/journal", "", nil, dir+"/labs")
	if err != nil || len(restored.Undone) > 0 || !slices.Equal(restored.Living, []string{"me"}) {
		t.Errorf("restore: got %+v, %v, want nothing undone and me living", restored, err)
	}

	labtest.WantReach(t, l, 0, 4, 0, 1500)
	wantClosed(t, l, j)
	wantEmpty(t, dir+"/labs")
}

// TestRestoreBesideLabsThatStart restores again and again while labs that stay come up.
func TestRestoreBesideLabsThatStart(t *testing.T) {
	dir := t.TempDir()
	stop := make(chan struct{})
	restored := make(chan error)
	go func() {
		var err error
		for {
			select {
			case <-stop:
				restored <- err
				return
			default:
				_, again := lab.Restore(t.Context(), dir+"/journal", "", nil, dir+"/labs")
				err = errors.Join(err, again)
			}
		}
	}()
	for i := range 8 {
		id := "l" + strconv.Itoa(i)
		_, err := lab.Local{
			ID:       id,
			Topology: forward(t),
			Dir:      dir + "/labs",
			Detached: true,
			Parts:    registry.LabParts(),
		}.Up(labtest.Context(t))
		if err != nil {
			close(stop)
			<-restored
			labtest.Refused(t, err)
			t.Fatal(err)
		}
	}

	close(stop)
	if err := <-restored; err != nil {
		t.Errorf("restore: %v", err)
	}

	infos, err := lab.List(dir + "/labs")
	if err != nil || len(infos) != 8 {
		t.Errorf("labs: got %d, %v, want eight", len(infos), err)
	}

	for _, i := range infos {
		must(t, lab.Down(dir+"/labs", i))
	}

	wantEmpty(t, dir+"/labs")
}

// TestAsAnOrdinaryUser runs the tests of a real lab once more, as nobody, if they run as root.
func TestAsAnOrdinaryUser(t *testing.T) {
	apart.Long(t, "takes longer than a package has") // the gate's stage tests-as-user runs what it runs
	if os.Geteuid() != 0 {
		t.Skip("skip: these tests already run as an ordinary user")
	}

	const nobody = 65534
	dir, err := os.MkdirTemp("", "chokepoint-lab-test")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	program := filepath.Join(dir, "lab.test")
	b, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(program, b, 0o755)
	}

	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), os.Mkdir(dir+"/tmp", 0o700), os.Chown(dir+"/tmp", nobody,
			nobody))
	}

	must(t, err)
	cmd := exec.Command(program, "-test.timeout=60s", "-test.v",
		"-test.run=^(TestUp.*|TestTwoLabs.*|TestDetached.*|TestKilled.*|TestRestore.*)$")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TMPDIR="+dir+"/tmp", "HOME="+dir+"/tmp")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		var wrong []string // stands last, where a long message is cut
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "_test.go:") || strings.Contains(line, "--- FAIL") {
				wrong = append(wrong, line)
			}
		}

		t.Errorf("as nobody: %v\n%s\nof which:\n%s", err, out, strings.Join(wrong, ""))
	}

	if strings.Contains(string(out), "skip: this kernel refuses user namespaces") {
		t.Skip("skip: this kernel refuses user namespaces to ordinary users")
	}

	if !strings.Contains(string(out), "--- PASS: TestKilledControllerTakesItsLabAlong") {
		t.Errorf("as nobody: got\n%s\nwant the tests to have run", out)
	}
}
