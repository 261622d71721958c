package ciphers

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/cipher"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// DoubtEmulated is the kind of doubt about the speed of an emulated CPU.
const DoubtEmulated = "emulated"

// MaxClock is the largest range of the CPU's clock, as a share of its median, at which a measured speed is
// not in doubt.
const MaxClock = 0.05

// Advice is a recommendation in words, based on measured speeds.
type Advice struct {
	Kind    string `json:"kind"`
	Library string `json:"library"`
	Text    string `json:"text"`
	Cipher  string `json:"cipher,omitempty"` // recommended cipher
}

// Kinds of advice.
const (
	AdviceCipher   = "cipher"
	AdviceVPN      = "vpn"
	AdviceHardware = "instructions"
	AdviceKeys     = "keys"
)

// alike is the smallest ratio of two speeds that matters for the choice of a cipher.
const alike = 1.1

const chacha = "chacha20-poly1305"

// cipherWords maps ciphers to their usual names.
var cipherWords = map[string]string{chacha: "ChaCha20-Poly1305", "aes-128-gcm": "AES-128-GCM",
	"aes-256-gcm": "AES-256-GCM", "aes-128-cbc": "AES-128-CBC", "aes-256-cbc": "AES-256-CBC",
	"x25519": "X25519", "x448": "X448", "ed25519": "Ed25519", "ed448": "Ed448"}

// speed is a rate with its interval.
type speed struct {
	median, low, high float64
	n                 int // number of repetitions on which the interval is based
	doubts            []string
}

func speedOf(r Result) speed {
	s := speed{median: r.Rate.Median, low: r.Rate.Low, high: r.Rate.High, n: r.Rate.N}
	if r.Published {
		s.low = s.median
		s.high = s.median
		s.n = statistics.MinInterval
	}

	for _, d := range r.Doubts {
		s.doubts = append(s.doubts, d.Kind)
	}

	return s
}

// after returns the speed of applying two algorithms to each byte, one after the other.
func (s speed) after(t speed) speed {
	both := func(a, b float64) float64 { return 1 / (1/a + 1/b) }
	return speed{both(s.median, t.median), both(s.low, t.low), both(s.high, t.high), min(s.n, t.n),
		slices.Concat(s.doubts, t.doubts)}
}

func (s speed) interval() string { return goodput(s.low) + " to " + goodput(s.high) }

// Results of comparing two speeds.
const (
	cannotTell = iota
	bothAlike
	firstFaster
	secondFaster
)

// compare compares two speeds. One of them is faster if their intervals are disjoint and the ratio of their
// medians is at least alike. They are alike if every ratio of values in their intervals is less than alike.
func compare(a, b speed) int {
	switch least, most := a.low/b.high, a.high/b.low; {
	case min(a.n, b.n) < statistics.MinInterval:
		return cannotTell
	case least > 1/alike && most < alike:
		return bothAlike
	case least > 1 && a.median/b.median >= alike:
		return firstFaster
	case most < 1 && b.median/a.median >= alike:
		return secondFaster
	}
	return cannotTell
}

// doubted returns a clause that lists the doubts about speeds. It is appended to a conclusion from these
// speeds.
func doubted(speeds ...speed) string {
	var kinds []string
	for _, s := range speeds {
		kinds = append(kinds, s.doubts...)
	}

	if len(kinds) == 0 {
		return ""
	}

	slices.Sort(kinds)
	return " In doubt: " + strings.Join(slices.Compact(kinds), ", ") + "."
}

// Advise recommends a cipher and a VPN for a CPU. It compares the speeds at which one thread encrypts, within
// a library and mode. The compared block size is the measured one nearest to the size of a packet.
func Advise(results []Result) []Advice {
	out := []Advice{}
	var all []finding
	for _, library := range cipher.Libraries() {
		advice, found := advise(library, results)
		out = append(out, advice...)
		if found != nil {
			all = append(all, *found)
		}
	}

	return reconciled(out, all)
}

// finding is the comparison of ChaCha20-Poly1305 with AES-128-GCM in one library.
type finding struct {
	library string
	outcome int
	speeds  []speed
}

// reconciled replaces contradictory advice about the VPN from different libraries with one sentence, because
// no VPN can use all of these libraries.
func reconciled(all []Advice, found []finding) (out []Advice) {
	var words []string
	var speeds []speed
	differ := false
	for _, f := range found {
		words = append(words, "with "+f.library+" "+map[int]string{cannotTell: "it cannot be told",
			bothAlike: "both are alike", firstFaster: cipherWords[chacha] + " is faster",
			secondFaster: cipherWords["aes-128-gcm"] + " is faster"}[f.outcome])
		speeds = append(speeds, f.speeds...)
		differ = differ || f.outcome != found[0].outcome
	}

	if !differ {
		return all
	}

	said := false
	for _, a := range all {
		switch {
		case a.Kind != AdviceVPN:
			out = append(out, a)
		case !said:
			said = true
			out = append(out, Advice{AdviceVPN, "", "The libraries differ: " + strings.Join(words, ", ") +
				". OpenVPN goes by openssl, WireGuard in userspace by Go's library, IPsec by the kernel's." +
				doubted(speeds...), ""})
		}
	}

	return out
}

func advise(library string, results []Result) (out []Advice, found *finding) {
	say := func(kind, cipher, format string, args ...any) {
		out = append(out, Advice{kind, library, fmt.Sprintf(format, args...), cipher})
	}
	block, mode := comparable(library, results)
	find := func(algorithm, operation string) (speed, bool) {
		a, _ := cipher.Named(algorithm)
		want := cipher.Cell{Library: library, Algorithm: algorithm, Operation: operation, Threads: 1}
		if a.Blocks() {
			want.Block = block
		}

		if a.AEAD {
			want.Mode = mode
		}

		i := slices.IndexFunc(results, func(r Result) bool { return r.Cell == want })
		if i < 0 {
			return speed{}, false
		}

		return speedOf(results[i]), true
	}
	c, okC := find(chacha, cipher.Encrypt)
	gcm, okG := find("aes-128-gcm", cipher.Encrypt)
	if okC && okG {
		in := fmt.Sprintf("per core in blocks of %d bytes", block)
		doubt := doubted(c, gcm)
		speeds := fmt.Sprintf("%s and %s %s", goodput(max(c.median, gcm.median)),
			goodput(min(c.median, gcm.median)), in)
		found = &finding{library, compare(c, gcm), []speed{c, gcm}}
		switch n := min(c.n, gcm.n); found.outcome {
		case bothAlike:
			say(AdviceCipher, "", "ChaCha20-Poly1305 and AES-128-GCM are alike (%s): the cipher does not "+
				"decide.%s", speeds, doubt)
			say(AdviceVPN, "", "Any VPN will do as far as the cipher goes; WireGuard is the simplest.%s",
				doubt)
		case firstFaster:
			say(AdviceCipher, chacha, "ChaCha20-Poly1305: %s as fast as AES-128-GCM (%s).%s",
				times(c.median/gcm.median), speeds, doubt)
			say(AdviceVPN, chacha, "WireGuard, which always uses it; OpenVPN with data-ciphers "+
				"CHACHA20-POLY1305, IPsec with chacha20poly1305.%s", doubt)
		case secondFaster:
			say(AdviceCipher, "aes-128-gcm", "AES-128-GCM: %s as fast as ChaCha20-Poly1305 (%s).%s",
				times(gcm.median/c.median), speeds, doubt)
			say(AdviceVPN, "aes-128-gcm", "IPsec with aes128gcm16, or OpenVPN with data-ciphers "+
				"AES-128-GCM, in the kernel (DCO) where it can be. WireGuard has ChaCha20-Poly1305 alone: "+
				"by this figure at most %s per core.%s", goodput(c.median), doubt)
		default:
			why := fmt.Sprintf("their intervals are %s and %s %s", c.interval(), gcm.interval(), in)
			if n < statistics.MinInterval {
				why = fmt.Sprintf("%s, an interval needs %d", unit.Count(n, "repetition"),
					statistics.MinInterval)
			}

			say(AdviceCipher, "", "cannot tell whether ChaCha20-Poly1305 or AES-128-GCM is faster by %s or "+
				"more: %s.%s", unit.Significant((alike-1)*100, 2)+" %", why, doubt)
		}
	}

	if cbc, ok := find("aes-128-cbc", cipher.Encrypt); ok && okG {
		if sha, ok := find("sha256", cipher.Hash); ok {
			// CBC does not authenticate, so each byte is encrypted and then hashed.
			together := cbc.after(sha)
			word := map[int]string{bothAlike: "about as fast as", firstFaster: "faster than",
				secondFaster: "slower than"}[compare(together, gcm)]
			if word != "" {
				say(AdviceCipher, "", "AES-128-CBC with HMAC-SHA-256, of older IPsec and OpenVPN: %s of "+
					"both together, %s AES-128-GCM.%s", goodput(together.median), word,
					doubted(together, gcm))
			}
		}
	}

	return append(out, adviseKeys(library, find)...), found
}

// adviseKeys compares the speeds of the operations in a handshake.
func adviseKeys(library string, find func(string, string) (speed, bool)) (out []Advice) {
	for _, p := range []struct{ short, long, operation, word string }{
		{"x25519", "x448", cipher.Derive, "shared keys"}, {"ed25519", "ed448", cipher.Sign, "signatures"},
	} {
		a, okA := find(p.short, p.operation)
		b, okB := find(p.long, p.operation)
		if !okA || !okB {
			continue
		}

		fast := p.short
		slow := p.long
		ratio := a.median / b.median
		switch compare(a, b) {
		case cannotTell, bothAlike:
			continue
		case secondFaster:
			fast, slow, ratio = slow, fast, 1/ratio
		}

		out = append(out, Advice{AdviceKeys, library, fmt.Sprintf("%s: %s the %s per second of %s; one "+
			"takes %s.%s", cipherWords[fast], times(ratio), p.word, cipherWords[slow],
			unit.Nanoseconds(1e9/max(a.median, b.median)), doubted(a, b)), fast})
	}
	return out
}

// AdviseHardware describes the CPU's AES instructions, or their absence.
func AdviseHardware(cpu CPU) []Advice {
	for _, f := range cpu.Features {
		if f.Name != features[0].Name {
			continue
		}

		text := "The kernel reports no instructions for AES: without them, ChaCha20 is usually faster than " +
			"AES."
		if len(f.Flags) > 0 {
			text = "The CPU has instructions for AES: a library that uses them is fast at AES."
		}

		return []Advice{{AdviceHardware, "", text, ""}}
	}
	return nil
}

// comparable returns the block size and mode in which a library's AEADs are compared. The block size is the
// one nearest to the size of a WireGuard packet. The mode is packet mode if it was measured.
func comparable(library string, results []Result) (block int, mode string) {
	distance := math.MaxInt
	for _, r := range results {
		if r.Library != library || r.Block == 0 || r.Threads != 1 {
			continue
		}

		d := max(r.Block-cipher.Packet, cipher.Packet-r.Block)
		if d < distance {
			distance = d
			block = r.Block
		}
	}

	mode = cipher.ModeEVP
	if slices.ContainsFunc(results, func(r Result) bool {
		return r.Library == library && r.Block == block && r.Mode == cipher.ModeAEAD && r.Algorithm == chacha
	}) {
		mode = cipher.ModeAEAD
	}

	return block, mode
}

// goodput formats a rate in bytes per second as bit/s.
func goodput(rate float64) string { return unit.Bitrate(8 * rate).String() }

func times(ratio float64) string { return unit.Significant(ratio, 2) + " times" }
