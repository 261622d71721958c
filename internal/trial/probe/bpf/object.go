package bpf

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// object is a compiled file: programs by their section, and the maps that they use, by name. Sections of
// data are maps with one entry.
type object struct {
	programs map[string]code
	maps     map[string]mapSpec
}

type code struct {
	instructions []byte
	uses         []use
}

// use is an instruction that names a map.
type use struct {
	at     int // bytes from the beginning
	name   string
	value  bool // the address of the map's one value, not the map
	offset uint32
}

// mapSpec is struct map_def of frames.c, and what a section of data holds.
type mapSpec struct {
	Type, Key, Value, Entries, Flags uint32

	data []byte
}

const (
	mapArray       = 2
	readOnlyInside = 1 << 7 // BPF_F_RDONLY_PROG

	instruction = 8
	loadAddress = 0x18 // BPF_LD | BPF_DW | BPF_IMM, two instructions long
)

// Parts of an ELF file that we read (System V ABI, chapter 4).
type elfHeader struct {
	Ident                                       [16]byte
	Type, Machine                               uint16
	Version                                     uint32
	Entry, Programs, Sections                   uint64
	Flags                                       uint32
	Size, ProgramSize, ProgramNumber            uint16
	SectionSize, SectionNumber, SectionNamesAre uint16
}

type elfSection struct {
	Name, Type                   uint32
	Flags, Address, Offset, Size uint64
	Link, Info                   uint32
	Align, EntrySize             uint64
}

type elfSymbol struct {
	Name        uint32
	Info, Other uint8
	Section     uint16
	Value, Size uint64
}

type elfReloc struct{ Offset, Info uint64 }

const (
	elfMachine = 247 // EM_BPF
	elfSymbols = 2
	elfNoBits  = 8
	elfReloc64 = 1 // R_BPF_64_64
	maxData    = 1 << 20
)

type elfFile struct {
	order    binary.ByteOrder
	bytes    []byte
	sections []elfSection
	names    []byte
	symbols  []elfSymbol
	strings  []byte
}

// parseObject reads a file that clang made. An object of the other byte order is read as well.
func parseObject(b []byte) (*object, error) {
	f, err := openELF(b)
	if err != nil {
		return nil, fmt.Errorf("read a BPF object: %w", err)
	}
	o := &object{programs: map[string]code{}, maps: map[string]mapSpec{}}
	for i, s := range f.sections {
		name := text(f.names, s.Name)
		data, err := f.data(s)
		if err != nil {
			return nil, fmt.Errorf("read section %s of a BPF object: %w", name, err)
		}
		switch {
		case name == ".rodata":
			o.maps[name] = mapSpec{mapArray, 4, uint32(s.Size), 1, readOnlyInside, data}
		case name == ".bss":
			o.maps[name] = mapSpec{mapArray, 4, uint32(s.Size), 1, 0, make([]byte, s.Size)}
		case name == "maps":
			if err := f.readMaps(i, data, o.maps); err != nil {
				return nil, fmt.Errorf("read the maps of a BPF object: %w", err)
			}
		case len(name) > 4 && name[:4] == "xdp/":
			c := o.programs[name]
			c.instructions = data
			o.programs[name] = c
		case len(name) > 8 && name[:8] == ".relxdp/":
			c := o.programs[name[4:]]
			if c.uses, err = f.uses(data); err != nil {
				return nil, fmt.Errorf("read %s of a BPF object: %w", name, err)
			}
			o.programs[name[4:]] = c
		}
	}
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("read a BPF object: %w", err)
	}
	return o, nil
}

func openELF(b []byte) (*elfFile, error) {
	f := &elfFile{bytes: b, order: binary.LittleEndian}
	if len(b) > 5 && b[5] == 2 {
		f.order = binary.BigEndian
	}
	var h elfHeader
	if err := f.at(0, &h); err != nil {
		return nil, err
	}
	if string(h.Ident[:5]) != "\x7fELF\x02" || h.Machine != elfMachine {
		return nil, fmt.Errorf("not a 64-bit ELF file for BPF")
	}
	f.sections = make([]elfSection, h.SectionNumber)
	if err := f.at(h.Sections, f.sections); err != nil {
		return nil, err
	}
	var err error
	if int(h.SectionNamesAre) >= len(f.sections) {
		return nil, fmt.Errorf("section of names %d of %d", h.SectionNamesAre, len(f.sections))
	}
	if f.names, err = f.data(f.sections[h.SectionNamesAre]); err != nil {
		return nil, err
	}
	for _, s := range f.sections {
		if s.Type != elfSymbols {
			continue
		}
		data, err := f.data(s)
		if err != nil || int(s.Link) >= len(f.sections) {
			return nil, fmt.Errorf("damaged table of symbols")
		}
		f.symbols = make([]elfSymbol, len(data)/24)
		if err := f.at(s.Offset, f.symbols); err != nil {
			return nil, err
		}
		if f.strings, err = f.data(f.sections[s.Link]); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// at reads what lies at an offset.
func (f *elfFile) at(offset uint64, into any) error {
	if offset > uint64(len(f.bytes)) {
		return fmt.Errorf("offset %d of %d bytes", offset, len(f.bytes))
	}
	return binary.Read(bytes.NewReader(f.bytes[offset:]), f.order, into)
}

func (f *elfFile) data(s elfSection) ([]byte, error) {
	if s.Type == elfNoBits {
		if s.Size > maxData {
			return nil, fmt.Errorf("%d bytes", s.Size)
		}
		return nil, nil
	}
	n := uint64(len(f.bytes))
	if s.Offset > n || s.Size > n-s.Offset {
		return nil, fmt.Errorf("bytes %d+%d of %d", s.Offset, s.Size, n)
	}
	return f.bytes[s.Offset : s.Offset+s.Size], nil
}

func text(names []byte, at uint32) string {
	if int64(at) >= int64(len(names)) {
		return ""
	}
	end := bytes.IndexByte(names[at:], 0)
	if end < 0 {
		return ""
	}
	return string(names[at:][:end])
}

// readMaps finds the definition that each symbol of the section names.
func (f *elfFile) readMaps(section int, data []byte, maps map[string]mapSpec) error {
	const size = 20
	for _, s := range f.symbols {
		if int(s.Section) != section || s.Size != size {
			continue
		}
		if s.Value > uint64(len(data)) || uint64(len(data))-s.Value < size {
			return fmt.Errorf("%s lies at %d of %d bytes", text(f.strings, s.Name), s.Value, len(data))
		}
		d := data[s.Value:]
		var v [5]uint32
		for i := range v {
			v[i] = f.order.Uint32(d[4*i:])
		}
		maps[text(f.strings, s.Name)] = mapSpec{Type: v[0], Key: v[1], Value: v[2], Entries: v[3],
			Flags: v[4]}
	}
	return nil
}

// uses reads which instructions name what.
func (f *elfFile) uses(data []byte) ([]use, error) {
	relocs := make([]elfReloc, len(data)/16)
	if err := binary.Read(bytes.NewReader(data), f.order, relocs); err != nil {
		return nil, err
	}
	var out []use
	for _, r := range relocs {
		n := r.Info >> 32
		if uint32(r.Info) != elfReloc64 || n >= uint64(len(f.symbols)) {
			return nil, fmt.Errorf("unknown relocation %#x", r.Info)
		}
		s := f.symbols[n]
		if int(s.Section) >= len(f.sections) {
			return nil, fmt.Errorf("symbol of section %d", s.Section)
		}
		u := use{at: int(r.Offset), name: text(f.strings, s.Name)}
		if where := text(f.names, f.sections[s.Section].Name); where != "maps" {
			u.name, u.value, u.offset = where, true, uint32(s.Value)
		}
		out = append(out, u)
	}
	return out, nil
}

// check refuses what the loader could trip over.
func (o *object) check() error {
	for name, c := range o.programs {
		if len(c.instructions) == 0 || len(c.instructions)%instruction != 0 {
			return fmt.Errorf("program %s has %d bytes", name, len(c.instructions))
		}
		for _, u := range c.uses {
			if _, ok := o.maps[u.name]; !ok {
				return fmt.Errorf("program %s uses %q, which is no map", name, u.name)
			}
			if u.at < 0 || u.at%instruction != 0 || u.at > len(c.instructions)-2*instruction ||
				c.instructions[u.at] != loadAddress {
				return fmt.Errorf("program %s uses %s at %d, which is no such instruction", name, u.name,
					u.at)
			}
		}
	}
	return nil
}
