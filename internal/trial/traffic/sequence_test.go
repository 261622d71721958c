package traffic

import (
	"math/rand/v2"
	"testing"
)

// arrivals makes numbers 0…n-1 arrive with loss, duplicates and local disorder.
func arrivals(r *rand.Rand, n int) []uint64 {
	var out []uint64
	for i := range n {
		switch k := r.IntN(20); k {
		case 0: // lost
		case 1:
			out = append(out, uint64(i), uint64(i))
		default:
			out = append(out, uint64(i))
		}
	}
	for i := range out {
		if r.IntN(10) == 0 {
			j := min(len(out)-1, i+r.IntN(50))
			out[i], out[j] = out[j], out[i]
		}
	}
	return out
}

// model counts in the plainest way.
func model(in []uint64, total int) (received, lost, duplicates, reordered int64) {
	seen := map[uint64]bool{}
	highest := int64(-1)
	for _, n := range in {
		if seen[n] {
			duplicates++
			continue
		}
		seen[n] = true
		received++
		if int64(n) < highest {
			reordered++
		}
		highest = max(highest, int64(n))
	}
	return received, int64(total) - received, duplicates, reordered
}

func TestSequenceMatchesModel(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		total := 1 + r.IntN(5000)
		in := arrivals(r, total)
		s := newSequence(sequenceMemory)
		for _, n := range in {
			s.see(n)
		}
		if !s.finish(uint64(total)) {
			t.Fatalf("seed %d: numbers beyond %d", seed, total)
		}
		received, lost, duplicates, reordered := model(in, total)
		if s.received != received || s.lost != lost || s.duplicates != duplicates ||
			s.reordered != reordered {
			t.Fatalf("seed %d: got received %d lost %d duplicates %d reordered %d, want %d %d %d %d", seed,
				s.received, s.lost, s.duplicates, s.reordered, received, lost, duplicates, reordered)
		}
	}
}

func TestSequenceEdges(t *testing.T) {
	for _, tc := range []struct {
		name                                     string
		in                                       []uint64
		total                                    uint64
		received, lost, dup, late, old, nonsense int64
		contradicts                              bool
	}{
		{name: "nothing arrives", total: 7, lost: 7},
		{name: "tail is missing", in: []uint64{0, 1}, total: 5, received: 2, lost: 3},
		{name: "head is missing", in: []uint64{3}, total: 4, received: 1, lost: 3},
		{name: "a gap larger than the memory", in: []uint64{0, sequenceMemory + 5, 1, 5, 70, 0},
			total:    sequenceMemory + 6,
			received: 3, lost: sequenceMemory + 3, late: 1, old: 3},
		{name: "around the ring", in: []uint64{sequenceMemory - 1, sequenceMemory, sequenceMemory - 1},
			total:    sequenceMemory + 1,
			received: 2, lost: sequenceMemory - 1, dup: 1},
		{name: "a damaged number", in: []uint64{0, 1 << 50, 1}, total: 2, received: 2, nonsense: 1},
		{name: "more than were sent", in: []uint64{9}, total: 4, received: 1, lost: 9, contradicts: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSequence(sequenceMemory)
			for _, n := range tc.in {
				s.see(n)
			}
			if ok := s.finish(tc.total); ok == tc.contradicts {
				t.Errorf("finish = %v", ok)
			}
			got := [...]int64{s.received, s.lost, s.duplicates, s.reordered, s.ancient, s.strange}
			if want := [...]int64{tc.received, tc.lost, tc.dup, tc.late, tc.old, tc.nonsense}; got != want {
				t.Errorf("received, lost, duplicates, reordered, ancient, strange: got %v, want %v", got,
					want)
			}
			if !tc.contradicts && s.received+s.lost != int64(tc.total) {
				t.Errorf("received %d + lost %d is not %d", s.received, s.lost, tc.total)
			}
		})
	}
}

func FuzzSequence(f *testing.F) {
	f.Add([]byte{1, 1, 0, 255, 3})
	f.Fuzz(func(t *testing.T, steps []byte) {
		s := newSequence(sequenceMemory)
		at := uint64(0)
		for _, b := range steps {
			at += uint64(int64(int8(b))) // may wrap below zero: a damaged number
			s.see(at)
		}
		if s.received+s.lost != int64(s.next) || s.lost < 0 {
			t.Errorf("received %d + lost %d, highest %d", s.received, s.lost, s.next)
		}
		if n := s.received + s.duplicates + s.ancient + s.strange; n != int64(len(steps)) {
			t.Errorf("%d arrivals accounted for, want %d", n, len(steps))
		}
	})
}

func BenchmarkSequenceInOrder(b *testing.B) {
	s := newSequence(sequenceMemory)
	for i := 0; b.Loop(); i++ {
		s.see(uint64(i))
	}
}

func BenchmarkSequenceDisorder(b *testing.B) {
	in := arrivals(rand.New(rand.NewPCG(1, 1)), 1<<16)
	s := newSequence(sequenceMemory)
	base := uint64(0)
	for i := 0; b.Loop(); i++ {
		if i == len(in) {
			i, base = 0, base+1<<16
		}
		s.see(base + in[i])
	}
}

// TestShortNumbersGoOnBeyond32Bits: of numbers on the wire 32 bits are known.
func TestShortNumbersGoOnBeyond32Bits(t *testing.T) {
	s := newSequence(sequenceMemory)
	for _, n := range []uint32{0, 1 << 30, 2 << 30, 3 << 30, 1<<32 - 1, 1, 0} {
		s.see32(n)
	}
	if s.next != 1<<32+2 || s.received != 7 || s.reordered != 1 || s.lost != 1<<32+2-7 || s.strange != 0 {
		t.Errorf("got next %d, received %d, reordered %d, lost %d, strange %d", s.next, s.received,
			s.reordered, s.lost, s.strange)
	}
	first := newSequence(sequenceMemory)
	first.see32(1<<32 - 1) // before the first
	if first.strange != 1 || first.received != 0 {
		t.Errorf("a number before the first: got %d strange, %d received, want 1 and 0", first.strange,
			first.received)
	}
}
