package traffic

import (
	"maps"
	"math/bits"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Sequence tracks the sequence numbers 0, 1, 2, … of a flow's window as they arrive. Lost increases when
// numbers are skipped and decreases when a missing number arrives late. It is counted independently of
// Received, so received + lost = sent is a check, not a definition. A number is reordered if it arrives after
// a higher one (RFC 4737, section 3.3).
//
// Only recent numbers are remembered, as bits in words of 64. An older number that arrives may be a duplicate
// or late. It is counted as ancient, and Lost does not change. A number that has not arrived when its word
// leaves the memory is lost for good. A run of such numbers is a gap.
type Sequence struct {
	Next       uint64 // highest number + 1
	Received   int64
	Lost       int64
	Duplicates int64
	Reordered  int64
	Ancient    int64
	Strange    int64 // implausible numbers, which are damaged
	Gaps       gaps
	run        int64    // length of the current run of numbers lost for good
	entered    uint64   // number of words entered so far, of 64 numbers each
	seen       []uint64 // ring of words, one bit per number
}

const (
	sequenceMemory = 1 << 18 // sequence numbers for all flows of an endpoint; 0.26 s at 1 Mpps
	minMemory      = 1 << 12 // minimum number per flow
	sequenceLeap   = 1 << 32 // a larger step means that the number is damaged, not that packets are lost
)

// NewSequence returns a Sequence that remembers the given number of recent sequence numbers, which must be
// a multiple of 64.
func NewSequence(numbers int) Sequence { return Sequence{seen: make([]uint64, numbers/64)} }

// MemoryOf returns the number of sequence numbers to remember for each flow if there are several.
func MemoryOf(flows int) int { return max(sequenceMemory/max(flows, 1)&^63, minMemory) }

// See records that number n has arrived. It reports whether the packet counts as received.
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

// See32 records the arrival of a packet of which only the low 32 bits of the number are known.
func (s *Sequence) See32(n uint32) {
	whole := int64(s.Next) + int64(int32(n-uint32(s.Next)))
	if whole < 0 {
		s.Strange++
		return
	}

	s.See(uint64(whole))
}

// reach adds words to the memory, up to the word with the given index. It retires the words that they
// replace.
func (s *Sequence) reach(word uint64) {
	words := uint64(len(s.seen))
	for done := uint64(0); s.entered <= word; s.entered++ {
		if done == words { // no number in the whole memory has arrived
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

// retire adds the missing numbers among the first n numbers of a word to the gaps.
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

// Finish counts the missing numbers at the end once the total is known, and completes the gaps. It returns
// false if a number beyond the total has arrived.
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

// gaps holds the number of runs of lost numbers by length. Lengths up to exactGap are exact. Longer
// lengths are rounded down to seven significant bits, and stored with the exact total of lost numbers.
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

// List returns the gaps sorted by length.
func (g gaps) List() []record.Gap {
	return slices.SortedFunc(maps.Values(g), func(a, b record.Gap) int { return int(a.Length - b.Length) })
}
