package validity

import (
	"slices"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestSharedCoresNeedTraffic: client, router and server do not share cores where nothing is sent.
func TestSharedCoresNeedTraffic(t *testing.T) {
	cipher := record.Factors{"engine": "cipher"}
	tcp := record.Factors{"protocol": "tcp"}
	for _, tt := range []struct {
		cells []record.Factors
		want  bool
	}{{nil, true}, {[]record.Factors{tcp}, true}, {[]record.Factors{cipher, tcp}, true},
		{[]record.Factors{cipher}, false}} {
		var run record.Run
		inLab(&run, record.LabLocal)
		all := Caveats(&run, nil, nil, tt.cells)
		has := slices.ContainsFunc(all, func(c record.Caveat) bool { return c.Kind == "shared-cores" })
		if has != tt.want {
			t.Errorf("cells %v: the caveat is there: %v, want %v", tt.cells, has, tt.want)
		}
	}
}
