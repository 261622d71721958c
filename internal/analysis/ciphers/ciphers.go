// Package ciphers compares the speeds of a CPU's ciphers and recommends a cipher and a VPN for it.
package ciphers

import (
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
	"github.com/chokepoint-lab/chokepoint/internal/cipher"
)

// OfPublished converts published speeds of one core to results of openssl -evp with one repetition. It leaves
// out speeds without a value, speeds of unknown algorithms, and speeds in modes other than the default.
func OfPublished(speeds []catalogue.Speed) (out []Result) {
	for _, s := range speeds {
		if c, ok := CellOfPublished(s); ok && s.Value != nil && s.Mode == "" {
			out = append(out, Result{
				Cell:      c,
				Unit:      c.Unit(),
				Rate:      statistics.Summarise([]float64{*s.Value}),
				Published: true,
				Doubts:    []Doubt{},
			})
		}
	}
	return out
}

// CellOfPublished returns the cell in which a published speed would be measured: openssl -evp on one core. ok
// is false for an unknown algorithm.
func CellOfPublished(s catalogue.Speed) (c cipher.Cell, ok bool) {
	a, ok := cipher.Named(s.Algorithm)
	c = cipher.Cell{
		Library:   cipher.OpenSSL,
		Algorithm: s.Algorithm,
		Operation: s.Operation,
		Block:     s.Block,
		Threads:   1,
	}
	if ok && s.Operation == "throughput" {
		c.Operation = a.Operations[0]
	}

	if a.AEAD {
		c.Mode = cipher.ModeEVP
	}

	return c, ok
}

// Result is the speed that was measured in one cell.
type Result struct {
	cipher.Cell
	Unit      string           `json:"unit"`
	Rate      statistics.Value `json:"rate"`
	Doubts    []Doubt          `json:"doubts"`
	Published bool             `json:"-"` // the speed was published and has no interval
}

// Doubt explains why a speed may not represent the CPU.
type Doubt struct {
	Kind string `json:"kind"`
	Text string `json:"text"`
}

// CPU describes the node's CPU.
type CPU struct {
	Model    string    `json:"model,omitempty"`
	Threads  int       `json:"threads"`
	Features []Feature `json:"features"`
	// ClockFrom is the source of the clock, or the reason why the clock is unknown.
	ClockFrom string `json:"clock_from"`
}

// CPUOf returns the CPU that a node's facts describe. Its clock remains unset, because facts do not include
// it.
func CPUOf(facts map[string]string) CPU {
	return CPU{
		Model:     facts["cpu_model"],
		Threads:   cipher.Threads(facts),
		ClockFrom: cipher.ClockUnwatched,
		Features:  Features(strings.Fields(facts["cpu_flags"])),
	}
}

// Feature is a kind of CPU instructions that ciphers use. Flags lists the CPU's flags of this kind, by their
// names in the kernel.
type Feature struct {
	Name  string   `json:"name"`
	Flags []string `json:"flags"`
}

// features groups CPU flags by purpose: Linux's flags on x86 (arch/x86/include/asm/cpufeatures.h), arm and
// arm64 (Documentation/arch/arm64/elf_hwcaps.rst), and the extensions of riscv64.
var features = [...]Feature{
	{"AES", []string{"aes", "vaes", "zkne", "zknd"}},
	{"carry-less multiplication (GCM)", []string{"pclmulqdq", "vpclmulqdq", "pmull", "zbc"}},
	{"SHA", []string{"sha_ni", "sha1", "sha2", "sha512", "zknh"}},
	{"vectors", []string{"ssse3", "avx", "avx2", "avx512f", "neon", "asimd", "sve", "v"}},
	{"long arithmetic", []string{"bmi2", "adx"}},
}

// Features groups the flags of a CPU by purpose.
func Features(flags []string) []Feature {
	var out []Feature
	for _, f := range features {
		lacks := func(flag string) bool { return !slices.Contains(flags, flag) }
		out = append(out, Feature{f.Name, slices.DeleteFunc(slices.Clone(f.Flags), lacks)})
	}
	return out
}
