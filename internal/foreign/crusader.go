package foreign

import (
	"fmt"
	"math"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// crusaderTime holds a duration in the JSON encoding of Rust's serde.
type crusaderTime struct {
	Secs  number `json:"secs"`
	Nanos number `json:"nanos"`
}

// ns returns the time in nanoseconds, or -1 if it is out of range.
func (t crusaderTime) ns() int64 {
	if !finite(float64(t.Secs), maxSeconds) || !finite(float64(t.Nanos), 1e9) {
		return -1
	}
	return int64(float64(t.Secs))*1e9 + int64(float64(t.Nanos))
}

// crusaderFile is the JSON document that crusader export writes (RawResult in file_format.rs, versions 0
// to 2). Times count from the client's start. Byte counts are cumulative.
type crusaderFile struct {
	Version  number `json:"version"`
	Program  words  `json:"generated_by"`
	IPv6     bool   `json:"ipv6"`
	Overload bool   `json:"server_overload"`
	Config   struct {
		Load     crusaderTime `json:"load_duration"`
		Interval crusaderTime `json:"ping_interval"`
	} `json:"config"`
	Groups []struct {
		Download bool `json:"download"`
		Both     bool `json:"both"`
		Streams  []struct {
			Data []struct {
				Time  crusaderTime `json:"time"`
				Bytes number       `json:"bytes"`
			} `json:"data"`
		} `json:"streams"`
	} `json:"stream_groups"`
	Pings []struct {
		Sent    crusaderTime `json:"sent"`
		Latency *struct {
			Total *crusaderTime `json:"total"`
		} `json:"latency"`
	} `json:"pings"`
	Tests []struct {
		Start crusaderTime `json:"start"`
		Kind  words        `json:"kind"`
	} `json:"test_data"`
}

// These are the parts of a test that crusader excludes from its rates (plot.rs): the first fifth of the load
// but at most two seconds, and the last tenth but at most half a second.
const (
	crusaderWarmup, maxWarmup = .2, int64(2e9)
	crusaderTail, maxTail     = .1, int64(5e8)
)

// readCrusader returns a trial for each kind of test: download, upload and both.
func readCrusader(text []byte) ([]Result, error) {
	var f crusaderFile
	if err := decode(text, &f); err != nil {
		return nil, err
	}

	pings := &record.Latency{
		Probe:      "echo",
		Stamps:     "user",
		IntervalNs: max(f.Config.Interval.ns(), 0),
		Includes:   "from crusader's send to its receive",
	}
	for i, p := range f.Pings {
		at := p.Sent.ns()
		rtt := int64(-1)
		if at < 0 {
			return nil, fmt.Errorf("ping %d has no send time", i+1)
		}

		if p.Latency != nil && p.Latency.Total != nil {
			rtt = p.Latency.Total.ns()
		}

		pings.SentAt, pings.RTT = append(pings.SentAt, at), append(pings.RTT, rtt)
	}

	var out []Result
	for _, d := range []string{record.Down, record.Up, record.Both} {
		r, err := f.trial(d)
		if err != nil {
			return nil, err
		}

		if r.Traffic != nil {
			f.addPings(r, pings)
			out = append(out, *r)
		}
	}

	if len(out) == 0 && len(pings.RTT) > 0 { // the test had no load
		r := f.result("")
		split(r, pings)
		out = append(out, *r)
	}

	return out, nil
}

func (f *crusaderFile) ip() int {
	if f.IPv6 {
		return 6
	}
	return 4
}

func (f *crusaderFile) result(direction string) *Result {
	r := newResult(strings.TrimPrefix(string(f.Program), "Crusader "), oneRun, "kernel time stamps")
	r.set(factor.Engine, "crusader")
	r.set(factor.Direction, direction)
	r.setNumber(factor.IP, f.ip())
	if f.Overload {
		r.lack("a server that keeps up: crusader reported its overload")
	}

	return &r
}

// trial returns the result for a direction. Its Traffic is nil if the file has no traffic in that
// direction.
func (f *crusaderFile) trial(direction string) (*Result, error) {
	r := f.result(direction)
	t := &record.Traffic{
		Engine:  "crusader",
		Version: r.Foreign.Version,
		Load:    record.Load{Protocol: "tcp", Direction: direction, IP: f.ip(), Opener: "near"},
	}
	first := int64(math.MaxInt64)
	last := int64(0)
	count := map[string]int{}
	for _, g := range f.Groups {
		own := record.Up
		if g.Download {
			own = record.Down
		}

		if g.Both != (direction == record.Both) || !g.Both && own != direction {
			continue
		}

		for _, s := range g.Streams {
			table := record.NewTable("bytes")
			for i, p := range s.Data {
				at := p.Time.ns()
				if n := len(table.T); at < 0 || !finite(float64(p.Bytes), maxRate) || n > 0 &&
					(at < table.T[n-1] || float64(p.Bytes) < table.V[0][n-1]) {
					return nil, fmt.Errorf("point %d of a stream: times and bytes must not fall", i+1)
				}

				table.Append(at, float64(p.Bytes))
			}

			n := len(table.T)
			if n < 2 {
				continue
			}

			first, last = min(first, table.T[0]), max(last, table.T[n-1])
			count[own]++
			t.Flows = append(t.Flows, record.Flow{Stream: count[own], Direction: own, Received: table})
		}
	}

	if len(t.Flows) == 0 {
		return r, nil
	}

	length := f.Config.Load.ns()
	if length <= 0 {
		length = last - first
	}

	for _, d := range f.Tests {
		kind := map[words]string{"Download": record.Down, "Upload": record.Up, "Bidirectional": record.Both}
		if at := d.Start.ns(); kind[d.Kind] == direction && at >= 0 {
			first = at
		}
	}

	w := record.Window{
		Begin: first,
		Start: first + min(int64(crusaderWarmup*float64(length)), maxWarmup),
		End:   min(first+length-min(int64(crusaderTail*float64(length)), maxTail), last),
		Stop:  last,
	}
	if w.End <= w.Start {
		return nil, fmt.Errorf("the test %s is too short to have a window", direction)
	}

	for i := range t.Flows {
		flow := &t.Flows[i]
		received := statistics.NewCurve(flow.Received.T, flow.Received.V[0])
		bytes := int64(received.At(w.End) - received.At(w.Start))
		flow.SentBytes, flow.ReceivedBytes = bytes, bytes
		flow.SenderNs = w.End - w.Start
		flow.ReceiverNs = w.End - w.Start
	}

	t.Load.Streams = max(count[record.Up], count[record.Down])
	r.Traffic, r.Window = t, w
	r.setLoad(t.Load)
	return r, nil
}

// addPings sets the latency under load from the probes in the trial's window, and the idle latency from
// the probes before the first load.
func (f *crusaderFile) addPings(r *Result, all *record.Latency) {
	load := r.Window.Begin
	for _, g := range f.Groups {
		for _, s := range g.Streams {
			if len(s.Data) > 0 {
				load = min(load, s.Data[0].Time.ns())
			}
		}
	}

	split(r, all)
	r.Idle = sentBefore(all, load)
}
