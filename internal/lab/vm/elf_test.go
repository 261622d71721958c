package vm

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"strings"
	"testing"
)

// elfSection is a section of an ELF file made for a test.
type elfSection struct {
	name string
	kind elf.SectionType
	link uint32 // number of another section, from 1
	data []byte
}

// madeELF is a 64-bit ELF file with the sections and, unless interp is empty, the name of a dynamic linker.
func madeELF(t testing.TB, kind elf.Type, machine elf.Machine, interp string, sections ...elfSection) []byte {
	t.Helper()
	const head, program, section = 64, 56, 64
	names := "\x00"
	for i := range sections {
		names += sections[i].name + "\x00"
	}

	sections = append(sections, elfSection{
		name: ".shstrtab",
		kind: elf.SHT_STRTAB,
		data: []byte(names + ".shstrtab\x00"),
	})
	names += ".shstrtab\x00"
	var body bytes.Buffer
	body.Write(make([]byte, head+program))
	interpAt := body.Len()
	body.WriteString(interp)
	at := make([]int, len(sections))
	for i, s := range sections {
		body.Write(make([]byte, -body.Len()&7))
		at[i] = body.Len()
		body.Write(s.data)
	}

	body.Write(make([]byte, -body.Len()&7))
	table := body.Len()
	put := func(v any) []byte {
		var b bytes.Buffer
		must(t, binary.Write(&b, binary.LittleEndian, v))
		return b.Bytes()
	}
	body.Write(put(elf.Section64{}))
	for i, s := range sections {
		body.Write(put(elf.Section64{
			Name: uint32(strings.Index(names, "\x00"+s.name+"\x00") + 1),
			Type: uint32(s.kind),
			Link: s.link,
			Off:  uint64(at[i]),
			Size: uint64(len(s.data)),
		}))
	}

	file := body.Bytes()
	h := elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB),
			byte(elf.EV_CURRENT)},
		Type:      uint16(kind),
		Machine:   uint16(machine),
		Version:   uint32(elf.EV_CURRENT),
		Ehsize:    head,
		Shoff:     uint64(table),
		Shentsize: section,
		Shnum:     uint16(len(sections) + 1),
		Shstrndx:  uint16(len(sections)),
		Phoff:     head,
		Phentsize: program,
	}
	if interp != "" {
		h.Phnum = 1
		copy(file[head:], put(elf.Prog64{
			Type:   uint32(elf.PT_INTERP),
			Off:    uint64(interpAt),
			Filesz: uint64(len(interp)),
		}))
	}

	copy(file, put(h))
	return file
}

// madeModule is a kernel module with nothing but what it says of itself.
func madeModule(t testing.TB, machine elf.Machine, fields ...string) []byte {
	t.Helper()
	return madeELF(t, elf.ET_REL, machine, "", elfSection{
		name: ".modinfo",
		kind: elf.SHT_PROGBITS,
		data: []byte(strings.Join(fields, "\x00") + "\x00"),
	})
}

// madeProgram is a static executable; text tells it from others.
func madeProgram(t testing.TB, machine elf.Machine, text string) []byte {
	t.Helper()
	return append(madeELF(t, elf.ET_EXEC, machine, ""), text...)
}

// madeBinary is a program or library that needs libraries.
func madeBinary(t testing.TB, machine elf.Machine, interp string, libraries ...string) []byte {
	t.Helper()
	texts := "\x00"
	dynamic := bytes.Buffer{}
	for _, lib := range libraries {
		tag := []uint64{uint64(elf.DT_NEEDED), uint64(len(texts))}
		must(t, binary.Write(&dynamic, binary.LittleEndian, tag))
		texts += lib + "\x00"
	}

	dynamic.Write(make([]byte, 16))
	return madeELF(t, elf.ET_DYN, machine, interp,
		elfSection{name: ".dynstr", kind: elf.SHT_STRTAB, data: []byte(texts)},
		elfSection{name: ".dynamic", kind: elf.SHT_DYNAMIC, link: 1, data: dynamic.Bytes()})
}
