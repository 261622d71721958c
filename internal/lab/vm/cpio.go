package vm

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strings"
)

// Modes of the entries of an archive, from cpio(5).
const (
	modeFolder  = 0o040755
	modeFile    = 0o100644
	modeProgram = 0o100755
	modeLink    = 0o120777
)

// entry is a file of an archive; a link's content is its target.
type entry struct {
	name string // without a leading slash
	mode uint32
	data []byte
}

// archive collects the files of an initramfs by name.
type archive map[string]entry

// add puts a file into the archive, in place of one of the same name, and the folders above it.
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

// size is the number of bytes of all contents.
func (a archive) size() int64 {
	n := int64(0)
	for _, e := range a {
		n += int64(len(e.data))
	}
	return n
}

// pack writes the archive as one gzip member. The same archive makes the same bytes: the names are sorted,
// and there are no times, no owners and no inode numbers of this machine. Gzip's fastest level, because an
// emulated guest unpacks all levels equally slowly.
func (a archive) pack(w io.Writer) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if err := a.write(z); err != nil {
		return err
	}
	return z.Close()
}

// write writes the archive in the "newc" format, see the kernel's
// Documentation/driver-api/early-userspace/buffer-format.rst. Sorted names put a folder before what is in
// it, as the kernel needs it.
func (a archive) write(w io.Writer) error {
	names := make([]string, 0, len(a))
	for name := range a {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
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
	var b bytes.Buffer
	// magic; inode, mode, uid, gid, nlink, mtime, size; device of the file and of the node, major and
	// minor; length of the name; checksum (unused).
	fmt.Fprintf(&b, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		inode, e.mode, 0, 0, links, 0, len(e.data), 0, 0, 0, 0, len(e.name)+1, 0)
	b.WriteString(e.name)
	b.WriteByte(0)
	pad(&b, b.Len())
	if _, err := w.Write(b.Bytes()); err != nil {
		return err
	}
	if _, err := w.Write(e.data); err != nil {
		return err
	}
	b.Reset()
	pad(&b, len(e.data))
	_, err := w.Write(b.Bytes())
	return err
}

// pad fills n bytes up to a multiple of four.
func pad(b *bytes.Buffer, n int) {
	for ; n%4 != 0; n++ {
		b.WriteByte(0)
	}
}
