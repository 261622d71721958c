package validity

import (
	"math"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// nothingArrived returns a reason if no payload arrived in the window, either of the whole load or through
// one of several tunnels. Without this check, a broken path would look like a rate of 0.
func nothingArrived(s trialCheck) []evidence.Reason {
	if s.t.Row.Kind != record.RowLoad {
		return nil
	}

	if got, ok := s.m.Values[metrics.Goodput]; ok && got <= 0 {
		return because(evidence.ReasonNothingArrived, at{Metric: metrics.Goodput, Value: new(0.0)},
			"nothing arrived in the window")
	}

	tunnels := payloads(s.traffic(), s.t.Window).tunnel
	for i, c := range tunnels {
		for _, direction := range []string{record.Up, record.Down} {
			p := c.of(direction)
			if p.flows > 0 && p.bytes == 0 {
				return because(evidence.ReasonNothingArrived, at{
					Metric:  metrics.Goodput,
					Element: "tunnel",
					Value:   new(0.0),
				}, "nothing arrived in the window through tunnel %d of %d, %s", i+1,
					len(tunnels), direction)
			}
		}
	}

	return nil
}

// notInTunnel returns a reason unless counters prove that the traffic took the tunnel or, without one, the
// path under test.
func notInTunnel(s trialCheck) []evidence.Reason {
	tunnelled := !factor.Tunnel.Is(s.t.Row.Factors, "", factor.NoTunnel)
	if s.t.Path == nil {
		if tunnelled && s.t.Traffic != nil {
			return because(evidence.ReasonNotInTunnel, at{}, "nothing proves that traffic took the tunnel")
		}
		return nil
	}

	what := "path under test"
	if tunnelled {
		what = "tunnel"
	}

	carried := payloads(s.traffic(), s.t.Window)
	for _, d := range devicesMoved(s.t.Path.Counters, carried.up.bytes > 0 && carried.down.bytes > 0) {
		payload := float64(s.t.Path.BytesOffered)
		share := gateMoved
		if d.when != "check" {
			part := carried.through(d)
			payload = part.bytes
			from := s.t.Path.CountedFrom
			if d.when == "window" && from > 0 {
				late := float64(max(from-s.t.Window.Start, 0)) / float64(s.t.Window.End-s.t.Window.Start)
				share = gateWindow * (1 - late)
				payload -= part.queued(d.entered)
			}

			if payload <= 0 {
				continue // nothingArrived reports this
			}
		}

		switch {
		case d.most == 0:
			return because(evidence.ReasonNotInTunnel, at{Node: d.node, Element: d.device, Value: new(0.0)},
				"counters of %s on %s did not move in the %s: traffic did not "+
					"take the %s", d.device, d.node, d.when, what)
		case d.bytes >= 0 && d.bytes < payload*share:
			return because(evidence.ReasonNotInTunnel, at{
				Node:    d.node,
				Element: d.device,
				Value:   new(d.bytes),
			}, "%s on %s carried %.0f bytes %sin the %s, %.0f of payload were to be "+
				"seen: traffic did not take the %s", d.device, d.node, d.bytes,
				strings.TrimPrefix(d.direction+" ", " "), d.when, payload, what)
		}
	}

	return nil
}

// part holds the payload of one direction in bytes. bytes is the payload that arrived in the window. For TCP,
// sent and arrived are the payloads that had been sent and that had arrived before the window. Datagrams
// count in the window in which they were sent.
type part struct {
	bytes, sent, arrived float64
	flows                int
}

func (p part) plus(q part) part {
	return part{p.bytes + q.bytes, p.sent + q.sent, p.arrived + q.arrived, p.flows + q.flows}
}

// queued returns the number of bytes that arrived in the window, but had been sent and had passed a device's
// counter before the window. entered is the number of bytes counted before the window.
func (p part) queued(entered float64) float64 { return max(min(p.sent, entered)-p.arrived, 0) }

// carried holds the payload of a trial by direction. tunnel holds the payload of each tunnel, if there are
// several.
type carried struct {
	up, down part
	tunnel   []carried
}

func (c *carried) add(direction string, p part) {
	if direction == record.Down {
		c.down = c.down.plus(p)
	} else {
		c.up = c.up.plus(p)
	}
}

// of returns the payload of a direction, or of both directions if direction is "".
func (c carried) of(direction string) part {
	switch direction {
	case record.Up:
		return c.up
	case record.Down:
		return c.down
	}
	return c.up.plus(c.down)
}

// through returns the payload that a device must have carried in the direction of its counter.
func (c carried) through(d deviceMove) part {
	n := len(c.tunnel)
	if d.tunnel > 0 && n > 0 {
		c = c.tunnel[(d.tunnel-1)%n]
	}
	return c.of(d.direction)
}

func payloads(t *record.Traffic, w record.Window) carried {
	var c carried
	if n := t.Load.Tunnels; n > 1 {
		c.tunnel = make([]carried, n)
	}

	for _, f := range t.Flows {
		p := part{bytes: float64(f.ReceivedBytes), flows: 1}
		sent := f.Sent.Column("bytes")
		arrived := f.Received.Column("bytes")
		if f.Packets == nil && len(sent) > 0 && len(arrived) > 0 {
			p.sent = statistics.NewCurve(f.Sent.T, sent).At(w.Start)
			p.arrived = statistics.NewCurve(f.Received.T, arrived).At(w.Start)
		}

		c.add(f.Direction, p)
		n := len(c.tunnel)
		if n > 0 && f.Stream > 0 {
			c.tunnel[(f.Stream-1)%n].add(f.Direction, p)
		}
	}

	return c
}

// deviceMove holds the growth of one device's counters.
type deviceMove struct {
	node, device, when string
	direction          string  // direction of the counted bytes; "" means both, or the one with more bytes
	most               float64 // largest growth of any counter
	bytes              float64 // growth of received or sent bytes, or their sum; -1 means no such counter
	entered            float64 // bytes counted between the load's start and the window's start
	tunnel             int     // number of the tunnel, from 1; 0 means that the device belongs to no tunnel
}

// devicesMoved groups the growth of counters by device. A tunnel's own counters count the bytes that its near
// end sent and received, so each has one direction. For other devices, devicesMoved adds up received and sent
// bytes if the load has both directions, and for the check, whose answers are as long as its requests.
// Otherwise, it takes the larger of the two counters.
func devicesMoved(moves []record.CounterDelta, both bool) []deviceMove {
	var out []deviceMove
	for _, c := range moves {
		direction := map[string]string{record.TunnelSent: record.Up,
			record.TunnelReceived: record.Down}[c.Counter]
		own := direction != ""
		if c.When == "check" {
			direction = ""
		}

		same := func(d deviceMove) bool {
			return d.node == c.Node && d.device == c.Device && d.when == c.When && d.direction == direction
		}
		i := slices.IndexFunc(out, same)
		if i < 0 {
			i = len(out)
			out = append(out, deviceMove{
				node:      c.Node,
				device:    c.Device,
				when:      c.When,
				bytes:     -1,
				direction: direction,
			})
			if own {
				out[i].tunnel = 1 + tunnelsBefore(out[:i], out[i])
			}
		}

		d := float64(c.After) - float64(c.Before)
		out[i].most = math.Max(out[i].most, d)
		switch {
		case !strings.Contains(c.Counter, "bytes"):
		case both || c.When == "check":
			out[i].bytes = math.Max(out[i].bytes, 0) + d
			out[i].entered += enteredBefore(moves, c)
		case d > out[i].bytes:
			out[i].bytes = d
			out[i].entered = enteredBefore(moves, c)
		}
	}
	return out
}

// tunnelsBefore returns how many of the devices are tunnels and have counters for the same interval and
// direction as this device.
func tunnelsBefore(all []deviceMove, this deviceMove) (n int) {
	for _, d := range all {
		if d.tunnel > 0 && d.when == this.when && d.direction == this.direction {
			n++
		}
	}
	return n
}

// enteredBefore returns the growth of a counter from the start of the load to the start of the window.
func enteredBefore(moves []record.CounterDelta, c record.CounterDelta) float64 {
	for _, m := range moves {
		if m.When == "load" && c.When == "window" && m.Node == c.Node && m.Device == c.Device &&
			m.Counter == c.Counter {
			return float64(c.Before) - float64(m.Before)
		}
	}
	return 0
}
