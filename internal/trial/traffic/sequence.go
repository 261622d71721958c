package traffic

import (
	"maps"
	"math/bits"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Sequence follows the sequence numbers 0, 1, 2, … of one flow's measured window as they arrive. Lost is
// counted from gaps and taken back when a number arrives late, independently of the count of arrivals, so
// that received + lost = numbers used is a check and not a definition. A number is reordered if it arrives
// after a higher one (RFC 4737, section 3.3).
//
// It remembers only which recent numbers were seen. An older number may be a duplicate or late; it stays lost
// and is counted as ancient. A number that leaves the memory unseen is lost for good, and a run of such
// numbers is a gap.
type Sequence struct {
	Next       uint64 // highest seen + 1
	Received   int64
	Lost       int64
	Duplicates int64
	Reordered  int64
	Ancient    int64
	Strange    int64 // implausible: a damaged number
	Gaps       gaps
	run        int64    // how many of the last numbers that left the memory were lost
	entered    uint64   // words of 64 numbers that have entered the memory
	seen       []uint64 // a ring of words
}

const (
	sequenceMemory = 1 << 18 // numbers of all flows of one end; 0.26 s at 1 Mpps
	minMemory      = 1 << 12 // per flow if there are many
	sequenceLeap   = 1 << 32 // a larger step indicates damage, not loss
)

// NewSequence returns a sequence that remembers n numbers, a multiple of 64.
func NewSequence(numbers int) Sequence { return Sequence{seen: make([]uint64, numbers/64)} }

// MemoryOf returns the memory of each of several flows.
func MemoryOf(flows int) int { return max(sequenceMemory/max(flows, 1)&^63, minMemory) }

// See records one arrival, and reports whether it counts as received.
func (s *Sequence) See(n uint64) bool {
	switch {
	case n >= s.Next:
		if n-s.Next > sequenceLeap {
			s.Strange++
			return false
		}

		s.Lost += int64(n - s.Next)
		s.reach(n / 64)
		s.Next = n + 1
	case n/64+uint64(len(s.seen)) <= (s.Next-1)/64:
		s.Ancient++
		return false
	case s.seen[n/64%uint64(len(s.seen))]&(1<<(n%64)) != 0:
		s.Duplicates++
		return false
	default:
		s.Reordered++
		s.Lost--
	}

	s.seen[n/64%uint64(len(s.seen))] |= 1 << (n % 64)
	s.Received++
	return true
}

// See32 records an arrival for which only the last 32 bits of the number are known.
func (s *Sequence) See32(n uint32) {
	whole := int64(s.Next) + int64(int32(n-uint32(s.Next)))
	if whole < 0 {
		s.Strange++
		return
	}

	s.See(uint64(whole))
}

// reach adds the words up to the given one to the memory; it retires those whose place they take.
func (s *Sequence) reach(word uint64) {
	words := uint64(len(s.seen))
	for done := uint64(0); s.entered <= word; s.entered++ {
		if done == words { // the whole memory covers numbers that never arrived
			s.run += 64 * int64(word+1-s.entered)
			s.entered = word + 1
			return
		}

		i := s.entered % words
		if s.entered >= words {
			s.retire(s.seen[i], 64)
		}

		s.seen[i] = 0
		done++
	}
}

// retire counts the first n numbers of a word in the gaps.
func (s *Sequence) retire(word uint64, n int) {
	for n > 0 {
		lost := min(bits.TrailingZeros64(word), n)
		if lost > 0 {
			s.run += int64(lost)
			word = word >> lost
			n = n - lost
			continue
		}

		seen := min(bits.TrailingZeros64(^word), n)
		s.endGap()
		word = word >> seen
		n = n - seen
	}
}

func (s *Sequence) endGap() {
	if s.run > 0 {
		s.Gaps.add(s.run)
		s.run = 0
	}
}

// Finish adds the tail that never arrived, once total, the count of numbers used, is known, and closes the
// gaps. It returns false if higher numbers were seen.
func (s *Sequence) Finish(total uint64) bool {
	if s.Next > total {
		return false
	}

	s.Lost += int64(total - s.Next)
	s.Next = total
	if total == 0 {
		return true
	}

	s.reach((total - 1) / 64)
	words := uint64(len(s.seen))
	for w := s.entered - min(s.entered, words); w < s.entered; w++ {
		s.retire(s.seen[w%words], int(min(64, total-64*w)))
	}

	s.endGap()
	return true
}

// Packets returns the counts.
func (s *Sequence) Packets() record.Packets {
	return record.Packets{
		Received:   s.Received,
		Lost:       s.Lost,
		Duplicates: &s.Duplicates,
		Reordered:  &s.Reordered,
		Gaps:       s.Gaps.List(),
	}
}

// gaps counts runs of lost numbers by their length. Lengths up to exactGap are kept exactly; longer ones by
// their first seven binary digits, with the sum of their numbers, so that the total stays exact.
type gaps map[int64]record.Gap

const exactGap = 1 << 10

func (g *gaps) add(length int64) {
	if *g == nil {
		*g = gaps{}
	}

	at := length
	if length > exactGap {
		drop := bits.Len64(uint64(length)) - 7
		at = length >> drop << drop
	}

	b := (*g)[at]
	(*g)[at] = record.Gap{Length: at, Gaps: b.Gaps + 1, Packets: b.Packets + length}
}

// List returns the lengths in order.
func (g gaps) List() []record.Gap {
	return slices.SortedFunc(maps.Values(g), func(a, b record.Gap) int { return int(a.Length - b.Length) })
}
