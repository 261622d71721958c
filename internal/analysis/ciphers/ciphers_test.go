package ciphers_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/ciphers"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
)

func read(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParseSpeed(t *testing.T) {
	for _, tt := range []struct {
		file string
		cell ciphers.Cell
		want map[string]float64
	}{
		{"speed-packet.txt", ciphers.Cell{Algorithm: "aes-128-gcm", Operation: ciphers.Decrypt, Block: 1420},
			map[string]float64{ciphers.Decrypt: 466978360}},
		{"speed-multi.txt", ciphers.Cell{Algorithm: "sha1", Operation: ciphers.Hash, Block: 1420},
			map[string]float64{ciphers.Hash: 301579417.23}},
		{"speed-signature.txt", ciphers.Cell{Algorithm: "ed448", Operation: ciphers.Sign},
			map[string]float64{ciphers.Sign: 1808, ciphers.Verify: 1394}},
		{"speed-multi-signature.txt", ciphers.Cell{Algorithm: "ed25519", Operation: ciphers.Sign},
			map[string]float64{ciphers.Sign: 15235.792453, ciphers.Verify: 4271}},
		{"speed-derive.txt", ciphers.Cell{Algorithm: "x25519", Operation: ciphers.Derive},
			map[string]float64{ciphers.Derive: 10676.237624}},
		{"speed-multi-derive.txt", ciphers.Cell{Algorithm: "x448", Operation: ciphers.Derive},
			map[string]float64{ciphers.Derive: 834.158416}},
		{"speed-1.1.1.txt", ciphers.Cell{Algorithm: "aes-128-gcm", Operation: ciphers.Encrypt, Block: 16384},
			map[string]float64{ciphers.Encrypt: 6e6}},
	} {
		s, err := ciphers.ParseSpeed(read(t, tt.file))
		if err != nil {
			t.Errorf("%s: %v", tt.file, err)
			continue
		}
		got, err := s.Of(tt.cell)
		if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", tt.file, err, diff)
		}
		tt.cell.Block += 7
		if got, err := s.Of(tt.cell); err == nil {
			t.Errorf("%s, another size of block: got %v, want an error", tt.file, got)
		}
	}
}

func TestParseSpeedRefuses(t *testing.T) {
	for _, text := range []string{"", "speed: Unknown algorithm md9\n", "+F:1:sha1:100\n",
		"+H:16\n+F:1:sha1\n", "+H:16\n+F:1:sha1:-1\n", "+H:16\n+F:1:sha1:0\n", "+H:16\n+F:1:sha1:NaN\n", "+H:16\n+F:1:sha1:Inf\n",
		"+H:-3\n", "+F5:1\n", "+F6:0:253:Ed25519:1\n", "+F5:22:253:x:0.1\n"} {
		if s, err := ciphers.ParseSpeed([]byte(text)); err == nil {
			t.Errorf("%q: got %+v, want an error", text, s)
		}
	}
}

func FuzzParseSpeed(f *testing.F) {
	files, _ := filepath.Glob("testdata/speed-*.txt")
	for _, name := range files {
		f.Add(read(f, filepath.Base(name)))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := ciphers.ParseSpeed(text)
		if err != nil {
			return
		}
		for _, v := range s.Ops {
			if !(v > 0) {
				t.Errorf("operations: got %v, want more than none", v)
			}
		}
		for size, v := range s.Bytes {
			if size <= 0 || !(v > 0) {
				t.Errorf("%d bytes: got %v, want more than none", size, v)
			}
		}
	})
}

// openSSLCells are those of an algorithm in openssl with two threads, AEADs in both modes: a block that is no
// packet only as published tables have it.
func openSSLCells(a ciphers.Algorithm, blocks ...int) (cells []ciphers.Cell) {
	modes := []string{""}
	if a.AEAD {
		modes = []string{ciphers.ModeEVP, ciphers.ModeAEAD}
	}
	if !a.Blocks() {
		blocks = []int{0}
	}
	for _, operation := range a.Operations {
		for _, mode := range modes {
			for _, block := range blocks {
				if mode == ciphers.ModeAEAD && block >= ciphers.Published {
					continue
				}
				cells = append(cells, ciphers.Cell{Library: ciphers.OpenSSL, Algorithm: a.Name,
					Operation: operation, Mode: mode, Block: block, Threads: 2})
			}
		}
	}
	return cells
}

func TestCommand(t *testing.T) {
	a, _ := ciphers.Named("chacha20-poly1305")
	var got []string
	for _, c := range openSSLCells(a, ciphers.Published, ciphers.Packet) {
		got = append(got, strings.Join(c.Command(3), " "))
	}
	const speed = "speed -mr -elapsed -seconds 3 -multi 2 -bytes "
	want := []string{
		speed + "16384 -evp chacha20-poly1305", speed + "1420 -evp chacha20-poly1305",
		speed + "1420 -aead -evp chacha20-poly1305",
		speed + "16384 -decrypt -evp chacha20-poly1305", speed + "1420 -decrypt -evp chacha20-poly1305",
		speed + "1420 -decrypt -aead -evp chacha20-poly1305",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
	key := ciphers.Cell{Library: ciphers.OpenSSL, Algorithm: "x448", Operation: ciphers.Derive, Threads: 1}
	if got, want := strings.Join(key.Command(1), " "), "speed -mr -elapsed -seconds 1 ecdhx448"; got != want {
		t.Errorf("command: got %q, want %q", got, want)
	}
}

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
func measured(c ciphers.Cell, rates ...float64) ciphers.Result {
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
		return measured(ciphers.Cell{Library: library, Algorithm: algorithm, Operation: ciphers.Encrypt,
			Mode: ciphers.ModeAEAD, Block: 1420, Threads: 1}, rates...)
	}
	key := func(algorithm string, rates ...float64) ciphers.Result {
		return measured(ciphers.Cell{Library: ciphers.OpenSSL, Algorithm: algorithm,
			Operation: ciphers.Derive, Threads: 1}, rates...)
	}
	const aes, chacha = "aes-128-gcm", "chacha20-poly1305"
	busy := at(ciphers.OpenSSL, aes, spread(3e9, .01)...)
	busy.Doubts = append(busy.Doubts, ciphers.Doubt{Kind: "background-load"})
	moved := at(ciphers.OpenSSL, chacha, spread(1e9, .1)...)
	moved.Doubts = append(moved.Doubts, ciphers.Doubt{Kind: "throttled"})
	for _, tt := range []struct {
		name    string
		results []ciphers.Result
		want    []string // beginnings and parts of the advice, in order
	}{
		{"overlap", []ciphers.Result{at(ciphers.OpenSSL, chacha, spread(6e9/8, .4)...),
			at(ciphers.OpenSSL, aes, spread(5e9/8, .4)...)},
			[]string{"cipher openssl cannot tell * " +
				"3.60 Gbit/s to 8.40 Gbit/s and 3.00 Gbit/s to 7.00 Gbit/s"}},
		{"few", []ciphers.Result{at(ciphers.OpenSSL, chacha, 1e9), at(ciphers.OpenSSL, aes, 9e9),
			key("x25519", 1e4), key("x448", 1e3)},
			[]string{"cipher openssl cannot tell * " +
				"faster by 10 % or more: 1 repetition, an interval needs 6."}},
		{"decided", []ciphers.Result{at(ciphers.OpenSSL, chacha, spread(1e9, .01)...),
			at(ciphers.OpenSSL, aes, spread(3e9, .01)...), key("x25519", spread(1e4, .01)...),
			key("x448", spread(1e3, .01)...)},
			[]string{"cipher openssl AES-128-GCM: 3.0 times", "vpn openssl IPsec",
				"keys openssl X25519: 10 "}},
		{"in doubt", []ciphers.Result{moved, busy},
			[]string{"cipher openssl AES-128-GCM: 3.0 times * In doubt: background-load, throttled.",
				"vpn openssl IPsec * In doubt: background-load, throttled."}},
		{"a little", []ciphers.Result{at(ciphers.OpenSSL, chacha, spread(1e9, .03)...),
			at(ciphers.OpenSSL, aes, spread(1.08e9, .03)...)}, []string{"cipher openssl cannot tell "}},
		{"libraries that differ", []ciphers.Result{at(ciphers.OpenSSL, chacha, spread(3e9, .01)...),
			at(ciphers.OpenSSL, aes, spread(1e9, .01)...), at(ciphers.Go, chacha, spread(1e9, .01)...),
			at(ciphers.Go, aes, spread(3e9, .01)...)},
			[]string{"cipher openssl ChaCha20", "vpn  The libraries differ: with openssl ChaCha20-Poly1305 " +
				"is faster, with go AES-128-GCM is faster. ", "cipher go AES-128-GCM"}},
		{"one that cannot tell", []ciphers.Result{at(ciphers.OpenSSL, chacha, spread(6e9/8, .4)...),
			at(ciphers.OpenSSL, aes, spread(5e9/8, .4)...), at(ciphers.Go, chacha, spread(1e9, .01)...),
			at(ciphers.Go, aes, spread(3e9, .01)...)},
			[]string{"cipher openssl cannot tell", "cipher go AES-128-GCM", "vpn  The libraries differ: " +
				"with openssl it cannot be told, with go AES-128-GCM is faster. "}},
		{"one that has both alike", []ciphers.Result{at(ciphers.OpenSSL, chacha, spread(1e9, .002)...),
			at(ciphers.OpenSSL, aes, spread(1.01e9, .002)...), at(ciphers.Go, chacha, spread(3e9, .01)...),
			at(ciphers.Go, aes, spread(1e9, .01)...)},
			[]string{"cipher openssl ChaCha20-Poly1305 and AES-128-GCM are alike", "vpn  The libraries " +
				"differ: with openssl both are alike, with go ChaCha20-Poly1305 is faster. ",
				"cipher go ChaCha20"}},
		{"libraries that agree", []ciphers.Result{at(ciphers.OpenSSL, chacha, spread(1e9, .01)...),
			at(ciphers.OpenSSL, aes, spread(3e9, .01)...), at(ciphers.Go, chacha, spread(1e9, .01)...),
			at(ciphers.Go, aes, spread(3e9, .01)...)},
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
			if text := a.Kind + " " + a.Library + " " + a.Text; !strings.HasPrefix(text, begin) ||
				!strings.Contains(text, part) {
				t.Errorf("%s: got %q, want %q", tt.name, text, tt.want[i])
			}
		}
	}
}

// TestAdviceComparesLikeWithLike: the figures of two libraries, modes or sizes decide nothing together.
func TestAdviceComparesLikeWithLike(t *testing.T) {
	at := func(library, algorithm, mode string, block int, rate float64) ciphers.Result {
		return measured(ciphers.Cell{Library: library, Algorithm: algorithm, Operation: ciphers.Encrypt,
			Mode: mode, Block: block, Threads: 1}, spread(rate, .002)...)
	}
	for name, results := range map[string][]ciphers.Result{
		"libraries": {at(ciphers.OpenSSL, "aes-128-gcm", ciphers.ModeAEAD, 1420, 9e9),
			at(ciphers.Go, "chacha20-poly1305", ciphers.ModeAEAD, 1420, 1e9)},
		"modes": {at(ciphers.OpenSSL, "aes-128-gcm", ciphers.ModeEVP, 1420, 9e9),
			at(ciphers.OpenSSL, "chacha20-poly1305", ciphers.ModeAEAD, 1420, 1e9)},
		"sizes": {at(ciphers.OpenSSL, "aes-128-gcm", ciphers.ModeEVP, 16384, 9e9),
			at(ciphers.OpenSSL, "chacha20-poly1305", ciphers.ModeEVP, 1420, 1e9)},
	} {
		if got := ciphers.Advise(results); len(got) > 0 {
			t.Errorf("different %s: got %+v, want no advice", name, got)
		}
	}
	got := ciphers.Advise([]ciphers.Result{at(ciphers.Go, "aes-128-gcm", ciphers.ModeAEAD, 1420, 1.05e9),
		at(ciphers.Go, "chacha20-poly1305", ciphers.ModeAEAD, 1420, 1e9)})
	if len(got) != 2 || got[0].Cipher != "" || !strings.Contains(got[0].Text, "alike") {
		t.Errorf("5 %% apart: got %+v, want that they are alike", got)
	}
}

func TestFeatures(t *testing.T) {
	got := ciphers.Features(strings.Fields("aes pclmulqdq avx2 dsp"))
	if diff := cmp.Diff([]string{"aes"}, got[0].Flags); diff != "" {
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

// TestInstalledOpenSSL: the program that is here prints what is read.
func TestInstalledOpenSSL(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("skip: no openssl here")
	}
	var all sync.WaitGroup
	for _, a := range ciphers.Algorithms() {
		for _, c := range openSSLCells(a, ciphers.Packet) {
			if c.Together()[0] != c.Operation || c.Operation == ciphers.Decrypt && !strings.HasSuffix(a.Name,
				"305") {
				continue // a second each: one of them will do
			}
			all.Go(func() { // how fast they are does not matter
				var rates map[string]float64
				out, err := exec.Command("openssl", c.Command(1)...).Output()
				if err == nil {
					var s ciphers.Speed
					if s, err = ciphers.ParseSpeed(out); err == nil {
						rates, err = s.Of(c)
					}
				}
				if err != nil || rates[c.Operation] <= 0 {
					t.Errorf("%v: got %v, %v", c, rates, err)
				}
			})
		}
	}
	all.Wait()
}
