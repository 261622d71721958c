package traffic

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestGapsMatchModel: runs of lost numbers, with their lengths.
func TestGapsMatchModel(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		total := 1 + r.IntN(5000)
		in := arrivals(r, total)
		if seed%3 == 0 { // a long outage, beyond the memory of a small one
			from := r.IntN(total)
			to := from + r.IntN(total-from)
			in = slices.DeleteFunc(in, func(n uint64) bool { return int(n) >= from && int(n) < to })
		}

		s := NewSequence(1024)
		seen := make([]bool, total)
		for _, n := range in {
			before := s.Ancient
			s.See(n)
			if s.Ancient == before {
				seen[n] = true
			}
		}

		if !s.Finish(uint64(total)) {
			t.Fatalf("seed %d: does not finish", seed)
		}

		want := map[int64]int64{}
		run := int64(0)
		lost := int64(0)
		for _, ok := range append(seen, true) {
			if !ok {
				run++
				lost++
				continue
			}

			if run > 0 {
				want[gapBucket(run)]++
			}

			run = 0
		}

		got := map[int64]int64{}
		packets := int64(0)
		for _, g := range s.Gaps.List() {
			got[g.Length] = g.Gaps
			packets += g.Packets
		}

		if packets != s.Lost || lost != s.Lost {
			t.Fatalf("seed %d: gaps hold %d packets, %d were lost, want %d", seed, packets, s.Lost, lost)
		}

		if len(got) != len(want) {
			t.Fatalf("seed %d: got %v, want %v", seed, got, want)
		}

		for length, n := range want {
			if got[length] != n {
				t.Fatalf("seed %d: %d gaps of %d, want %d", seed, got[length], length, n)
			}
		}
	}
}

// gapBucket is the model's rounding: seven binary digits above 1024.
func gapBucket(n int64) int64 {
	if n <= exactGap {
		return n
	}

	unit := int64(1)
	for n/unit >= 128 {
		unit *= 2
	}

	return n / unit * unit
}

// TestSequenceLeaps: a leap beyond the memory costs no time and loses no number.
func TestSequenceLeaps(t *testing.T) {
	s := NewSequence(minMemory)
	s.See(0)
	s.See(1 << 31)
	s.See(1<<31 + 2)
	s.Finish(1<<31 + 10)
	packets := int64(0)
	for _, g := range s.Gaps.List() {
		packets += g.Packets
	}

	want := int64(1<<31 - 1 + 1 + 7)
	if s.Lost != want || packets != want || s.Received != 3 {
		t.Errorf("received %d, lost %d, in gaps %d; want 3, %d, %d", s.Received, s.Lost, packets, want, want)
	}
}

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
		s := NewSequence(sequenceMemory)
		for _, n := range in {
			s.See(n)
		}

		if !s.Finish(uint64(total)) {
			t.Fatalf("seed %d: numbers beyond %d", seed, total)
		}

		received, lost, duplicates, reordered := model(in, total)
		if s.Received != received || s.Lost != lost || s.Duplicates != duplicates ||
			s.Reordered != reordered {
			t.Fatalf("seed %d: got received %d lost %d duplicates %d reordered %d, want %d %d %d %d", seed,
				s.Received, s.Lost, s.Duplicates, s.Reordered, received, lost, duplicates, reordered)
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
		{
			name:     "a gap larger than the memory",
			in:       []uint64{0, sequenceMemory + 5, 1, 5, 70, 0},
			total:    sequenceMemory + 6,
			received: 3,
			lost:     sequenceMemory + 3,
			late:     1,
			old:      3,
		},
		{
			name:     "around the ring",
			in:       []uint64{sequenceMemory - 1, sequenceMemory, sequenceMemory - 1},
			total:    sequenceMemory + 1,
			received: 2,
			lost:     sequenceMemory - 1,
			dup:      1,
		},
		{name: "a damaged number", in: []uint64{0, 1 << 50, 1}, total: 2, received: 2, nonsense: 1},
		{name: "more than were sent", in: []uint64{9}, total: 4, received: 1, lost: 9, contradicts: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := NewSequence(sequenceMemory)
			for _, n := range tc.in {
				s.See(n)
			}

			if ok := s.Finish(tc.total); ok == tc.contradicts {
				t.Errorf("finish = %v", ok)
			}

			got := [...]int64{s.Received, s.Lost, s.Duplicates, s.Reordered, s.Ancient, s.Strange}
			want := [...]int64{tc.received, tc.lost, tc.dup, tc.late, tc.old, tc.nonsense}
			if got != want {
				t.Errorf("received, lost, duplicates, reordered, ancient, strange: got %v, want %v", got,
					want)
			}

			if !tc.contradicts && s.Received+s.Lost != int64(tc.total) {
				t.Errorf("received %d + lost %d is not %d", s.Received, s.Lost, tc.total)
			}
		})
	}
}

func FuzzSequence(f *testing.F) {
	f.Add([]byte{1, 1, 0, 255, 3})
	f.Fuzz(func(t *testing.T, steps []byte) {
		s := NewSequence(sequenceMemory)
		at := uint64(0)
		for _, b := range steps {
			at += uint64(int64(int8(b))) // may wrap below zero: a damaged number
			s.See(at)
		}

		if s.Received+s.Lost != int64(s.Next) || s.Lost < 0 {
			t.Errorf("received %d + lost %d, highest %d", s.Received, s.Lost, s.Next)
		}

		n := s.Received + s.Duplicates + s.Ancient + s.Strange
		if n != int64(len(steps)) {
			t.Errorf("%d arrivals accounted for, want %d", n, len(steps))
		}
	})
}

func BenchmarkSequenceInOrder(b *testing.B) {
	s := NewSequence(sequenceMemory)
	for i := 0; b.Loop(); i++ {
		s.See(uint64(i))
	}
}

func BenchmarkSequenceDisorder(b *testing.B) {
	in := arrivals(rand.New(rand.NewPCG(1, 1)), 1<<16)
	s := NewSequence(sequenceMemory)
	base := uint64(0)
	for i := 0; b.Loop(); i++ {
		if i == len(in) {
			i = 0
			base = base + 1<<16
		}

		s.See(base + in[i])
	}
}

// TestShortNumbersGoOnBeyond32Bits: of numbers on the wire 32 bits are known.
func TestShortNumbersGoOnBeyond32Bits(t *testing.T) {
	s := NewSequence(sequenceMemory)
	for _, n := range []uint32{0, 1 << 30, 2 << 30, 3 << 30, 1<<32 - 1, 1, 0} {
		s.See32(n)
	}

	if s.Next != 1<<32+2 || s.Received != 7 || s.Reordered != 1 || s.Lost != 1<<32+2-7 || s.Strange != 0 {
		t.Errorf("got next %d, received %d, reordered %d, lost %d, strange %d", s.Next, s.Received,
			s.Reordered, s.Lost, s.Strange)
	}

	first := NewSequence(sequenceMemory)
	first.See32(1<<32 - 1) // before the first
	if first.Strange != 1 || first.Received != 0 {
		t.Errorf("a number before the first: got %d strange, %d received, want 1 and 0", first.Strange,
			first.Received)
	}
}
