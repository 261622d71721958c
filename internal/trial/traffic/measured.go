package traffic

import (
	"fmt"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Measured says why a load is no measurement although it ended well: an end of TCP read half a window late
// or more what it had carried, so that most of what it counted was not in the window, or most of the window
// not in it; or a sender of datagrams had its first turn that late, and offered next to nothing.
func Measured(t *record.Traffic) error {
	for _, side := range []string{"near", "far"} {
		late := time.Duration(t.Ends[side].EdgeLateNs)
		if t.Load.Protocol == "tcp" && late > 0 && 2*late >= t.Load.Duration {
			return &lateEdge{side, "read its counts", late, t.Load.Duration, 0}
		}
	}
	for i := range t.Flows {
		f := &t.Flows[i]
		if late := t.Load.Duration - time.Duration(f.SenderNs); f.Packets != nil && late > 0 &&
			2*late >= t.Load.Duration {
			side := "near"
			if f.Direction == record.Down {
				side = "far"
			}
			// known of BPF test-run frames
			waited, _ := time.ParseDuration(t.Details[side+".waited_ns"] + "ns")
			return &lateEdge{side, fmt.Sprintf("began to send stream %d", f.Stream), late, t.Load.Duration,
				waited}
		}
	}
	return nil
}

type lateEdge struct {
	side, did    string
	late, window time.Duration
	waited       time.Duration // for its CPU, 0 = not known
}

func (e *lateEdge) Error() string {
	why := "its machine had no time for it"
	if e.waited > 0 {
		why = fmt.Sprintf("it waited %v for its CPU", e.waited.Round(time.Millisecond))
	}
	return fmt.Sprintf("the %s end %s %v late at an edge of the window of %v: %s", e.side, e.did,
		e.late.Round(time.Millisecond), e.window, why)
}

// Hint is the next step.
func (e *lateEdge) Hint() string {
	return "keep other work off that machine, or measure for longer (--set method.duration=5s)"
}
