package kernel

import "testing"

// TestReplacedByNothingKeepsWhatAnotherSets: the agent of a controller that was killed still removes its
// setting while the next controller sets it anew.
func TestReplacedByNothingKeepsWhatAnotherSets(t *testing.T) {
	for want, kept := range map[int]int{0: 1300, 1360: 0} {
		held := 1360
		err := replaced(want, equal, func() error { held = 0; return nil }, func() error { return nil },
			func() (int, error) {
				held = 1300 // by another controller
				return held, nil
			})
		if err == nil || held != kept {
			t.Errorf("replace by %d: got %d and error %v, want %d and an error", want, held, err, kept)
		}
	}
}
