package host

import (
	"errors"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

// TestClockOfAMachineThatStandsStill: exchanges take what the table says, the node reads its clock at their
// end, and it is an hour ahead.
func TestClockOfAMachineThatStandsStill(t *testing.T) {
	const ahead = int64(time.Hour)
	ms := int64(time.Millisecond)
	for _, tt := range []struct {
		name         string
		takes        []int64 // the last one for ever
		times, bound int64
	}{
		{"steady", []int64{ms}, 5, ms / 2},
		{"steady, but for the first", []int64{60 * ms, ms}, 5, ms / 2},
		{"one quick among slow ones is not trusted to be the quickest", []int64{60 * ms, 40 * ms, 20 * ms,
			10 * ms, 5 * ms, 2 * ms}, 7, ms},
		{"never twice alike", []int64{160 * ms, 80 * ms, 40 * ms, 20 * ms, 10 * ms, 5 * ms, 2 * ms, ms}, 5,
			5 * ms},
	} {
		now := int64(0)
		n := 0
		offset, bound, err := relateClocks(func() int64 { return now }, func() (int64, error) {
			now += tt.takes[min(n, len(tt.takes)-1)]
			n++
			return now + ahead, nil
		})
		off := offset - ahead
		if err != nil || int64(n) != tt.times || bound != tt.bound || off < -bound ||
			off > bound {
			t.Errorf("%s: %d exchanges, off by %v, at most %v, %v; want %d, at most %v", tt.name, n,
				time.Duration(off), time.Duration(bound), err, tt.times, time.Duration(tt.bound))
		}
	}

	broken := errors.New("gone")
	_, _, err := relateClocks(Monotonic, func() (int64, error) { return 0, broken })
	expect.Error(t, "an exchange that fails", err, broken)
}
