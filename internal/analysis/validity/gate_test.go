package validity

import (
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func TestFlowAccountsMustAddUp(t *testing.T) {
	for name, change := range map[string]func(*record.ShortFlows){
		"":      func(*record.ShortFlows) {},
		"flow":  func(s *record.ShortFlows) { s.Failed++ },
		"byte":  func(s *record.ShortFlows) { s.Confirmed-- },
		"empty": func(s *record.ShortFlows) { *s = record.ShortFlows{} },
	} {
		s := shortFlows()
		change(s)
		if got := flowAccounts(&record.Traffic{ShortFlows: s}); (len(got) > 0) != (name != "") {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}
