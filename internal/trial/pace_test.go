package trial

import (
	"slices"
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
		got := p.left()
		if got > want || got < want-100*time.Millisecond {
			t.Errorf("%s: %v are left, want %v", what, got, want)
		}
	}
	near("at first", want)
	for i, took := range []time.Duration{300 * time.Millisecond, 500 * time.Millisecond} {
		p.begin(rows[i:])
		p.began = p.began.Add(-took)
		p.end(false)
	}

	p.begin(rows[2:])
	near("after the short rows", 20*time.Second)
	last := p.left()
	for i := range rows[2:] { // each takes 2.4 s instead of 2 s
		p.begin(rows[2+i:])
		p.began = p.began.Add(-2400 * time.Millisecond)
		p.end(false)
		left := p.left()
		if left > last {
			t.Errorf("row %d: %v are left, after %v", i, left, last)
		}

		last = left
	}

	if last != 0 {
		t.Errorf("at the end %v are left", last)
	}
}

// TestTimeLeftCountsFailures: where rows fail, and take longer or shorter then, so will those that remain; a
// repeated trial takes its time once more.
func TestTimeLeftCountsFailures(t *testing.T) {
	var d record.Design
	d.Method.Duration = 1600 * time.Millisecond
	rows := slices.Repeat([]record.Row{{Assignment: record.Assignment{Kind: record.RowLoad}}}, 22)
	rows[0].Kind = record.RowVerify // whose failures tell of loads, too
	near := func(what string, got, want time.Duration) {
		t.Helper()
		if got > want+want/10 || got < want-want/10 {
			t.Errorf("%s: %v are left, want %v", what, got, want)
		}
	}
	for _, took := range []time.Duration{4 * time.Second, 100 * time.Millisecond} {
		p := pace{plan: plan.New(d)}
		for i := range 2 {
			p.begin(rows[i:])
			p.began = p.began.Add(-took)
			p.end(true)
		}

		near("after two failures", p.left(), 20*(2*time.Second+took)/2)
	}

	p := pace{plan: plan.New(d)}
	p.begin(rows[20:])
	p.began = p.began.Add(-2 * time.Second)
	p.again()
	near("a trial that is repeated", p.left(), 4*time.Second)
	p.began = p.began.Add(-2 * time.Second)
	p.end(true)
	near("after it", p.left(), (2*2*time.Second+4*time.Second)/3)
}
