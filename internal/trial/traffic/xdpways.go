package traffic

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// frameWays is what a node says of the device that leads to the other end: why frames cannot be sent or
// counted in a way. What is missing works.
type frameWays struct {
	Refused map[string]string `json:"refused,omitempty"`
}

// The ways to send and to count, best first.
var (
	sendWays = []string{record.FramesLive, record.FramesAFXDP, record.FramesPacket}
	sinkWays = []string{record.SinkDriver, record.SinkSockets}
)

var wayNames = map[string]string{
	record.FramesLive:   "live frames",
	record.FramesAFXDP:  "AF_XDP in copy mode",
	record.FramesPacket: "AF_PACKET past the queueing discipline",
	record.SinkDriver:   "counted in the driver",
	record.SinkSockets:  "counted by sockets",
}

// choice is a way, and why it is not a better one.
type choice struct {
	way string // "" = none works
	why []string
}

// instead tells what a choice is not, "" where it is the best.
func (c choice) instead() string { return strings.Join(c.why, "; ") }

// choose takes the first way that works; where one is wanted, only that.
func (w frameWays) choose(ways []string, want string) choice {
	var c choice
	names, last := "", ""
	tell := func() {
		if names != "" {
			c.why = append(c.why, fmt.Sprintf("not %s: %s", names, last))
		}
	}
	for _, way := range ways {
		if want != "" && way != want {
			continue
		}
		why := w.Refused[way]
		switch {
		case why == "":
			tell()
			c.way = way
			return c
		case why == last:
			names += ", " + wayNames[way]
		default:
			tell()
			names, last = wayNames[way], why
		}
	}
	tell()
	return c
}

func (w frameWays) sender(load record.Load) choice { return w.choose(sendWays, load.Frames) }

func (w frameWays) sink(load record.Load) choice { return w.choose(sinkWays, load.Sink) }

// checkWays judges the ways that a load asks for.
func checkWays(load record.Load) check.Answer {
	if load.Frames != "" && !slices.Contains(sendWays, load.Frames) {
		return check.Not("frames sent by %q: want %s", load.Frames, strings.Join(sendWays, ", "))
	}
	if load.Sink != "" && !slices.Contains(sinkWays, load.Sink) {
		return check.Not("frames counted by %q: want %s", load.Sink, strings.Join(sinkWays, ", "))
	}
	return check.OK()
}

// engineFellBack is the kind of a caveat: what the engine is for did not work.
const engineFellBack = "engine-fell-back"

// fellBack are the caveats of a load whose frames took a lesser way.
func fellBack(details map[string]string) []record.Caveat {
	var caveats []record.Caveat
	for _, side := range []string{"near", "far"} {
		if why := details[side+".fell_back"]; why != "" {
			caveats = append(caveats, record.Caveat{Kind: engineFellBack, Text: fmt.Sprintf("the %s end: %s",
				side, why)})
		}
	}
	return caveats
}
