package frames

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/probe/bpf"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// frameModes contains the modes that do not work on the device towards the other end, each with the
// reason. All other modes work.
type frameModes map[string]string

// Modes of sending and counting frames, the best first.
var (
	sendModes = []string{record.FramesLive, record.FramesPacket}
	sinkModes = []string{record.SinkDriver, record.SinkSockets}
)

var modeNames = map[string]string{
	record.FramesLive:   "BPF test-run frames",
	record.FramesPacket: "AF_PACKET past the queueing discipline",
	record.SinkDriver:   "counted in the driver",
	record.SinkSockets:  "counted by sockets",
}

// choice holds the selected mode.
type choice struct {
	mode    string // "" if no mode works
	instead string // reasons why better modes do not work, or "" if the best mode does
}

// choose returns the first mode that works. If want is not "", only that mode is considered.
func (w frameModes) choose(modes []string, want string) (c choice) {
	names, last := "", ""
	tell := func() {
		if names != "" {
			c.instead = strings.TrimPrefix(c.instead+fmt.Sprintf("; not %s: %s", names, last), "; ")
		}
	}
	for _, mode := range modes {
		if want != "" && mode != want {
			continue
		}

		why := w[mode]
		switch {
		case why == "":
			tell()
			c.mode = mode
			return c
		case why == last:
			names += ", " + modeNames[mode]
		default:
			tell()
			names = modeNames[mode]
			last = why
		}
	}

	tell()
	return c
}

func (w frameModes) sender(load record.Load) choice { return w.choose(sendModes, load.Frames) }

func (w frameModes) sink(load record.Load) choice { return w.choose(sinkModes, load.Sink) }

// engineFellBack is the kind of caveat for an engine whose best mode did not work.
const engineFellBack = "engine-fell-back"

// fellBack returns caveats for ends that did not use the best mode.
func fellBack(details map[string]string) []record.Caveat {
	var caveats []record.Caveat
	for _, side := range []string{"near", "far"} {
		why := details[side+".fell_back"]
		if why != "" {
			caveats = append(caveats, record.Caveat{
				Kind: engineFellBack,
				Text: fmt.Sprintf("the %s end: %s",
					side, why),
			})
		}
	}
	return caveats
}

// checkXDP checks this node. If the best mode does not work, the answer is yes, with the reason. The answer
// is no if the load requests a mode that does not work.
func checkXDP(q traffic.Request) check.Answer {
	w, err := surveyRights()
	if err != nil {
		return check.CouldNotTell("%v", err)
	}

	var why []string
	for _, c := range []choice{w.sender(q.Load), w.sink(q.Load)} {
		if c.mode == "" && (q.Load.Frames != "" || q.Load.Sink != "") {
			return check.Not("%s", c.instead)
		}

		if c.instead != "" {
			why = append(why, c.instead)
		}
	}

	if len(why) == 0 {
		return check.OK()
	}

	a := check.OKBecause("%s", strings.Join(why, "; "))
	if w[record.FramesLive] == mayNotLoad {
		a = a.Hinted("run as root for more: a user's own namespace does not give this right")
	}

	return a
}

const mayNotLoad = "it may not load BPF programs"

// surveyRights determines which modes the kernel and the user's rights permit, regardless of the device.
func surveyRights() (frameModes, error) {
	w := frameModes{}
	live, err := bpf.Probe()
	switch {
	case errors.Is(err, unix.EPERM):
		err = errors.New(mayNotLoad)
		fallthrough
	case errors.Is(err, bpf.ErrUnsupported):
		w[record.FramesLive], w[record.SinkDriver] = err.Error(), err.Error()
	case err != nil:
		return w, err
	case live != nil:
		w[record.FramesLive] = live.Error()
	}

	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		w[record.FramesPacket] = fmt.Sprintf("open a socket: %v", err)
		return w, nil
	}

	unix.Close(fd)
	return w, nil
}

// surveyDevice determines which modes work on the device that leads to the next hop.
func surveyDevice(hop kernel.Hop) (frameModes, error) {
	w, err := surveyRights()
	if err != nil {
		return w, err
	}

	refuse := func(why string, modes ...string) {
		for _, mode := range modes {
			if w[mode] == "" {
				w[mode] = why
			}
		}
	}
	if len(hop.Source) != 6 {
		refuse(fmt.Sprintf("device %s, of kind %q, carries no Ethernet frames", hop.Device, hop.Kind),
			append(slices.Clone(sendModes), record.SinkDriver)...)
		return w, nil
	}

	// The driver is not tried on other devices. On many network cards, attaching a program takes the link
	// down for seconds, and with it all connections, including the control connection.
	if !slices.Contains([]string{"veth", "tun", "tuntap"}, hop.Kind) {
		refuse(fmt.Sprintf("device %s, of kind %q, is no virtual link", hop.Device, hop.Kind),
			record.FramesLive, record.SinkDriver)
	}

	if w[record.SinkDriver] == "" {
		f, err := bpf.Pass(hop.Index)
		if err != nil {
			refuse(fmt.Sprintf("device %s, of kind %q, takes no program: %v", hop.Device, hop.Kind, err),
				record.FramesLive, record.SinkDriver)
		} else {
			f.Close()
		}
	}

	return w, nil
}
