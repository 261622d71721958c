package cipher_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/cipher"
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
		cell cipher.Cell
		want map[string]float64
	}{
		{"speed-packet.txt", cipher.Cell{Algorithm: "aes-128-gcm", Operation: cipher.Decrypt, Block: 1420},
			map[string]float64{cipher.Decrypt: 466978360}},
		{"speed-multi.txt", cipher.Cell{Algorithm: "sha1", Operation: cipher.Hash, Block: 1420},
			map[string]float64{cipher.Hash: 301579417.23}},
		{"speed-signature.txt", cipher.Cell{Algorithm: "ed448", Operation: cipher.Sign},
			map[string]float64{cipher.Sign: 1808, cipher.Verify: 1394}},
		{"speed-multi-signature.txt", cipher.Cell{Algorithm: "ed25519", Operation: cipher.Sign},
			map[string]float64{cipher.Sign: 15235.792453, cipher.Verify: 4271}},
		{"speed-derive.txt", cipher.Cell{Algorithm: "x25519", Operation: cipher.Derive},
			map[string]float64{cipher.Derive: 10676.237624}},
		{"speed-multi-derive.txt", cipher.Cell{Algorithm: "x448", Operation: cipher.Derive},
			map[string]float64{cipher.Derive: 834.158416}},
		{"speed-1.1.1.txt", cipher.Cell{Algorithm: "aes-128-gcm", Operation: cipher.Encrypt, Block: 16384},
			map[string]float64{cipher.Encrypt: 6e6}},
	} {
		s, err := cipher.ParseSpeed(read(t, tt.file))
		if err != nil {
			t.Errorf("%s: %v", tt.file, err)
			continue
		}

		got, err := s.Of(tt.cell)
		diff := cmp.Diff(tt.want, got)
		if err != nil || diff != "" {
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
		if s, err := cipher.ParseSpeed([]byte(text)); err == nil {
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
		s, err := cipher.ParseSpeed(text)
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

// openSSLCells returns those of an algorithm in openssl with two threads, AEADs in both modes: a block that
// is no packet only as published tables have it.
func openSSLCells(a cipher.Algorithm, blocks ...int) (cells []cipher.Cell) {
	modes := []string{""}
	if a.AEAD {
		modes = []string{cipher.ModeEVP, cipher.ModeAEAD}
	}

	if !a.Blocks() {
		blocks = []int{0}
	}

	for _, operation := range a.Operations {
		for _, mode := range modes {
			for _, block := range blocks {
				if mode == cipher.ModeAEAD && block >= cipher.Published {
					continue
				}

				cells = append(cells, cipher.Cell{
					Library:   cipher.OpenSSL,
					Algorithm: a.Name,
					Operation: operation,
					Mode:      mode,
					Block:     block,
					Threads:   2,
				})
			}
		}
	}

	return cells
}

func TestCommand(t *testing.T) {
	a, _ := cipher.Named("chacha20-poly1305")
	var got []string
	for _, c := range openSSLCells(a, cipher.Published, cipher.Packet) {
		got = append(got, strings.Join(c.Command(3), " "))
	}

	const speed = "speed -mr -elapsed -seconds 3 -multi 2 -bytes "
	want := []string{
		speed + "16384 -evp chacha20-poly1305", speed + "1420 -evp chacha20-poly1305",
		speed + "1420 -aead -evp chacha20-poly1305",
		speed + "16384 -decrypt -evp chacha20-poly1305", speed + "1420 -decrypt -evp chacha20-poly1305",
		speed + "1420 -decrypt -aead -evp chacha20-poly1305",
	}
	diff := cmp.Diff(want, got)
	if diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}

	key := cipher.Cell{Library: cipher.OpenSSL, Algorithm: "x448", Operation: cipher.Derive, Threads: 1}
	if got, want := strings.Join(key.Command(1), " "), "speed -mr -elapsed -seconds 1 ecdhx448"; got != want {
		t.Errorf("command: got %q, want %q", got, want)
	}
}

// TestInstalledOpenSSL: the program that is here prints what is read.
func TestInstalledOpenSSL(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("skip: no openssl here")
	}

	var all sync.WaitGroup
	for _, a := range cipher.Algorithms() {
		for _, c := range openSSLCells(a, cipher.Packet) {
			if c.Together()[0] != c.Operation || c.Operation == cipher.Decrypt && !strings.HasSuffix(a.Name,
				"305") {
				continue // a second each: one of them will do
			}

			all.Go(func() { // how fast they are does not matter
				var rates map[string]float64
				out, err := exec.Command("openssl", c.Command(1)...).Output()
				if err == nil {
					var s cipher.Speed
					if s, err = cipher.ParseSpeed(out); err == nil {
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
