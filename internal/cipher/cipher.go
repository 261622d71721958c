// Package cipher declares the ciphers, hashes and keys that VPNs are built on and whose speed is measured: as
// factors of a plan, and as commands of openssl, whose figures it reads.
package cipher

import (
	"slices"
	"strconv"
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

// Algorithm describes a cipher, hash or signature that can be measured.
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

// Unit returns the unit of a cell's rate.
func (c Cell) Unit() string {
	if c.Block > 0 {
		return "B/s"
	}
	return "op/s"
}

// What ClockFrom says: the clock is told by the kernel, follows from a loop of known cycles, or is unknown.
const (
	ClockTold      = "cpufreq"
	ClockEstimated = "estimated: six cycles for each round of a loop that is timed (probe clock)"
	ClockUnknown   = "not known: the kernel tells none, and it is estimated on x86 alone, not emulated"
	ClockUntimed   = "not known: the kernel tells none, and no loop was timed meanwhile (probe clock)"
	ClockUnwatched = "not known: no cipher was measured while the CPU was watched"
)

// Threads returns the number of a node's CPUs, from the facts of its environment.
func Threads(facts map[string]string) int {
	threads, _ := strconv.Atoi(facts["cpu_threads"])
	return max(1, threads)
}
