package diagnosis

import "testing"

// TestUnlimitedInMostTrials: a load is unlimited only if it is in three of four trials; other classes
// need half of them.
func TestUnlimitedInMostTrials(t *testing.T) {
	for _, tt := range []struct {
		class  string
		scores []float64
		named  bool
	}{
		{Healthy, []float64{5, 5, 5}, true},
		{Healthy, []float64{5, 5, -3}, false},
		{Healthy, []float64{5, 5, 5, -3}, true},
		{Healthy, []float64{5, 5, -3, -3}, false},
		{Healthy, []float64{5, 5, 5, 5, -3}, true},
		{Policer, []float64{5, 5, -3}, true},
	} {
		var trials [][]Candidate
		for _, score := range tt.scores {
			trials = append(trials, []Candidate{{Cause: Cause{Class: tt.class}, Score: score}})
		}

		if d := Conclude(trials); (d.Class == tt.class) != tt.named {
			t.Errorf("%s with %v: got %s, named %v wanted", tt.class, tt.scores, d.Class, tt.named)
		}
	}
}
