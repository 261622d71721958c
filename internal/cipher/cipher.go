// Package cipher declares the ciphers, hashes and keys that VPNs use and whose speed chokepoint measures.
// It provides them as factors of a plan and as openssl commands, and parses the output of openssl.
package cipher

import (
	"slices"
	"strconv"
)

// Operations of an algorithm. A published "throughput" is the rate of encrypting or hashing.
const (
	Encrypt = "encrypt"
	Decrypt = "decrypt"
	Hash    = "hash"
	Derive  = "derive" // computes a shared key from a private key and a public key
	Sign    = "sign"
	Verify  = "verify"
)

// Libraries that implement the algorithms. Results of different libraries are never compared.
const (
	OpenSSL = "openssl" // the installed program
	Go      = "go"      // Go's standard and x/crypto libraries
	Kernel  = "kernel"  // the kernel's crypto API through AF_ALG, with one system call per block
)

// Modes of an AEAD. Measurements with Go and the kernel always use ModeAEAD.
const (
	ModeEVP  = "evp"  // a stream of data, as in published tables: openssl speed -evp
	ModeAEAD = "aead" // packets with a nonce, 13 bytes of additional data and a tag: openssl speed -aead -evp
)

// Algorithm describes an algorithm that can be measured.
type Algorithm struct {
	Name       string
	Operations []string
	AEAD       bool
	openssl    string // name that openssl uses, if it differs from Name
}

// Blocks reports whether the algorithm encrypts or hashes blocks, so that its speed depends on the block
// size.
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
	Mode      string `json:"mode,omitempty"`        // only for AEADs
	Block     int    `json:"block_bytes,omitempty"` // 0 for key operations
	Threads   int    `json:"threads"`
}

// Block sizes in bytes. Published is the largest block in published tables, larger than any packet.
const (
	Published = 16384
	Packet    = 1420 // an inner packet of WireGuard over IPv6, on Ethernet with an MTU of 1500
	Small     = 1024
)

// Unit returns the unit of a cell's rate.
func (c Cell) Unit() string {
	if c.Block > 0 {
		return "B/s"
	}
	return "op/s"
}

// These are the values of ClockFrom. The clock was read from the kernel, or measured with a timed loop of a
// known number of cycles, or is unknown for the given reason.
const (
	ClockTold      = "cpufreq"
	ClockEstimated = "estimated: six cycles for each round of a loop that is timed (probe clock)"
	ClockUnknown   = "not known: the kernel reports none, and it is estimated on x86 alone, not emulated"
	ClockUntimed   = "not known: the kernel reports none, and no loop was timed meanwhile (probe clock)"
	ClockUnwatched = "not known: no cipher was measured while the CPU was watched"
)

// Threads returns the number of CPUs of a node according to the facts of its environment, or 1 if the facts
// do not include it.
func Threads(facts map[string]string) int {
	threads, _ := strconv.Atoi(facts["cpu_threads"])
	return max(1, threads)
}
