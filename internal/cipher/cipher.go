// Package cipher declares the ciphers, hashes and keys used by VPNs and measured for speed: as factors of a
// plan, and as commands of openssl, whose output it parses.
package cipher

import (
	"slices"
	"strconv"
)

// Operations. A published "throughput" means encrypting or hashing.
const (
	Encrypt = "encrypt"
	Decrypt = "decrypt"
	Hash    = "hash"
	Derive  = "derive" // a shared key of a private and a public one
	Sign    = "sign"
	Verify  = "verify"
)

// Libraries that do the work. Their figures are never compared with each other.
const (
	OpenSSL = "openssl" // the installed program
	Go      = "go"      // the libraries of the language that this program is written in
	Kernel  = "kernel"  // the kernel's own crypto, through AF_ALG: a system call for each block
)

// Modes of an AEAD. Go and the kernel always use ModeAEAD.
const (
	ModeEVP  = "evp"  // a stream of data, as in published tables: openssl speed -evp
	ModeAEAD = "aead" // a packet: with nonce, 13 bytes beside it, and tag: openssl speed -aead -evp
)

// Algorithm describes a cipher, hash or signature that can be measured.
type Algorithm struct {
	Name       string
	Operations []string
	AEAD       bool
	openssl    string // the name there, if it differs
}

// Blocks reports whether its speed depends on the size of its input.
func (a Algorithm) Blocks() bool { return slices.Contains([]string{Encrypt, Hash}, a.Operations[0]) }

// Algorithms lists all algorithms, in display order.
func Algorithms() []Algorithm {
	both := []string{Encrypt, Decrypt}
	hash := []string{Hash}
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

// Named returns an algorithm by its name.
func Named(name string) (Algorithm, bool) {
	all := Algorithms()
	i := slices.IndexFunc(all, func(a Algorithm) bool { return a.Name == name })
	if i < 0 {
		return Algorithm{}, false
	}

	return all[i], true
}

// Cell identifies one speed to measure.
type Cell struct {
	Library   string `json:"library"`
	Algorithm string `json:"algorithm"`
	Operation string `json:"operation"`
	Mode      string `json:"mode,omitempty"`        // for an AEAD
	Block     int    `json:"block_bytes,omitempty"` // 0: irrelevant
	Threads   int    `json:"threads"`
}

// Largest block that only published tables have; no packet is larger than the next two.
const (
	Published = 16384
	Packet    = 1420 // an inner packet of WireGuard over IPv6 on Ethernet
	Small     = 1024
)

// Unit returns the unit of a cell's rate.
func (c Cell) Unit() string {
	if c.Block > 0 {
		return "B/s"
	}
	return "op/s"
}

// Sources in ClockFrom: the kernel, a loop of known cycles, or unknown.
const (
	ClockTold      = "cpufreq"
	ClockEstimated = "estimated: six cycles for each round of a loop that is timed (probe clock)"
	ClockUnknown   = "not known: the kernel reports none, and it is estimated on x86 alone, not emulated"
	ClockUntimed   = "not known: the kernel reports none, and no loop was timed meanwhile (probe clock)"
	ClockUnwatched = "not known: no cipher was measured while the CPU was watched"
)

// Threads returns the number of a node's CPUs, from the facts of its environment.
func Threads(facts map[string]string) int {
	threads, _ := strconv.Atoi(facts["cpu_threads"])
	return max(1, threads)
}
