package comparison

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/quick"
)

var (
	declaredFactors = quick.Catalogue
	quickFactors    = quick.Factors
)

func source(label uint64) *rand.Rand { return rand.New(rand.NewPCG(20260101, label)) }

func atMost(t *testing.T, what string, got, most float64) {
	t.Helper()
	se := math.Sqrt(most * (1 - most) / draws)
	if got > most+4*se {
		t.Errorf("%s = %.4f, want at most %.4f", what, got, most)
	}
}

const draws = 10000
