package vm

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
)

// These are the modes of archive entries (cpio(5)).
const (
	modeFolder  = 0o040755
	modeFile    = 0o100644
	modeProgram = 0o100755
	modeLink    = 0o120777
)

// entry is a file in an archive. The data of a symbolic link is the target of the link.
type entry struct {
	name string // path without a leading slash
	mode uint32
	data []byte
}

type archive map[string]entry // maps names to the files of an initramfs

// add adds a file and its parent directories. It replaces a file with the same name.
func (a archive) add(name string, mode uint32, data []byte) {
	a[name] = entry{name, mode, data}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if _, ok := a[dir]; !ok {
			a[dir] = entry{dir, modeFolder, nil}
		}
	}
}

func (a archive) text(name, text string) { a.add(name, modeFile, []byte(text)) }
func (a archive) link(name, to string)   { a.add(name, modeLink, []byte(to)) }
func (a archive) folder(name string)     { a.add(name, modeFolder, nil) }

// size returns the total size of the contents in bytes.
func (a archive) size() int64 {
	n := int64(0)
	for _, e := range a {
		n += int64(len(e.data))
	}
	return n
}

// pack writes the archive, compressed as one gzip member. Archives with equal contents have equal bytes,
// because names are sorted, and times, owners and inode numbers do not depend on this machine. pack uses the
// fastest level of gzip, because decompression in an emulated guest takes the same time for all levels.
func (a archive) pack(w io.Writer) error {
	z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // never returns an error for this level
	if err := a.write(z); err != nil {
		return err
	}

	return z.Close()
}

// write writes the archive in the "newc" format (Documentation/driver-api/early-userspace/buffer-format.rst).
// The kernel requires that a directory precedes its contents, which sorting ensures.
func (a archive) write(w io.Writer) error {
	for i, name := range slices.Sorted(maps.Keys(a)) {
		if err := a[name].write(w, i+1); err != nil {
			return err
		}
	}
	return entry{name: "TRAILER!!!"}.write(w, 0)
}

func (e entry) write(w io.Writer, inode int) error {
	if uint64(len(e.data)) > math.MaxUint32 || strings.HasPrefix(e.name, "/") {
		return fmt.Errorf("write %s to the image: %d bytes do not fit, or the name is not relative", e.name,
			len(e.data))
	}

	links := 1
	if e.mode == modeFolder {
		links = 2
	}

	pad := func(n int) []byte { return make([]byte, -n&3) } // pads to a multiple of 4 bytes
	var b bytes.Buffer
	// The header consists of the magic number; inode, mode, uid, gid, nlink, mtime and size; the major and
	// minor numbers of the file's device and of the device node; the length of the name; and an unused
	// checksum.
	fmt.Fprintf(&b, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		inode, e.mode, 0, 0, links, 0, len(e.data), 0, 0, 0, 0, len(e.name)+1, 0)
	b.WriteString(e.name)
	b.WriteByte(0)
	b.Write(pad(b.Len()))
	for _, part := range [][]byte{b.Bytes(), e.data, pad(len(e.data))} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}

	return nil
}
