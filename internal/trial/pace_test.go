package trial

import (
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestTimeLeftIsSteady: short rows first do not make the rest look short, and the estimate moves slowly to
// what rows of a kind really take.
func TestTimeLeftIsSteady(t *testing.T) {
	var d record.Design
	d.Method.Duration = 1600 * time.Millisecond
	d.Method.Idle = 600 * time.Millisecond
	rows := []record.Row{{Assignment: record.Assignment{Kind: record.RowVerify}},
		{Assignment: record.Assignment{Kind: record.RowIdle}}}
	for range 10 {
		rows = append(rows, record.Row{Assignment: record.Assignment{Kind: record.RowLoad}})
	}

	p := pace{plan: plan.New(d)}
	p.begin(rows)
	want := (plan.VerifyLength + rowOverhead) + (600*time.Millisecond + rowOverhead) + 10*(2*time.Second)
	near := func(what string, want time.Duration) {
		t.Helper()
		got := p.left(false)
		if got > want || got < want-100*time.Millisecond {
			t.Errorf("%s: %v are left, want %v", what, got, want)
		}
	}
	near("at first", want)
	for i, took := range []time.Duration{300 * time.Millisecond, 500 * time.Millisecond} {
		p.begin(rows[i:])
		p.began = p.began.Add(-took)
		p.end()
	}

	p.begin(rows[2:])
	near("after the short rows", 20*time.Second)
	last := p.left(false)
	for i := range rows[2:] { // each takes 2.4 s instead of 2 s
		p.begin(rows[2+i:])
		p.began = p.began.Add(-2400 * time.Millisecond)
		left := p.left(true)
		if left > last {
			t.Errorf("row %d: %v are left, after %v", i, left, last)
		}

		last = p.left(true)
		p.end()
	}

	if last != 0 {
		t.Errorf("at the end %v are left", last)
	}
}
