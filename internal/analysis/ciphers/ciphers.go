// Package ciphers knows the ciphers, hashes and keys that VPNs are built on, reads what openssl says of their
// speed, and tells from the speeds of a CPU what suits it.
package ciphers

import (
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
)

// Operations. A published "throughput" is that of encrypting or hashing.
const (
	Encrypt = "encrypt"
	Decrypt = "decrypt"
	Hash    = "hash"
	Derive  = "derive" // a shared key of a private and a public one
	Sign    = "sign"
	Verify  = "verify"
)

// Libraries: what did the work. Figures of different ones are never compared with each other.
const (
	OpenSSL = "openssl" // the installed program
	Go      = "go"      // the libraries of the language that this program is written in
	Kernel  = "kernel"  // the kernel's own crypto, through AF_ALG: a system call for each block
)

// Modes of an AEAD. What Go and the kernel do is always ModeAEAD.
const (
	ModeEVP  = "evp"  // a stream of data, as published tables have it: openssl speed -evp
	ModeAEAD = "aead" // a packet: a nonce, 13 bytes beside it, and a tag each: openssl speed -aead -evp
)

// Algorithm is one that can be measured.
type Algorithm struct {
	Name       string
	Operations []string
	AEAD       bool
	openssl    string // its name there, where that is another
}

// Blocks reports whether its speed depends on the size of what it works on.
func (a Algorithm) Blocks() bool { return slices.Contains([]string{Encrypt, Hash}, a.Operations[0]) }

// Algorithms are all, in the order shown.
func Algorithms() []Algorithm {
	both, hash := []string{Encrypt, Decrypt}, []string{Hash}
	return []Algorithm{
		{Name: "aes-128-cbc", Operations: both}, {Name: "aes-256-cbc", Operations: both},
		{Name: "aes-128-gcm", Operations: both, AEAD: true},
		{Name: "aes-256-gcm", Operations: both, AEAD: true},
		{Name: "chacha20-poly1305", Operations: both, AEAD: true},
		{Name: "sha1", Operations: hash}, {Name: "sha256", Operations: hash},
		{Name: "sha512", Operations: hash}, {Name: "blake2s256", Operations: hash},
		{Name: "blake2b512", Operations: hash},
		{Name: "x25519", Operations: []string{Derive}, openssl: "ecdhx25519"},
		{Name: "x448", Operations: []string{Derive}, openssl: "ecdhx448"},
		{Name: "ed25519", Operations: []string{Sign, Verify}},
		{Name: "ed448", Operations: []string{Sign, Verify}},
	}
}

// Named is an algorithm by its name.
func Named(name string) (Algorithm, bool) {
	all := Algorithms()
	i := slices.IndexFunc(all, func(a Algorithm) bool { return a.Name == name })
	if i < 0 {
		return Algorithm{}, false
	}
	return all[i], true
}

// Cell is one thing whose speed is measured.
type Cell struct {
	Library   string `json:"library"`
	Algorithm string `json:"algorithm"`
	Operation string `json:"operation"`
	Mode      string `json:"mode,omitempty"`        // of an AEAD
	Block     int    `json:"block_bytes,omitempty"` // 0: it does not matter
	Threads   int    `json:"threads"`
}

// Largest block that only published tables have; no packet is larger than the next two.
const (
	Published = 16384
	Packet    = 1420 // an inner packet of WireGuard over IPv6 on Ethernet
	Small     = 1024
)

// OfPublished are published speeds of one core as results of openssl -evp with one repetition. Left out are
// those that no figure is given for, of algorithms that are not known, and of other modes.
func OfPublished(speeds []catalogue.Speed) (out []Result) {
	for _, s := range speeds {
		if c, ok := CellOfPublished(s); ok && s.Value != nil && s.Mode == "" {
			out = append(out, Result{Cell: c, Unit: c.Unit(), Rate: statistics.Summarise([]float64{*s.Value}),
				Published: true, Doubts: []Doubt{}})
		}
	}
	return out
}

// CellOfPublished is the cell that measures what a published speed is of: openssl -evp on one core. ok is
// false of an algorithm that is not known.
func CellOfPublished(s catalogue.Speed) (c Cell, ok bool) {
	a, ok := Named(s.Algorithm)
	c = Cell{OpenSSL, s.Algorithm, s.Operation, "", s.Block, 1}
	if ok && s.Operation == "throughput" {
		c.Operation = a.Operations[0]
	}
	if a.AEAD {
		c.Mode = ModeEVP
	}
	return c, ok
}

// Unit is that of a cell's rate.
func (c Cell) Unit() string {
	if c.Block > 0 {
		return "B/s"
	}
	return "op/s"
}

// Result is the speed of a cell.
type Result struct {
	Cell
	Unit      string           `json:"unit"`
	Rate      statistics.Value `json:"rate"`
	Doubts    []Doubt          `json:"doubts"`
	Published bool             `json:"-"` // a figure without an interval, of many repetitions or of one
}

// Doubt is why a figure may not be that of the CPU.
type Doubt struct {
	Kind string `json:"kind"`
	Text string `json:"text"`
}

// CPU is the node's.
type CPU struct {
	Model    string    `json:"model,omitempty"`
	Threads  int       `json:"threads"`
	Features []Feature `json:"features"`
	// ClockFrom says where the clock is known from, or why it is not.
	ClockFrom string `json:"clock_from"`
}

// What ClockFrom says: the clock is told by the kernel, follows from a loop of known cycles, or is unknown.
const (
	ClockTold      = "cpufreq"
	ClockEstimated = "estimated: six cycles for each round of a loop that is timed (probe clock)"
	ClockUnknown   = "not known: the kernel tells none, and it is estimated on x86 alone, not emulated"
	ClockUntimed   = "not known: the kernel tells none, and no loop was timed meanwhile (probe clock)"
	ClockUnwatched = "not known: no cipher was measured while the CPU was watched"
)

// CPUOf is what the facts of a node's environment say of its CPU, but for its clock.
func CPUOf(facts map[string]string) CPU {
	threads, _ := strconv.Atoi(facts["cpu_threads"])
	return CPU{Model: facts["cpu_model"], Threads: max(1, threads), ClockFrom: ClockUnwatched,
		Features: Features(strings.Fields(facts["cpu_flags"]))}
}

// Feature is a kind of instructions that ciphers use, with the kernel's names of those that the CPU has.
type Feature struct {
	Name  string   `json:"name"`
	Flags []string `json:"flags"`
}

// features are the flags of Linux on x86 (arch/x86/include/asm/cpufeatures.h), arm and arm64
// (Documentation/arch/arm64/elf_hwcaps.rst), and riscv64's extensions, by what they are good for.
var features = [...]Feature{
	{"AES", []string{"aes", "vaes", "zkne", "zknd"}},
	{"carry-less multiplication (GCM)", []string{"pclmulqdq", "vpclmulqdq", "pmull", "zbc"}},
	{"SHA", []string{"sha_ni", "sha1", "sha2", "sha512", "zknh"}},
	{"vectors", []string{"ssse3", "avx", "avx2", "avx512f", "neon", "asimd", "sve", "v"}},
	{"long arithmetic", []string{"bmi2", "adx"}},
}

// Features sorts the flags of a CPU.
func Features(flags []string) []Feature {
	var out []Feature
	for _, f := range features {
		lacks := func(flag string) bool { return !slices.Contains(flags, flag) }
		out = append(out, Feature{f.Name, slices.DeleteFunc(slices.Clone(f.Flags), lacks)})
	}
	return out
}
