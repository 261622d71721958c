package traffic

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

func TestPatternIsTheSameInAnyPieces(t *testing.T) {
	p := newPattern("tag", 3)
	whole := make([]byte, 4096)
	p.fill(whole, 0)
	r := rand.New(rand.NewPCG(1, 2))
	for at := 0; at < len(whole); {
		n := min(1+r.IntN(40), len(whole)-at)
		piece := make([]byte, n)
		p.fill(piece, uint64(at))
		if !bytes.Equal(piece, whole[at:at+n]) {
			t.Fatalf("bytes %d to %d differ from the whole's", at, at+n)
		}
		if bad := p.mismatches(whole[at:at+n], uint64(at)); bad != 0 {
			t.Fatalf("bytes %d to %d: %d mismatches in sound bytes", at, at+n, bad)
		}
		at += n
	}
}

func TestPatternCountsEveryChangedByte(t *testing.T) {
	p := newPattern("tag", 0)
	r := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		at, b := uint64(r.IntN(1000)), make([]byte, 1+r.IntN(200))
		p.fill(b, at)
		want := int64(0)
		for i := range b {
			if r.IntN(4) == 0 {
				b[i] ^= byte(1 + r.IntN(255))
				want++
			}
		}
		if got := p.mismatches(b, at); got != want {
			t.Fatalf("%d bytes at %d: %d mismatches, want %d", len(b), at, got, want)
		}
	}
}

func TestPatternDependsOnPlaceAndFlow(t *testing.T) {
	p, b := newPattern("tag", 0), make([]byte, 4096)
	p.fill(b, 0)
	for name, bad := range map[string]int64{
		"moved by a word": p.mismatches(b, 8),
		"moved by a byte": p.mismatches(b, 1),
		"another flow":    newPattern("tag", 1).mismatches(b, 0),
		"another trial":   newPattern("other", 0).mismatches(b, 0),
	} {
		// By chance one byte in 256 agrees.
		if bad < 4096*9/10 {
			t.Errorf("%s: %d mismatches of 4096, want nearly all", name, bad)
		}
	}
}

func BenchmarkPatternCheck(b *testing.B) {
	p, buf := newPattern("tag", 0), make([]byte, 64<<10)
	p.fill(buf, 3)
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		if p.mismatches(buf, 3) != 0 {
			b.Fatal("mismatch")
		}
	}
}

func BenchmarkPatternFill(b *testing.B) {
	p, buf := newPattern("tag", 0), make([]byte, 64<<10)
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		p.fill(buf, 0)
	}
}
