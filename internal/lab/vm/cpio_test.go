package vm

import (
	"bytes"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

// readArchive is a reader of our own, after the kernel's description: it shares nothing with the writer.
func readArchive(t *testing.T, b []byte) []entry {
	t.Helper()
	var found []entry
	at := 0
	take := func(n int) []byte {
		if at+n > len(b) {
			t.Fatalf("archive ends at %d, wanted %d more at %d", len(b), n, at)
		}

		at += n
		return b[at-n : at]
	}
	align := func() {
		for at%4 != 0 {
			c := take(1)
			if c[0] != 0 {
				t.Fatalf("padding at %d: got %d, want 0", at-1, c[0])
			}
		}
	}
	for {
		magic := string(take(6))
		if magic != "070701" {
			t.Fatalf("magic at %d: got %q", at-6, magic)
		}

		var field [13]int
		for i := range field {
			n, err := strconv.ParseUint(string(take(8)), 16, 32)
			must(t, err)
			field[i] = int(n)
		}

		name := take(field[11])
		if name[len(name)-1] != 0 {
			t.Fatalf("name %q does not end with NUL", name)
		}

		align()
		data := bytes.Clone(take(field[6]))
		align()
		text := string(name[:len(name)-1])
		if text == "TRAILER!!!" {
			if at != len(b) {
				t.Fatalf("%d bytes follow the trailer", len(b)-at)
			}
			return found
		}

		if field[2] != 0 || field[3] != 0 || field[5] != 0 {
			t.Errorf("%s: uid, gid, mtime: got %d, %d, %d, want 0", text, field[2], field[3], field[5])
		}

		if field[0] != len(found)+1 {
			t.Errorf("%s: inode %d, want %d", text, field[0], len(found)+1)
		}

		found = append(found, entry{text, uint32(field[1]), data})
	}
}

func sampleArchive(order []int) archive {
	a := archive{}
	put := []func(){
		func() { a.add("init", modeProgram, []byte("\x7fELF…")) },
		func() { a.text("etc/chokepoint/modules", "virtio_net\n") },
		func() { a.link("bin/modprobe", "../init") },
		func() { a.link("sbin", "bin") },
		func() { a.text("empty", "") },
		func() { a.folder("proc") },
	}
	for _, i := range order {
		put[i]()
	}

	return a
}

func TestArchiveRoundTrip(t *testing.T) {
	var b bytes.Buffer
	must(t, sampleArchive([]int{0, 1, 2, 3, 4, 5}).write(&b))
	want := []entry{
		{"bin", modeFolder, []byte{}}, {"bin/modprobe", modeLink, []byte("../init")},
		{"empty", modeFile, []byte{}},
		{"etc", modeFolder, []byte{}}, {"etc/chokepoint", modeFolder, []byte{}}, {"etc/chokepoint/modules",
			modeFile, []byte("virtio_net\n")},
		{"init", modeProgram, []byte("\x7fELF…")},
		{"proc", modeFolder, []byte{}}, {"sbin", modeLink, []byte("bin")},
	}
	expect.Same(t, "entries", want, readArchive(t, b.Bytes()), cmp.AllowUnexported(entry{}))
}

// TestArchiveGolden holds the bytes, with "~" for NUL: every other reader depends on them.
func TestArchiveGolden(t *testing.T) {
	var b bytes.Buffer
	must(t, sampleArchive([]int{1, 3}).write(&b))
	got := strings.ReplaceAll(b.String(), "\x00", "~")
	want := "" +
		"07070100000001000041ED0000000000000000000000020000000000000000000000000000000000000000000000000000000400000000etc~~~" +
		"07070100000002000041ED0000000000000000000000020000000000000000000000000000000000000000000000000000000F00000000etc/chokepoint~~~~" +
		"07070100000003000081A4000000000000000000000001000000000000000B000000000000000000000000000000000000001700000000etc/chokepoint/modules~~~~virtio_net\n~" +
		"070701000000040000A1FF0000000000000000000000010000000000000003000000000000000000000000000000000000000500000000sbin~~bin~" +
		"07070100000000000000000000000000000000000000010000000000000000000000000000000000000000000000000000000B00000000TRAILER!!!~~~~"
	expect.Same(t, "archive", want, got)
}

func TestArchiveBytesAreTheSame(t *testing.T) {
	var first []byte
	for range 8 {
		var b bytes.Buffer
		must(t, sampleArchive(rand.Perm(6)).pack(&b))
		if first == nil {
			first = b.Bytes()
		}

		if !bytes.Equal(first, b.Bytes()) {
			t.Fatal("the same files in another order: got other bytes")
		}
	}
}

func TestArchiveRefusesAbsoluteNames(t *testing.T) {
	a := archive{"/init": {"/init", modeFile, nil}}
	if err := a.write(&bytes.Buffer{}); err == nil {
		t.Error("an absolute name: got no error")
	}
}
