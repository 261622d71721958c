package validity

import "github.com/chokepoint-lab/chokepoint/internal/labtest/quick"

var (
	inLab        = quick.InLab
	quickFactors = quick.Factors
	syntheticRun = quick.Run
)
