package vm

import (
	"bytes"
	"debug/elf"
	"fmt"
	"strings"
)

// modinfo is what a kernel module says of itself, in its section .modinfo.
type modinfo struct {
	depends  []string // modules whose symbols it uses
	soft     []string // modules that it works better with, loaded before or after
	aliases  []string // patterns of what the kernel may ask for it by
	vermagic string   // "6.1.0-56-cloud-amd64 SMP preempt mod_unload modversions "
}

// release is the kernel's release, the first word of vermagic.
func (m modinfo) release() string {
	release, _, _ := strings.Cut(m.vermagic, " ")
	return release
}

// readModinfo reads a module's file.
func readModinfo(file []byte) (*elf.File, modinfo, error) {
	f, err := elf.NewFile(bytes.NewReader(file))
	if err != nil {
		return nil, modinfo{}, err
	}
	s := f.Section(".modinfo")
	if s == nil || s.Type != elf.SHT_PROGBITS {
		return nil, modinfo{}, fmt.Errorf("no section .modinfo: not a kernel module")
	}
	b, err := s.Data()
	if err != nil {
		return nil, modinfo{}, err
	}
	return f, parseModinfo(string(b)), nil
}

// parseModinfo reads "key=value" texts that end with a NUL each.
func parseModinfo(section string) modinfo {
	var m modinfo
	for field := range strings.SplitSeq(section, "\x00") {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "depends":
			m.depends = append(m.depends, moduleNamesIn(strings.Split(value, ","))...)
		case "softdep":
			m.soft = append(m.soft, moduleNamesIn(strings.Fields(value))...)
		case "alias":
			// The lists have a line per alias, and words are parted by blanks.
			if value != "" && !strings.ContainsAny(value, " \t\r\n") {
				m.aliases = append(m.aliases, value)
			}
		case "vermagic":
			m.vermagic = value
		}
	}
	return m
}

// moduleNamesIn drops what is not a name: "pre:" and "post:" of a softdep, and the empty field of a module
// that depends on nothing.
func moduleNamesIn(fields []string) []string {
	var names []string
	for _, f := range fields {
		if f != "" && !strings.HasSuffix(f, ":") && !strings.ContainsAny(f, "/\n") {
			names = append(names, normalName(f))
		}
	}
	return names
}

// normalName is the one form of a module's name: the kernel takes "-" and "_" for the same.
func normalName(name string) string { return strings.ReplaceAll(name, "-", "_") }
