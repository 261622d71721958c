package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// aLab and turned are changes as they are written.
var aLab = Entry{Kind: KindLab, Lab: "a", Pid: 7, Born: 9}

func turned(knob, before string) Entry {
	return Entry{Kind: KindSetting, Lab: "a", Node: "router", Knob: knob, Place: []byte(`{}`), Before: before}
}

func begin(t *testing.T, dir, owner string) *Journal {
	t.Helper()
	j, err := Create(dir, owner, "")
	must(t, err)
	t.Cleanup(func() { j.file.f.Close() })
	return j
}

func add(t *testing.T, j *Journal, e Entry) int {
	t.Helper()
	seq, err := j.Add(e)
	must(t, err)
	return seq
}

func TestOnlyUndoneChangesOfDeadOwnersAreStale(t *testing.T) {
	dir := t.TempDir()
	j := begin(t, dir, "run-1")
	first := add(t, j, aLab)
	second := add(t, j, turned("queue", "noqueue"))
	third := add(t, j, turned("nat", "off"))
	must(t, j.Done(second))
	stale, living, err := FindStale(dir, nil)
	if err != nil || len(stale) != 0 || len(living) != 1 || !Lives(dir, "run-1") || Lives(dir, "run-2") {
		t.Fatalf("while the owner lives: %d stale, living %v, %v", len(stale), living, err)
	}

	_, err = Create(dir, "run-1", "")
	expect.Error(t, "create it again", err, fs.ErrExist)
	// The owner dies in the middle of a write.
	j.file.f.WriteAt([]byte(`01234567 {"entry":{"seq":4,"ki`), j.file.size)
	j.file.f.Close()
	stale, living, err = FindStale(dir, nil)
	if err != nil || len(stale) != 1 || len(living) != 0 || Lives(dir, "run-1") {
		t.Fatalf("after its death: %d stale, living %v, %v", len(stale), living, err)
	}

	got := stale[0].Entries
	if len(got) != 2 || got[0].Seq != third || got[1].Seq != first || stale[0].Rebooted {
		t.Errorf("entries %+v, want the third, then the first", got)
	}

	// What one attempt has undone the next one does not undo again.
	must(t, errors.Join(stale[0].Done(third), stale[0].Release()))
	stale, _, err = FindStale(dir, nil)
	if err != nil || len(stale) != 1 || len(stale[0].Entries) != 1 || stale[0].Entries[0].Seq != first {
		t.Fatalf("after half of it: got %+v, %v, want the first", stale, err)
	}

	must(t, stale[0].Remove())
	left, _ := os.ReadDir(dir)
	if len(left) != 0 {
		t.Errorf("%d files left", len(left))
	}
}

// TestMachinesAreNotedAsDoneWithTwice: by an owner who has left something there, and by who restores that.
func TestMachinesAreNotedAsDoneWithTwice(t *testing.T) {
	dir := t.TempDir()
	j := begin(t, dir, "run-1")
	machines := add(t, j, Entry{Kind: KindMachines, Lab: "a", Machines: &record.Machines{}})
	setting := add(t, j, turned("nat", "off"))
	add(t, j, Entry{Kind: KindLab, Lab: "b"})
	must(t, j.Done(machines))
	j.file.f.Close()
	for attempt, want := range [][]int{{3, setting, machines}, {3}, {3}} {
		stale, _, err := FindStale(dir, nil)
		if err != nil || len(stale) != 1 {
			t.Fatalf("attempt %d: got %d stale, %v, want one", attempt, len(stale), err)
		}

		var got []int
		for _, e := range stale[0].Entries {
			got = append(got, e.Seq)
		}

		if !slices.Equal(got, want) {
			t.Errorf("attempt %d: got changes %v, want %v", attempt, got, want)
		}

		if attempt == 0 {
			err = errors.Join(stale[0].Done(setting), stale[0].Done(machines))
		}

		must(t, errors.Join(err, stale[0].Release()))
	}
}

func TestCloseRemovesOnlyACleanJournal(t *testing.T) {
	dir := t.TempDir()
	j := begin(t, dir, "run-2")
	add(t, j, aLab)
	if err := j.Close(); err == nil {
		t.Error("Close with an open change: nil, want an error")
	}

	if _, err := os.Stat(filepath.Join(dir, "run-2.jsonl")); err != nil {
		t.Errorf("journal with an open change is gone: %v", err)
	}

	os.Remove(filepath.Join(dir, "run-2.jsonl"))
	j = begin(t, dir, "run-2")
	if err := errors.Join(j.Done(add(t, j, aLab)), j.Close()); err != nil {
		t.Errorf("Close of a clean journal: %v", err)
	}
}

// signed is a line with its checksum.
func signed(text string) string {
	return fmt.Sprintf("%08x %s\n", crc32.ChecksumIEEE([]byte(text)), text)
}

// TestHostileJournals: whatever is not exactly what this program writes is an error, stays as it is, and does
// not keep others from being read.
func TestHostileJournals(t *testing.T) {
	h := headOf("bad", "")
	head := signed(fmt.Sprintf(`{"head":{"journal":2,"owner":"bad","host":%q,"boot":%q}}`, h.Host, h.Boot))
	lab := `{"entry":{"seq":1,"kind":"lab","lab":"a","pid":1,"born":2}}`
	write := func(text string) func(path string) error {
		return func(path string) error { return os.WriteFile(path, []byte(text), 0o600) }
	}
	entry := func(e string) func(string) error { return write(head + signed(`{"entry":`+e+`}`)) }
	tests := []struct {
		name, want string
		plant      func(path string) error
	}{
		{"empty", "no head", write("")},
		{"without a head", "head belongs in the first line", write(signed(lab))},
		{"without a checksum", "line 1: its checksum", write(lab + "\n")},
		{"without a checksum, torn", "no head", write(lab[:20])},
		{"of a later format", "version 3", write(signed(`{"head":{"journal":3,"owner":"bad","host":"","boot":""}}`))},
		{"of another owner", "journal of good", write(signed(
			`{"head":{"journal":2,"owner":"good","host":"h","boot":""}}`))},
		{"of another machine", "another machine, elsewhere",
			write(signed(`{"head":{"journal":2,"owner":"bad","host":"elsewhere","boot":"x"}}`))},
		{"a flipped bit", "line 2: its checksum", write(head + strings.Replace(signed(lab), `"a"`, `"b"`, 1))},
		{"a damaged line amid others", "line 2: its checksum", write(head + "x\n" + signed(lab))},
		{"a word too many", "unknown field", entry(`{"seq":1,"kind":"lab","lab":"a","dir":"/etc"}`)},
		{"a lab's name that leads elsewhere", "no lab's name", entry(`{"seq":1,"kind":"lab","lab":"../../etc"}`)},
		{"no lab's name", "no lab's name", entry(`{"seq":1,"kind":"lab","lab":""}`)},
		{"a negative process", "could be undone", entry(`{"seq":1,"kind":"lab","lab":"a","pid":-1}`)},
		{"a node's name that leads elsewhere", "could be undone",
			entry(`{"seq":1,"kind":"setting","lab":"a","node":"../x","knob":"nat","place":{}}`)},
		{"a lab that a driver made", "could be undone",
			entry(`{"seq":1,"kind":"lab","lab":"a","pid":1,"driver":"linux"}`)},
		{"a place without a holder", "no place that could be undone",
			entry(`{"seq":1,"kind":"place","lab":"a","labgrid":{"name":"b"}}`)},
		{"a place whose holder is an option", "could be undone",
			entry(`{"seq":1,"kind":"place","lab":"a","labgrid":{"name":"b"},"holder":"-k"}`)},
		{"a lab with a place", "could be undone",
			entry(`{"seq":1,"kind":"lab","lab":"a","labgrid":{"name":"b"},"holder":"h/u"}`)},
		{"an unknown kind", "no file that could be undone", entry(`{"seq":1,"kind":"file","lab":"a"}`)},
		{"a change left out", "change 2 follows change 0", entry(`{"seq":2,"kind":"lab","lab":"a"}`)},
		{"what was never made", "undone that was not made", write(head + signed(`{"undone":1}`))},
		{"a line without end", "line 2", write(head + strings.Repeat("x", maxLine) + "\n")},
		{"a pipe", "no such thing but p", func(path string) error { return unix.Mkfifo(path, 0o600) }},
		{"a directory", "is a directory", func(path string) error { return os.Mkdir(path, 0o700) }},
		{"a link", "is a link", func(path string) error { return os.Symlink("good.jsonl", path) }},
		{"open to others", "can be written to by others", func(path string) error {
			return errors.Join(write(head)(path), os.Chmod(path, 0o622))
		}},
		{"another user's", "belongs to user 12345", func(path string) error {
			if os.Geteuid() != 0 {
				return errors.ErrUnsupported
			}
			return errors.Join(write(head+signed(lab))(path), os.Chown(path, 12345, 12345))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			j := begin(t, dir, "good")
			add(t, j, aLab)
			j.file.f.Close()
			path := filepath.Join(dir, "bad.jsonl")
			err := tt.plant(path)
			if errors.Is(err, errors.ErrUnsupported) {
				t.Skip("skip: only root can give a file away")
			}

			must(t, err)
			stale, living, err := FindStale(dir, nil)
			expect.Error(t, "error", err, tt.want, path)
			if len(stale) != 1 || stale[0].Owner != "good" || len(living) != 0 {
				t.Errorf("the others: got %d stale and %v, want the good one", len(stale), living)
			}

			if living, err := Living(dir); err != nil || len(living) != 0 {
				t.Errorf("living: got %v, %v, want nobody", living, err)
			}

			if _, err := os.Lstat(path); err != nil {
				t.Errorf("afterwards: %v, want it to be there", err)
			}
		})
	}
}

// TestTheNameOfAJournalIsOnDisk: where the directory that a new journal is named in cannot be synced, there
// is none. The kernel is made to refuse fsync(2) of the second file that is opened, the directory; in a
// process of its own, where nothing else opens or closes a file meanwhile.
func TestTheNameOfAJournalIsOnDisk(t *testing.T) {
	if refused := os.Getenv("CHOKEPOINT_TEST_REFUSE_SYNC"); refused != "" {
		must(t, createUnsynced(t.TempDir(), refused == "true"))
		return
	}

	for _, refused := range []bool{false, true} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestTheNameOfAJournalIsOnDisk$")
		cmd.Env = append(os.Environ(), fmt.Sprintf("CHOKEPOINT_TEST_REFUSE_SYNC=%t", refused))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("refused: %t: %v\n%s", refused, err, out)
		}
	}
}

// createUnsynced makes a journal in dir in a thread that may not sync dir (or, unless refused, some file that
// is not open) and says what is wrong with the outcome.
func createUnsynced(dir string, refused bool) error {
	runtime.LockOSThread() // the filter stays with the thread, and both with this process
	first, err := os.CreateTemp(dir, "")
	if err != nil {
		return err
	}

	second, err := os.Open(dir)
	if err != nil {
		return err
	}

	fd := second.Fd()
	if !refused {
		fd += 1000
	}

	if err := errors.Join(first.Close(), second.Close(), refuseSync(uint32(fd))); err != nil {
		return err
	}

	j, err := Create(dir, "owner", "")
	if err == nil {
		err = j.Close()
	}

	if errors.Is(err, unix.EIO) != refused || err != nil && !refused {
		return fmt.Errorf("got %v, want the refusal to be told", err)
	}

	return nil
}

// refuseSync lets fsync(2) of one descriptor fail in this thread, by a seccomp(2) filter.
func refuseSync(fd uint32) error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 3, K: unix.SYS_FSYNC},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 16}, // its first argument
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: fd},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EIO)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}

	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}

func TestJournalOfAnEarlierBoot(t *testing.T) {
	dir := t.TempDir()
	h := headOf("run", "")
	text := signed(fmt.Sprintf(`{"head":{"journal":2,"owner":"run","host":%q,"boot":"before"}}`, h.Host))
	must(t, os.WriteFile(filepath.Join(dir, "run.jsonl"), []byte(text), 0o600))
	stale, _, err := FindStale(dir, nil)
	if err != nil || len(stale) != 1 || !stale[0].Rebooted {
		t.Errorf("got %+v, %v, want one from before the machine started", stale, err)
	}
}

// TestADirectoryThatOthersMayWriteToIsRefused, and with it all that lies there.
func TestADirectoryThatOthersMayWriteToIsRefused(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o777))
	_, _, err := FindStale(dir, nil)
	expect.Error(t, "a directory of all", err, "by others")
}

// TestAFullDiskLeavesWholeLines: what of an entry was written before the disk was full is taken back, so that
// the next one is not lost behind it.
func TestAFullDiskLeavesWholeLines(t *testing.T) {
	if !apart.Process(t) {
		return
	}

	dir := t.TempDir()
	j := begin(t, dir, "run")
	seq := add(t, j, aLab)
	var before unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &before))
	small := before
	small.Cur = uint64(j.file.size) + 20
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &small))
	_, err := j.Add(turned("queue", "noqueue"))
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &before))
	if err == nil {
		t.Fatal("write past the limit: got nil, want an error")
	}

	next := add(t, j, turned("nat", "off"))
	j.file.f.Close()
	stale, _, err := FindStale(dir, nil)
	if err != nil || len(stale) != 1 || len(stale[0].Entries) != 2 || stale[0].Entries[0].Seq != next ||
		stale[0].Entries[1].Seq != seq {
		t.Errorf("afterwards: got %+v, %v, want the two changes that were written", stale, err)
	}
}

// failing is a file of a disk that does not keep what it has taken.
type failing struct {
	*os.File
	cut error // of Truncate
}

func (f failing) Sync() error { return unix.EIO }

func (f failing) Truncate(size int64) error {
	if f.cut != nil {
		return f.cut
	}
	return f.File.Truncate(size)
}

// TestADiskThatFailsLeavesWholeLines: a change that may not be on disk is not in the journal, so that the
// next one does not make it unreadable.
func TestADiskThatFailsLeavesWholeLines(t *testing.T) {
	dir := t.TempDir()
	j := begin(t, dir, "run")
	first := add(t, j, aLab)
	real := j.file.f.(*os.File)
	j.file.f = failing{real, nil}
	if _, err := j.Add(turned("queue", "noqueue")); !errors.Is(err, unix.EIO) {
		t.Fatalf("add: got %v, want EIO", err)
	}

	j.file.f = real
	second := add(t, j, turned("nat", "off"))
	j.file.f = failing{real, unix.EROFS}
	_, err := j.Add(turned("queue", "noqueue"))
	expect.Error(t, "add where it cannot be taken back", err, unix.EROFS)
	j.file.f = real
	expect.Error(t, "after that", j.Done(second), unix.EROFS)
	must(t, errors.Join(real.Truncate(j.file.size), real.Close()))
	stale, _, err := FindStale(dir, nil)
	if err != nil || len(stale) != 1 || len(stale[0].Entries) != 2 || stale[0].Entries[0].Seq != second ||
		stale[0].Entries[1].Seq != first {
		t.Errorf("afterwards: got %+v, %v, want the two changes that were written", stale, err)
	}
}

// TestReadersAndOwnersDoNotDisturbEachOther: while owners come and go, readers look, and others restore,
// nobody is taken for dead who lives, nor for living who is dead, and no journal is lost.
func TestReadersAndOwnersDoNotDisturbEachOther(t *testing.T) {
	dir := t.TempDir()
	dead := begin(t, dir, "dead")
	add(t, dead, aLab)
	dead.file.f.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
	defer cancel()
	var all sync.WaitGroup
	look := func(owner string) error {
		living, err := Living(dir)
		if err == nil && bytes.Contains(fmt.Append(nil, living), []byte("dead")) {
			err = errors.New("the dead one was seen living")
		}
		return err
	}
	restore := func(string) error {
		lock, err := Lock(ctx, dir)
		if err != nil {
			return nil // the time is over
		}
		defer lock.Close()
		stale, living, err := FindStale(dir, nil)
		if err = errors.Join(err, Sweep(dir)); err == nil && (len(stale) != 1 || stale[0].Owner != "dead") {
			err = fmt.Errorf("restore found %d dead, want the one; living %v", len(stale), living)
		}

		for _, s := range stale {
			err = errors.Join(err, s.Release())
		}

		return err
	}
	own := func(owner string) error {
		j, err := Create(dir, owner, "")
		if err != nil {
			return err
		}

		seq, err := j.Add(aLab)
		return errors.Join(err, j.Done(seq), j.Close())
	}
	for i, do := range []func(string) error{look, look, restore, restore, own, own, own} {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if err := do(fmt.Sprintf("run-%d-%d", i, n)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}

	all.Wait()
	left, _ := os.ReadDir(dir)
	if len(left) != 1 {
		t.Errorf("left: got %d files, want the dead one's", len(left))
	}
}

func FuzzParse(f *testing.F) {
	head := signed(`{"head":{"journal":2,"owner":"a","host":"","boot":""}}`)
	f.Add([]byte(head + signed(`{"entry":{"seq":1,"kind":"lab","lab":"a"}}`) + signed(`{"undone":1}`)))
	f.Add([]byte(head + signed(`{"entry":{"seq":1,"kind":"setting","lab":"a","node":"r","knob":"k","place":{}}}`)))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, pending, size, err := parse(bytes.NewReader(b))
		if err != nil && pending != nil || size > int64(len(b)) {
			t.Fatal("an error with a result, or more read than there is")
		}

		for _, e := range pending {
			must(t, e.check())
		}
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
