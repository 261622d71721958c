package ciphers

import (
	"bytes"
	"crypto/aes"
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// ask has the node side measure something for a moment.
func ask(t *testing.T, verb string, q Request) (d Done, err error) {
	t.Helper()
	a := host.Inside(t.Context(), Handlers())
	defer a.Close()
	err = a.Invoke(t.Context(), verb, q, &d)
	return d, err
}

var offered = []struct{ algorithm, operation string }{
	{"aes-128-cbc", "encrypt"}, {"aes-128-cbc", "decrypt"}, {"aes-256-cbc", "encrypt"},
	{"aes-128-gcm", "encrypt"}, {"aes-128-gcm", "decrypt"}, {"aes-256-gcm", "encrypt"},
	{"aes-256-gcm", "decrypt"}, {"chacha20-poly1305", "encrypt"}, {"chacha20-poly1305", "decrypt"},
	{"sha1", "hash"}, {"sha256", "hash"}, {"sha512", "hash"}, {"blake2s256", "hash"}, {"blake2b512", "hash"},
}

func TestGo(t *testing.T) {
	keys := []struct{ algorithm, operation string }{{"x25519", "derive"}, {"ed25519", "sign"},
		{"ed25519", "verify"}}
	for _, o := range append(keys, offered...) {
		const long = 30 * time.Millisecond
		d, err := ask(t, VerbGo, Request{
			Algorithm: o.algorithm,
			Operation: o.operation,
			Block:     1420,
			Threads:   2,
			Ns:        int64(long),
		})
		if err != nil || d.Count < 2 || d.Ns < int64(long) {
			t.Errorf("%s %s: got %+v, %v, want two operations or more in %s", o.algorithm, o.operation, d,
				err, long)
		}
	}

	if _, err := ask(t, VerbGo, Request{
		Algorithm: "x448",
		Operation: "derive",
		Threads:   1,
		Ns:        1,
	}); !errors.Is(err, host.ErrUnsupported) {
		t.Errorf("x448: got %v, want %v", err, host.ErrUnsupported)
	}
}

// TestGoIsTheAlgorithm: what is timed makes what the standards say.
func TestGoIsTheAlgorithm(t *testing.T) {
	for _, tt := range []struct{ algorithm, want string }{ // of no byte (FIPS 180-4; RFC 7693 by its authors)
		{"sha1", "da39a3ee5e6b4b0d3255bfef95601890afd80709"},
		{"sha256", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
		{"blake2s256", "69217a3079908094e11121d042354a7c1f55b6482ca1a51e1b250dfd1ed0eef9"},
	} {
		w, err := goWorker(Request{Algorithm: tt.algorithm, Operation: "hash"})
		if err != nil || w.do() != nil || hex.EncodeToString(w.result()) != tt.want {
			t.Errorf("%s: got %x, %v, want %s", tt.algorithm, w.result(), err, tt.want)
		}
	}

	for _, algorithm := range []string{"aes-128-gcm", "aes-256-gcm", "chacha20-poly1305"} {
		w, err := goWorker(Request{Algorithm: algorithm, Operation: "decrypt", Block: 1420})
		if err != nil || w.do() != nil || !bytes.Equal(w.result(), filler(1420)) {
			t.Errorf("%s: opened something else than was sealed (%v)", algorithm, err)
		}
	}

	w, err := goWorker(Request{Algorithm: "aes-256-cbc", Operation: "encrypt", Block: 1420})
	if err != nil || w.do() != nil || len(w.result()) != 1424 {
		t.Fatalf("aes-256-cbc: got %d bytes, %v, want 1424: whole blocks", len(w.result()), err)
	}

	b, err := aes.NewCipher(filler(32))
	if err != nil {
		t.Fatal(err)
	}

	first := make([]byte, aes.BlockSize) // the first block and the vector are the same: their sum is 0
	b.Encrypt(first, first)
	if !bytes.Equal(w.result()[:aes.BlockSize], first) {
		t.Errorf("aes-256-cbc: got %x, want %x", w.result()[:aes.BlockSize], first)
	}
}

// TestKernel: what the kernel makes is compared with Go's when a worker is hired; a kernel without AF_ALG
// says so.
func TestKernel(t *testing.T) {
	for _, o := range offered {
		d, err := ask(t, VerbKernel, Request{
			Algorithm: o.algorithm,
			Operation: o.operation,
			Block:     1420,
			Threads:   2,
			Ns:        int64(20 * time.Millisecond),
		})
		switch {
		case errors.Is(err, host.ErrUnsupported):
			t.Logf("%s: %v", o.algorithm, err)
		case err != nil || d.Count < 2:
			t.Errorf("%s %s: got %+v, %v, want two operations or more", o.algorithm, o.operation, d, err)
		}
	}

	if _, err := ask(t, VerbKernel, Request{
		Algorithm: "ed448",
		Operation: "sign",
		Threads:   1,
		Ns:        1,
	}); !errors.Is(err, host.ErrUnsupported) {
		t.Errorf("ed448: got %v, want %v", err, host.ErrUnsupported)
	}
}

func TestRequestsAreBounded(t *testing.T) {
	good := Request{Algorithm: "sha1", Operation: "hash", Block: 1, Threads: 1, Ns: 1}
	for name, change := range map[string]func(*Request){
		"block":    func(q *Request) { q.Block = maxBlock + 1 },
		"negative": func(q *Request) { q.Block = -1 },
		"threads":  func(q *Request) { q.Threads = maxThreads + 1 },
		"none":     func(q *Request) { q.Threads = 0 },
		"time":     func(q *Request) { q.Ns = int64(maxTime) + 1 },
		"no time":  func(q *Request) { q.Ns = 0 },
	} {
		q := good
		change(&q)
		if d, err := ask(t, VerbGo, q); err == nil {
			t.Errorf("%s: got %+v, want it refused", name, d)
		}
	}
}
