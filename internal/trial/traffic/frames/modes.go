package frames

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// frameModes is what a node says of the device that leads to the other end: why frames cannot be sent or
// counted in a mode. What is missing works.
type frameModes struct {
	Refused map[string]string `json:"refused,omitempty"`
}

// The modes to send and to count, best first.
var (
	sendModes = []string{record.FramesLive, record.FramesAFXDP, record.FramesPacket}
	sinkModes = []string{record.SinkDriver, record.SinkSockets}
)

var modeNames = map[string]string{
	record.FramesLive:   "BPF test-run frames",
	record.FramesAFXDP:  "AF_XDP in copy mode",
	record.FramesPacket: "AF_PACKET past the queueing discipline",
	record.SinkDriver:   "counted in the driver",
	record.SinkSockets:  "counted by sockets",
}

// choice is a mode, and why it is not a better one.
type choice struct {
	mode string // "" = none works
	why  []string
}

// instead tells what a choice is not, "" where it is the best.
func (c choice) instead() string { return strings.Join(c.why, "; ") }

// choose takes the first mode that works; where one is wanted, only that.
func (w frameModes) choose(modes []string, want string) choice {
	var c choice
	names, last := "", ""
	tell := func() {
		if names != "" {
			c.why = append(c.why, fmt.Sprintf("not %s: %s", names, last))
		}
	}
	for _, mode := range modes {
		if want != "" && mode != want {
			continue
		}
		why := w.Refused[mode]
		switch {
		case why == "":
			tell()
			c.mode = mode
			return c
		case why == last:
			names += ", " + modeNames[mode]
		default:
			tell()
			names, last = modeNames[mode], why
		}
	}
	tell()
	return c
}

func (w frameModes) sender(load record.Load) choice { return w.choose(sendModes, load.Frames) }

func (w frameModes) sink(load record.Load) choice { return w.choose(sinkModes, load.Sink) }

// checkModes judges the modes that a load asks for.
func checkModes(load record.Load) check.Answer {
	if load.Frames != "" && !slices.Contains(sendModes, load.Frames) {
		return check.Not("frames sent by %q: want %s", load.Frames, strings.Join(sendModes, ", "))
	}
	if load.Sink != "" && !slices.Contains(sinkModes, load.Sink) {
		return check.Not("frames counted by %q: want %s", load.Sink, strings.Join(sinkModes, ", "))
	}
	return check.OK()
}

// engineFellBack is the kind of a caveat: what the engine is for did not work.
const engineFellBack = "engine-fell-back"

// fellBack are the caveats of a load whose frames took a lesser mode.
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
