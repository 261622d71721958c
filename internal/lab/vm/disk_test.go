package vm

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

// qcow2Head is the first sector of a qcow2 image as qemu-img makes it.
func qcow2Head(change func(head []byte)) []byte {
	head := make([]byte, 512)
	copy(head, "QFI\xfb")
	binary.BigEndian.PutUint32(head[4:], 3)
	if change != nil {
		change(head)
	}

	return head
}

func bootSector() []byte {
	head := make([]byte, 512)
	head[510], head[511] = 0x55, 0xaa
	return head
}

func TestOpenDisk(t *testing.T) {
	tests := []struct {
		name    string
		content []byte
		format  string
		want    string // in the error
		hint    string
	}{
		{"raw", bootSector(), "raw", "", ""},
		{"qcow2", qcow2Head(nil), "qcow2", "", ""},
		{"qcow2 version 2", qcow2Head(func(h []byte) { h[7] = 2; h[79] = 4 }), "qcow2", "", ""},
		{"qcow 1", qcow2Head(func(h []byte) { h[7] = 1 }), "", "qcow of version 1", "qemu-img"},
		{"with a backing file", qcow2Head(func(h []byte) { h[15] = 104 }), "", "difference to another file",
			"qemu-img"},
		{"with an external data file", qcow2Head(func(h []byte) { h[79] = 4 }), "",
			"data are in another file", "qemu-img"},
		{"encrypted", qcow2Head(func(h []byte) { h[35] = 2 }), "", "encrypted", "qemu-img"},
		{"corrupt", qcow2Head(func(h []byte) { h[79] = 2 }), "", "not closed properly", "qemu-img check"},
		{"no boot sector", make([]byte, 512), "", "neither qcow2 nor a disk", "whole disk"},
		{"short", []byte("short"), "", "shorter than", "name a file"},
		{"empty", nil, "", "shorter than", "name a file"},
		{"gzip", append([]byte("\x1f\x8b\x08"), make([]byte, 600)...), "", "compressed by gzip", "gunzip"},
		{"vmdk", append([]byte("KDMV"), make([]byte, 600)...), "", "VMDK", "qemu-img"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "disk.img")
			must(t, os.WriteFile(file, tt.content, 0o600))
			d, err := OpenDisk(file)
			if tt.want == "" {
				if err != nil || d.Format != tt.format || d.File != file {
					t.Errorf("got %+v, %v, want format %s", d, err, tt.format)
				}
				return
			}

			expect.Error(t, "disk", err, tt.want)
			expect.Hint(t, "disk", err, tt.hint)
			if d.File != "" || d.Format != "" {
				t.Errorf("got %+v with an error, want nothing", d)
			}
		})
	}
}

// TestDiskIsCheckedAsItIsOpened, and not only when it was named.
func TestDiskIsCheckedAsItIsOpened(t *testing.T) {
	file := filepath.Join(t.TempDir(), "disk.img")
	put := func(content []byte) {
		must(t, os.WriteFile(file, content, 0o600))
	}
	put(bootSector())
	d, err := OpenDisk(file)
	must(t, err)
	f, err := d.Open()
	if err != nil {
		t.Fatalf("the same: got %v", err)
	}

	f.Close()
	for want, content := range map[string][]byte{"it was raw, and is qcow2 now": qcow2Head(nil),
		"difference to another file": qcow2Head(func(h []byte) { h[15] = 104 }), "shorter than": nil} {
		put(content)
		_, err := d.Open()
		expect.Error(t, "an image", err, want)
	}

	must(t, errors.Join(os.Remove(file), syscall.Mkfifo(file, 0o600)))
	_, err = d.Open()
	expect.Error(t, "pipe", err, "not a file")
}

func TestOpenDiskRefusesWhatIsNoFile(t *testing.T) {
	for _, file := range []string{filepath.Join(t.TempDir(), "none"), t.TempDir()} {
		if d, err := OpenDisk(file); err == nil {
			t.Errorf("OpenDisk(%q): got %+v, want an error", file, d)
		}
	}
}

func TestParseLogin(t *testing.T) {
	tests := []struct {
		text string
		want Login // zero = an error
	}{
		{"ssh", Login{Method: LoginSSH, User: "root"}},
		{"ssh:debian", Login{Method: LoginSSH, User: "debian"}},
		{"serial", Login{Method: LoginSerial, User: "root"}},
		{"serial:admin+ct80w", Login{Method: LoginSerial, User: "admin+ct80w"}},
		{"", Login{}},
		{"telnet", Login{}},
		{"ssh:", Login{}},
		{"ssh:-oProxyCommand=x", Login{}},
		{"ssh:a b", Login{}},
		{"serial:a\nreboot", Login{}},
	}
	for _, tt := range tests {
		got, err := ParseLogin(tt.text)
		if got != tt.want || (err == nil) != (tt.want != Login{}) {
			t.Errorf("ParseLogin(%q): got %+v, %v, want %+v", tt.text, got, err, tt.want)
		}
	}
}

func FuzzParseLogin(f *testing.F) {
	f.Add("ssh:root")
	f.Add("serial:-x")
	f.Fuzz(func(t *testing.T, text string) {
		l, err := ParseLogin(text)
		if err != nil && l != (Login{}) {
			t.Errorf("ParseLogin(%q): got %+v with an error", text, l)
		}

		if err != nil {
			return
		}

		if again, err := ParseLogin(l.String()); err != nil || again != l {
			t.Errorf("ParseLogin(%q): got %+v, %v, want %+v again", l, again, err, l)
		}
	})
}

func FuzzCheckHead(f *testing.F) {
	f.Add(bootSector())
	f.Add(qcow2Head(nil))
	f.Fuzz(func(t *testing.T, head []byte) {
		format, wrong, hint := checkHead(head)
		if wrong == "" && format == "" || (wrong == "") != (hint == "") {
			t.Errorf("got format %q, wrong %q, hint %q", format, wrong, hint)
		}
	})
}

// TestForeignArgs: the image is opened for reading only, and the guest's ssh is the only thing that its
// management NIC leads to.
func TestForeignArgs(t *testing.T) {
	g := NewForeignGuest(Disk{
		File:       "/a,b/disk.qcow2",
		Format:     "qcow2",
		Management: ManagementAddr(0),
		FileFD:     4,
		AgentFD:    5,
		TerminalFD: 6,
	})
	words := strings.Join(g.Args("router", nil, "/c,d"), " ")
	for _, want := range []string{
		"-add-fd fd=4,set=1", "snapshot=on,format=qcow2,file=/dev/fdset/1",
		"restrict=on,hostfwd=tcp:127.0.0.1:2222-:22",
		"mac=02:00:00:00:01:ff",
		"-add-fd fd=5,set=2", "readonly=on,format=raw,file=/dev/fdset/2", "socket,id=console,fd=6,logappend=on,logfile=/c,,d",
		"-m 1024", "-cpu Nehalem",
	} {
		if !strings.Contains(words, want) {
			t.Errorf("arguments: got %s, want %q in them", words, want)
		}
	}

	for _, not := range []string{"-kernel", "-initrd", "-append", "-bios", "/a"} {
		if strings.Contains(words, not) {
			t.Errorf("arguments: got %s, want no %s", words, not)
		}
	}
}
