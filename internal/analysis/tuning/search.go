package tuning

import (
	"cmp"
	"slices"
)

// Round lists the sets of changes that one run compares by measuring them alternately. The first set is
// empty, and stands for the router as found.
type Round struct {
	Title string
	Sets  []Set
	Pairs []Pair
	// Follow is the number of sets that later rounds must measure before a change can be proposed.
	Follow int
}

// maxRounds is the maximum number of rounds that try changes.
const maxRounds = 3

// Search decides which changes to try next and which to keep. It first tries each change alone, and all
// changes together. It then tries each remaining change together with those that helped, until no further
// change helps. Finally, in new blocks, it compares the kept changes with the router as found, and with the
// sets that lack one of the kept changes.
type Search struct {
	Candidates []Change
	Kept       Set
	Tried      []Scored // scores of all rounds, in order
	Final      *Scored  // comparison of the kept changes with the router as found, in new blocks

	out    []string // changes that are not tried again
	rounds int
	stage  int
	spare  Set  // kept changes before redundant changes were left out
	brief  bool // there is no time to measure sets that lack one of the kept changes
}

// Stages of a search.
const (
	trying = iota
	checking
	confirming
	ended
)

// Next returns the next round, or nil if the search has ended.
func (s *Search) Next() *Round {
	if s.stage == trying {
		r := s.tries()
		if r != nil {
			return r
		}

		s.stage = checking
	}

	switch {
	case s.stage == checking && len(s.Kept) > 0:
		return s.checks()
	case s.stage == confirming:
		return &Round{
			Title: "what is kept, once more",
			Sets:  []Set{{}, s.Kept, s.spare},
			Pairs: []Pair{{1, 0}, {1, 2}},
		}
	}
	return nil
}

// left returns the candidates that may still help together with the kept changes.
func (s *Search) left() []Change {
	return slices.DeleteFunc(slices.Clone(s.Candidates), func(c Change) bool {
		return !s.Kept.allows(c) || slices.Contains(s.out, c.String())
	})
}

// tries returns a round that compares the kept changes with and without each remaining candidate.
func (s *Search) tries() *Round {
	left := s.left()
	if len(left) == 0 || s.rounds == maxRounds {
		return nil
	}

	r := &Round{Title: "each change alone", Sets: []Set{{}}, Follow: 2}
	against := 0
	if len(s.Kept) > 0 {
		r.Title = "each further change with " + s.Kept.String()
		r.Sets = append(r.Sets, s.Kept)
		against = 1
		r.Pairs = append(r.Pairs, Pair{1, 0})
	}

	all := s.Kept
	for _, c := range left {
		r.Pairs = append(r.Pairs, Pair{len(r.Sets), against})
		r.Sets = append(r.Sets, s.Kept.with(c))
		if all.allows(c) {
			all = all.with(c)
		}
	}

	// Try all together, because each of two limits may hide the gain from removing the other.
	if len(all) > len(s.Kept)+1 {
		r.Pairs = append(r.Pairs, Pair{len(r.Sets), against})
		r.Sets = append(r.Sets, all)
	}

	return r
}

// checks returns a round that compares the kept changes with the router as found, and with the sets that lack
// one of the kept changes.
func (s *Search) checks() *Round {
	r := &Round{
		Title: "what is kept, and each of its changes taken back",
		Sets:  []Set{{}, s.Kept},
		Pairs: []Pair{{1, 0}},
	}
	for _, c := range s.Kept {
		if len(s.Kept) > 1 && !s.brief {
			r.Pairs = append(r.Pairs, Pair{1, len(r.Sets)})
			r.Sets = append(r.Sets, s.Kept.without(c))
		}
	}
	return r
}

// noTime is the reason for not trying a change that would be possible.
const noTime = "the time of --for does not suffice"

// Shorten removes the last part of the next round, because there is not enough time for it. In a round that
// tries changes, this is the last change. In a check, these are the parts that are not necessary for
// proposing the kept changes. Changes that were not checked are not proposed.
func (s *Search) Shorten() {
	switch left := s.left(); {
	case s.stage == trying:
		last := left[len(left)-1]
		s.Candidates = slices.DeleteFunc(slices.Clone(s.Candidates), last.same)
		s.Tried = append(s.Tried, Scored{Round: "left out", Set: Set{last}, Verdict: CannotTell, Why: noTime})
	case s.stage == checking && len(s.Kept) > 1 && !s.brief:
		s.brief = true
	case s.stage == checking:
		s.Tried = append(s.Tried, Scored{
			Round:   "not checked in fresh blocks",
			Set:     s.Kept,
			Verdict: CannotTell,
			Why:     noTime,
		})
		s.Kept = nil
		s.stage = ended
	default: // propose the kept changes that were checked before
		s.Kept = s.spare
		s.stage = ended
	}
}

// Take continues the search with the results of a round, which are in the order of the round's pairs.
func (s *Search) Take(found []Scored) {
	s.Tried = append(s.Tried, found...)
	switch s.stage {
	case trying:
		s.tried(found)
	case checking:
		s.checked(found)
	case confirming:
		s.stage = ended
		s.Final = &found[0]
		// The changes that were left out matter in combination with the others.
		if found[1].Verdict == Harms || found[0].Verdict != Helps {
			s.Kept = s.spare
			again := s.before(s.spare)
			s.Final = &again
		}
	}
}

// tried keeps each change that helped. Of several levels of one factor, it keeps the best. If no change
// helped alone but all changes together did, it keeps all of them.
func (s *Search) tried(found []Scored) {
	s.rounds++
	was := len(s.Kept)
	if was > 0 {
		found = found[1:]
	}

	single := slices.DeleteFunc(slices.Clone(found), func(j Scored) bool { return len(j.Set) != was+1 })
	slices.SortStableFunc(single, func(a, b Scored) int { return cmp.Compare(b.Gain, a.Gain) })
	for _, j := range single {
		c := j.Set[was]
		switch {
		case j.Verdict == Helps && s.Kept.allows(c):
			s.Kept = s.Kept.with(c)
		case j.Verdict == Harms || j.Verdict == Unsafe || j.Verdict == Impossible:
			s.out = append(s.out, c.String())
		}
	}

	last := found[len(found)-1]
	if len(s.Kept) == was && len(last.Set) > was+1 && last.Verdict == Helps {
		s.Kept = last.Set
	}

	if len(s.Kept) == was {
		s.stage = checking
	}
}

// checked drops the changes that contribute nothing if the others are made.
func (s *Search) checked(found []Scored) {
	s.Final = &found[0]
	if found[0].Verdict != Helps {
		s.Kept = nil
		s.stage = ended
		return
	}

	s.spare = s.Kept
	for _, j := range found[1:] {
		if j.Verdict == Helps {
			continue
		}

		for _, c := range s.spare {
			if j.Against.allows(c) {
				s.Kept = s.Kept.without(c)
			}
		}
	}

	switch len(s.Kept) {
	case len(s.spare):
		s.stage = ended
	case 0: // keep all, because each one is redundant only if the others are made
		s.Kept = s.spare
		s.stage = ended
	default:
		s.stage = confirming
	}
}

// before returns the last score of a set in comparison with the router as found.
func (s *Search) before(set Set) Scored {
	for _, j := range slices.Backward(s.Tried) {
		if j.Set.Key() == set.Key() && len(j.Against) == 0 {
			return j
		}
	}
	return Scored{Set: set, Verdict: CannotTell}
}
