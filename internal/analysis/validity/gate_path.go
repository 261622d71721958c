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

// nothingArrived fires if no payload arrived, of the whole load or of the streams of one of several tunnels:
// a broken path looks like a rate of 0, too.
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

// notInTunnel fires unless counters prove that traffic took the path.
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
				continue // see nothingArrived
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
				"seen: traffic did not take the %s", d.device, d.node, d.bytes, d.direction.words(), d.when,
				payload, what)
		}
	}

	return nil
}

// part is a direction's payload, in bytes: what arrived in the window and, for TCP streams, what had left the
// senders and arrived when the window began. Datagrams belong to the window in which they are sent.
type part struct {
	bytes, sent, arrived float64
	flows                int
}

func (p part) plus(q part) part {
	return part{p.bytes + q.bytes, p.sent + q.sent, p.arrived + q.arrived, p.flows + q.flows}
}

// queued returns what arrived in the window but had entered the path before: no more than had been sent by
// then, nor than had passed the counter.
func (p part) queued(entered float64) float64 { return max(min(p.sent, entered)-p.arrived, 0) }

// carried holds a trial's payload by direction, and that of the streams in each of several tunnels.
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

// of returns the payload in a direction; "" is both.
func (c carried) of(direction string) part {
	switch direction {
	case record.Up:
		return c.up
	case record.Down:
		return c.down
	}
	return c.up.plus(c.down)
}

// through returns what a device must have carried.
func (c carried) through(d deviceMove) part {
	n := len(c.tunnel)
	if d.tunnel > 0 && n > 0 {
		c = c.tunnel[(d.tunnel-1)%n]
	}
	return c.of(string(d.direction))
}

func payloads(t *record.Traffic, w record.Window) carried {
	var c carried
	if n := t.Load.Tunnels; n > 1 {
		c.tunnel = make([]carried, n)
	}

	for i := range t.Flows {
		f := &t.Flows[i]
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

// way is the direction that a counter counts; "" = both, or the larger one.
type way string

func (w way) words() string {
	if w == "" {
		return ""
	}
	return string(w) + " "
}

// deviceMove holds the counter deltas of one device.
type deviceMove struct {
	node, device, when string
	direction          way
	most               float64 // largest delta of any counter
	bytes              float64 // received or sent, or both summed; -1 = no such counter
	entered            float64 // of these, from the load's start to the window's
	tunnel             int     // number of the path's tunnel, from 1; 0 = not a device of a tunnel
}

// devicesMoved groups deltas by device. A tunnel's own counters, of what its near end sent and received, each
// have one direction. For other devices, if a load goes in one direction the counter with more bytes has the
// data; for a load in both, and for the check, whose answers are as long as what it sent, both are summed.
func devicesMoved(moves []record.CounterDelta, both bool) []deviceMove {
	var out []deviceMove
	for _, c := range moves {
		direction := way(map[string]string{record.TunnelSent: record.Up,
			record.TunnelReceived: record.Down}[c.Counter])
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
			out[i].bytes, out[i].entered = d, enteredBefore(moves, c)
		}
	}
	return out
}

// tunnelsBefore counts the tunnels with earlier counters of the same time and direction.
func tunnelsBefore(all []deviceMove, this deviceMove) (n int) {
	for _, d := range all {
		if d.tunnel > 0 && d.when == this.when && d.direction == this.direction {
			n++
		}
	}
	return n
}

// enteredBefore returns the delta of a counter from the load's begin to the window's.
func enteredBefore(moves []record.CounterDelta, c record.CounterDelta) float64 {
	for _, m := range moves {
		if m.When == "load" && c.When == "window" && m.Node == c.Node && m.Device == c.Device &&
			m.Counter == c.Counter {
			return float64(c.Before) - float64(m.Before)
		}
	}
	return 0
}
