package traffic

// sequence follows the sequence numbers 0, 1, 2, … of one flow's measured
// window as they arrive. Lost is counted from gaps and taken back when a
// number arrives late, independently of the count of arrivals, so that
// received + lost = numbers used is a check and not a definition. A number is
// reordered if it arrives after a higher one (RFC 4737, section 3.3).
//
// Which numbers were seen is remembered for the last sequenceMemory of them;
// a number older than that can be told neither from a duplicate nor from a
// late one, stays lost and is counted as ancient.
type sequence struct {
	next       uint64 // highest seen + 1
	received   int64
	lost       int64
	duplicates int64
	reordered  int64
	ancient    int64
	strange    int64 // beyond belief: a damaged number
	seen       [sequenceMemory / 64]uint64
}

const (
	sequenceMemory = 1 << 18 // numbers; 0.26 s at 1 Mpps
	sequenceLeap   = 1 << 32 // a larger step is damage, not loss
)

// see takes note of one arrival.
func (s *sequence) see(n uint64) {
	switch {
	case n == s.next:
	case n > s.next:
		if n-s.next > sequenceLeap {
			s.strange++
			return
		}
		s.skip(n)
	case s.next-n > sequenceMemory:
		s.ancient++
		return
	default:
		w, bit := s.place(n)
		if s.seen[w]&bit != 0 {
			s.duplicates++
			return
		}
		s.seen[w] |= bit
		s.received++
		s.reordered++
		s.lost--
		return
	}
	w, bit := s.place(n)
	s.seen[w] |= bit
	s.next = n + 1
	s.received++
}

func (s *sequence) place(n uint64) (word int, bit uint64) {
	n %= sequenceMemory
	return int(n / 64), 1 << (n % 64)
}

// skip marks the numbers from next to n-1 as missing, and n as not yet seen.
func (s *sequence) skip(n uint64) {
	s.lost += int64(n - s.next)
	if n-s.next >= sequenceMemory {
		clear(s.seen[:])
		return
	}
	for i := s.next; i <= n; i++ {
		w, bit := s.place(i)
		s.seen[w] &^= bit
	}
}

// finish adds the tail that never arrived, once total, the count of numbers
// used, is known. It is false if higher numbers were seen.
func (s *sequence) finish(total uint64) bool {
	if s.next > total {
		return false
	}
	s.lost += int64(total - s.next)
	s.next = total
	return true
}
