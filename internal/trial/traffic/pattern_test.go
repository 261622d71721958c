package traffic

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

func TestPatternIsTheSameInAnyPieces(t *testing.T) {
	p := NewPattern("tag", 3)
	whole := make([]byte, 4096)
	p.Fill(whole, 0)
	r := rand.New(rand.NewPCG(1, 2))
	for at := 0; at < len(whole); {
		n := min(1+r.IntN(40), len(whole)-at)
		piece := make([]byte, n)
		p.Fill(piece, uint64(at))
		if !bytes.Equal(piece, whole[at:at+n]) {
			t.Fatalf("bytes %d to %d differ from the whole's", at, at+n)
		}

		bad := p.Mismatches(whole[at:at+n], uint64(at))
		if bad != 0 {
			t.Fatalf("bytes %d to %d: %d mismatches in sound bytes", at, at+n, bad)
		}

		at += n
	}
}

func TestPatternCountsEveryChangedByte(t *testing.T) {
	p := NewPattern("tag", 0)
	r := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		at := uint64(r.IntN(1000))
		b := make([]byte, 1+r.IntN(200))
		p.Fill(b, at)
		want := int64(0)
		for i := range b {
			if r.IntN(4) == 0 {
				b[i] ^= byte(1 + r.IntN(255))
				want++
			}
		}

		got := p.Mismatches(b, at)
		if got != want {
			t.Fatalf("%d bytes at %d: %d mismatches, want %d", len(b), at, got, want)
		}
	}
}

func TestPatternDependsOnPlaceAndFlow(t *testing.T) {
	p := NewPattern("tag", 0)
	b := make([]byte, 4096)
	p.Fill(b, 0)
	for name, bad := range map[string]int64{
		"moved by a word": p.Mismatches(b, 8),
		"moved by a byte": p.Mismatches(b, 1),
		"another flow":    NewPattern("tag", 1).Mismatches(b, 0),
		"another trial":   NewPattern("other", 0).Mismatches(b, 0),
	} {
		// By chance one byte in 256 agrees.
		if bad < 4096*9/10 {
			t.Errorf("%s: %d mismatches of 4096, want nearly all", name, bad)
		}
	}
}

func BenchmarkPatternCheck(b *testing.B) {
	p := NewPattern("tag", 0)
	buf := make([]byte, 64<<10)
	p.Fill(buf, 3)
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		if p.Mismatches(buf, 3) != 0 {
			b.Fatal("mismatch")
		}
	}
}

func BenchmarkPatternFill(b *testing.B) {
	p := NewPattern("tag", 0)
	buf := make([]byte, 64<<10)
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		p.Fill(buf, 0)
	}
}
