package validity

import (
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/quick"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func TestFlowAccountsMustAddUp(t *testing.T) {
	for name, change := range map[string]func(*record.ShortFlows){
		"":      func(*record.ShortFlows) {},
		"flow":  func(s *record.ShortFlows) { s.Failed++ },
		"byte":  func(s *record.ShortFlows) { s.Confirmed-- },
		"empty": func(s *record.ShortFlows) { *s = record.ShortFlows{} },
	} {
		s := quick.ShortFlows()
		change(s)
		got := flowAccounts(&record.Traffic{ShortFlows: s})
		if (len(got) > 0) != (name != "") {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

// A hole is a time of the window that lacks what is usual between two times, however much of it lay outside.
func TestHolesInTheWindow(t *testing.T) {
	const ms = int64(1e6)
	w := record.Window{Start: 1000 * ms, End: 5000 * ms}
	every := func(step int64, skip func(at int64) bool) (out []int64) {
		for at := int64(0); at <= 6000*ms; at += step {
			if skip == nil || !skip(at) {
				out = append(out, at)
			}
		}
		return out
	}
	between := func(from, to int64) func(int64) bool {
		return func(at int64) bool { return at > from*ms && at < to*ms }
	}
	for name, tt := range map[string]struct {
		times []int64
		want  int64
	}{
		"none":                       {every(100*ms, nil), 0},
		"inside":                     {every(100*ms, between(2000, 4000)), 2000 * ms},
		"over its end":               {every(100*ms, between(4500, 5800)), 1300 * ms},
		"never heard of again":       {every(100*ms, between(3000, 7000)), 2000 * ms},
		"just before it":             {append(every(100*ms, between(-1, 1000)), 0, 1000*ms+1), 0},
		"a source that is read slow": {every(1100*ms, nil), 0},
		"too few to tell":            {[]int64{0}, 0},
	} {
		got := holeIn(w, tt.times)
		if got != tt.want {
			t.Errorf("%s: got %d ms, want %d", name, got/ms, tt.want/ms)
		}
	}
}
