package ciphers_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/ciphers"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
	"github.com/chokepoint-lab/chokepoint/internal/cipher"
)

// TestPublishedConclusions: a CPU without instructions for AES is told to use ChaCha20-Poly1305, one with
// them AES, from the figures of the catalogue.
func TestPublishedConclusions(t *testing.T) {
	c, err := catalogue.Published()
	if err != nil {
		t.Fatal(err)
	}

	for device, want := range map[string][2]string{
		"mt7621":  {"chacha20-poly1305", "WireGuard"},
		"bcm4708": {"chacha20-poly1305", "WireGuard"},
		"mt7622":  {"aes-128-gcm", "IPsec"},
	} {
		results := ciphers.OfPublished(c.SpeedsOf(device))
		if len(results) != 14 {
			t.Errorf("%s: got %d published figures, want 14", device, len(results))
		}

		advice := ciphers.Advise(results)
		got := map[string]string{}
		for _, a := range advice {
			if a.Cipher != "" {
				got[a.Kind] = a.Cipher
			}

			if a.Kind == ciphers.AdviceVPN && !strings.HasPrefix(a.Text, want[1]) {
				t.Errorf("%s: got %q, want %s", device, a.Text, want[1])
			}

			t.Logf("%s: %s: %s", device, a.Kind, a.Text)
		}

		if got[ciphers.AdviceCipher] != want[0] || got[ciphers.AdviceVPN] != want[0] {
			t.Errorf("%s: got %v, want %s", device, got, want[0])
		}
	}
}

// measured is a cell with its repetitions.
func measured(c cipher.Cell, rates ...float64) ciphers.Result {
	return ciphers.Result{Cell: c, Unit: c.Unit(), Rate: statistics.Summarise(rates)}
}

// spread are six rates around a middle one, from so much of it below to so much above.
func spread(rate, share float64) (out []float64) {
	for i := range 6 {
		out = append(out, rate*(1+share*(float64(i)/2.5-1)))
	}
	return out
}

// TestAdviceNeedsIntervals: speeds whose intervals overlap, or that have none, decide nothing; what makes
// figures doubtful stands beside what rests on them; libraries that differ are told together.
func TestAdviceNeedsIntervals(t *testing.T) {
	at := func(library, algorithm string, rates ...float64) ciphers.Result {
		return measured(cipher.Cell{
			Library:   library,
			Algorithm: algorithm,
			Operation: cipher.Encrypt,
			Mode:      cipher.ModeAEAD,
			Block:     1420,
			Threads:   1,
		}, rates...)
	}
	key := func(algorithm string, rates ...float64) ciphers.Result {
		return measured(cipher.Cell{
			Library:   cipher.OpenSSL,
			Algorithm: algorithm,
			Operation: cipher.Derive,
			Threads:   1,
		}, rates...)
	}
	const aes, chacha = "aes-128-gcm", "chacha20-poly1305"
	busy := at(cipher.OpenSSL, aes, spread(3e9, .01)...)
	busy.Doubts = append(busy.Doubts, ciphers.Doubt{Kind: "background-load"})
	moved := at(cipher.OpenSSL, chacha, spread(1e9, .1)...)
	moved.Doubts = append(moved.Doubts, ciphers.Doubt{Kind: "throttled"})
	for _, tt := range []struct {
		name    string
		results []ciphers.Result
		want    []string // beginnings and parts of the advice, in order
	}{
		{"overlap", []ciphers.Result{at(cipher.OpenSSL, chacha, spread(6e9/8, .4)...),
			at(cipher.OpenSSL, aes, spread(5e9/8, .4)...)},
			[]string{"cipher openssl cannot tell * " +
				"3.60 Gbit/s to 8.40 Gbit/s and 3.00 Gbit/s to 7.00 Gbit/s"}},
		{"few", []ciphers.Result{at(cipher.OpenSSL, chacha, 1e9), at(cipher.OpenSSL, aes, 9e9),
			key("x25519", 1e4), key("x448", 1e3)},
			[]string{"cipher openssl cannot tell * " +
				"faster by 10 % or more: 1 repetition, an interval needs 6."}},
		{"decided", []ciphers.Result{at(cipher.OpenSSL, chacha, spread(1e9, .01)...),
			at(cipher.OpenSSL, aes, spread(3e9, .01)...), key("x25519", spread(1e4, .01)...),
			key("x448", spread(1e3, .01)...)},
			[]string{"cipher openssl AES-128-GCM: 3.0 times", "vpn openssl IPsec",
				"keys openssl X25519: 10 "}},
		{"in doubt", []ciphers.Result{moved, busy},
			[]string{"cipher openssl AES-128-GCM: 3.0 times * In doubt: background-load, throttled.",
				"vpn openssl IPsec * In doubt: background-load, throttled."}},
		{"a little", []ciphers.Result{at(cipher.OpenSSL, chacha, spread(1e9, .03)...),
			at(cipher.OpenSSL, aes, spread(1.08e9, .03)...)}, []string{"cipher openssl cannot tell "}},
		{"libraries that differ", []ciphers.Result{at(cipher.OpenSSL, chacha, spread(3e9, .01)...),
			at(cipher.OpenSSL, aes, spread(1e9, .01)...), at(cipher.Go, chacha, spread(1e9, .01)...),
			at(cipher.Go, aes, spread(3e9, .01)...)},
			[]string{"cipher openssl ChaCha20", "vpn  The libraries differ: with openssl ChaCha20-Poly1305 " +
				"is faster, with go AES-128-GCM is faster. ", "cipher go AES-128-GCM"}},
		{"one that cannot tell", []ciphers.Result{at(cipher.OpenSSL, chacha, spread(6e9/8, .4)...),
			at(cipher.OpenSSL, aes, spread(5e9/8, .4)...), at(cipher.Go, chacha, spread(1e9, .01)...),
			at(cipher.Go, aes, spread(3e9, .01)...)},
			[]string{"cipher openssl cannot tell", "cipher go AES-128-GCM", "vpn  The libraries differ: " +
				"with openssl it cannot be told, with go AES-128-GCM is faster. "}},
		{"one that has both alike", []ciphers.Result{at(cipher.OpenSSL, chacha, spread(1e9, .002)...),
			at(cipher.OpenSSL, aes, spread(1.01e9, .002)...), at(cipher.Go, chacha, spread(3e9, .01)...),
			at(cipher.Go, aes, spread(1e9, .01)...)},
			[]string{"cipher openssl ChaCha20-Poly1305 and AES-128-GCM are alike", "vpn  The libraries " +
				"differ: with openssl both are alike, with go ChaCha20-Poly1305 is faster. ",
				"cipher go ChaCha20"}},
		{"libraries that agree", []ciphers.Result{at(cipher.OpenSSL, chacha, spread(1e9, .01)...),
			at(cipher.OpenSSL, aes, spread(3e9, .01)...), at(cipher.Go, chacha, spread(1e9, .01)...),
			at(cipher.Go, aes, spread(3e9, .01)...)},
			[]string{"cipher openssl AES-128-GCM", "vpn openssl IPsec", "cipher go AES-128-GCM",
				"vpn go IPsec"}},
	} {
		got := ciphers.Advise(tt.results)
		if len(got) != len(tt.want) {
			t.Errorf("%s: got %+v, want %q", tt.name, got, tt.want)
			continue
		}

		for i, a := range got {
			begin, part, _ := strings.Cut(tt.want[i], " * ")
			text := a.Kind + " " + a.Library + " " + a.Text
			if !strings.HasPrefix(text, begin) ||
				!strings.Contains(text, part) {
				t.Errorf("%s: got %q, want %q", tt.name, text, tt.want[i])
			}
		}
	}
}

// TestAdviceComparesLikeWithLike: the figures of two libraries, modes or sizes decide nothing together.
func TestAdviceComparesLikeWithLike(t *testing.T) {
	at := func(library, algorithm, mode string, block int, rate float64) ciphers.Result {
		return measured(cipher.Cell{
			Library:   library,
			Algorithm: algorithm,
			Operation: cipher.Encrypt,
			Mode:      mode,
			Block:     block,
			Threads:   1,
		}, spread(rate, .002)...)
	}
	for name, results := range map[string][]ciphers.Result{
		"libraries": {at(cipher.OpenSSL, "aes-128-gcm", cipher.ModeAEAD, 1420, 9e9),
			at(cipher.Go, "chacha20-poly1305", cipher.ModeAEAD, 1420, 1e9)},
		"modes": {at(cipher.OpenSSL, "aes-128-gcm", cipher.ModeEVP, 1420, 9e9),
			at(cipher.OpenSSL, "chacha20-poly1305", cipher.ModeAEAD, 1420, 1e9)},
		"sizes": {at(cipher.OpenSSL, "aes-128-gcm", cipher.ModeEVP, 16384, 9e9),
			at(cipher.OpenSSL, "chacha20-poly1305", cipher.ModeEVP, 1420, 1e9)},
	} {
		if got := ciphers.Advise(results); len(got) > 0 {
			t.Errorf("different %s: got %+v, want no advice", name, got)
		}
	}

	got := ciphers.Advise([]ciphers.Result{at(cipher.Go, "aes-128-gcm", cipher.ModeAEAD, 1420, 1.05e9),
		at(cipher.Go, "chacha20-poly1305", cipher.ModeAEAD, 1420, 1e9)})
	if len(got) != 2 || got[0].Cipher != "" || !strings.Contains(got[0].Text, "alike") {
		t.Errorf("5 %% apart: got %+v, want that they are alike", got)
	}
}

func TestFeatures(t *testing.T) {
	got := ciphers.Features(strings.Fields("aes pclmulqdq avx2 dsp"))
	diff := cmp.Diff([]string{"aes"}, got[0].Flags)
	if diff != "" {
		t.Errorf("AES (-want +got):\n%s", diff)
	}

	for flags, want := range map[string]string{"aes": "has instructions for AES",
		"dsp mips16": "no instructions for AES"} {
		a := ciphers.AdviseHardware(ciphers.CPU{Features: ciphers.Features(strings.Fields(flags))})
		if len(a) != 1 || !strings.Contains(a[0].Text, want) {
			t.Errorf("%s: got %+v, want %q", flags, a, want)
		}
	}
}
