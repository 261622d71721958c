package iperf3

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// File holds one test read from the output of iperf3 --json.
type File struct {
	Traffic *record.Traffic
	Began   time.Time // start of the test; zero if unknown
	Title   string    // value of --title
	Extra   string    // value of --extra-data
	// Alone is set if the file lacks the intervals of the other end.
	Alone bool
	// Printed is set if the test was read from output without --json. Rates in such output have three digits.
	Printed bool
	// Missing lists factors that the file does not contain.
	Missing []factor.Name
}

// ReadFile parses the output of iperf3 --json. Times count from the beginning of the test. The near end is
// the end that connected, regardless of which end wrote the file.
func ReadFile(text []byte) (*File, error) {
	var r iperf3Report
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, err
	}
	return r.file()
}

// file converts the report of one end to a File.
func (r *iperf3Report) file() (*File, error) {
	if err := r.check(); err != nil {
		return nil, err
	}

	load, err := r.load()
	if err != nil {
		return nil, err
	}

	other := r
	if s := r.Server; s != nil && s.check() == nil && len(s.End.Streams) == len(r.End.Streams) {
		other = s
	}

	t, err := joinReports(load, r, other, 0)
	if err != nil {
		return nil, err
	}

	f := &File{Traffic: t, Title: r.Title, Extra: r.Extra, Alone: other == r}
	if s := r.Start.Timestamp.Seconds; s > 0 && s < 1<<33 {
		f.Began = time.Unix(int64(s), 0).UTC()
	}

	if f.Alone {
		err = r.keepOwn(t, load.Opener == "near")
	}

	return f, err
}

// load returns the load that iperf3 was requested to offer.
func (r *iperf3Report) load() (record.Load, error) {
	s := r.Start.TestStart
	l := record.Load{
		Protocol:   strings.ToLower(s.Protocol),
		Direction:  record.Up,
		Streams:    s.Streams,
		IP:         4,
		DSCP:       max(s.TOS, 0) >> 2 & 63,
		Warmup:     seconds(math.Ceil(s.Omit)),
		Duration:   seconds(s.Duration),
		Interval:   seconds(s.Interval),
		Opener:     "near",
		Congestion: r.End.Congestion,
	}
	flows := len(r.End.Streams)
	switch {
	case flows > 2*maxStreams:
		return l, fmt.Errorf("%d streams: iperf3 allows %d", flows, maxStreams)
	case l.Protocol != "tcp" && l.Protocol != "udp" && l.Protocol != "sctp":
		return l, fmt.Errorf("protocol %.20q is not one of iperf3's", l.Protocol)
	case flows == 2*s.Streams:
		l.Direction = record.Both
	case s.Bidir != 0 || flows != s.Streams:
		return l, fmt.Errorf("%d streams were requested, but %d are reported", s.Streams, flows)
	case s.Reverse != 0:
		l.Direction = record.Down
	}

	for _, c := range r.Start.Connected {
		if a, err := netip.ParseAddr(c.RemoteHost); err == nil && a.Is6() && !a.Is4In6() {
			l.IP = 6
		}
	}

	if r.Start.Accepted != nil {
		l.Opener = "far" // because joinReports takes the end that wrote the report for the far end
		if l.Protocol == "udp" {
			return l, errServers
		}
	}

	if l.Protocol == "udp" && s.Block > 0 {
		l.PacketSize = min(max(s.Block, 0), math.MaxUint16) + traffic.PacketOverhead(l.IP)
	}

	if s.Rate > 0 && s.Rate < 1e15 {
		l.RateBps = s.Rate * float64(flows)
	}

	return l, nil
}

var errServers = check.WithHint(errors.New("it is the server's file, which does not hold what the client "+
	"counted"), "import the client's file; with --get-server-output it has both ends' counts")

func seconds(s float64) time.Duration {
	return time.Duration(min(max(s, 0), 1e7) * float64(time.Second))
}

// keepOwn removes the series that only the other end has. The parameter near is set if the near end wrote the
// report.
func (r *iperf3Report) keepOwn(t *record.Traffic, near bool) error {
	for i := range t.Flows {
		f := &t.Flows[i]
		if near {
			f.Local, f.Remote = r.bothNames(f.Local)
		}

		if (f.Direction == record.Up) == near { // the end that wrote the report is the sender
			f.Received = nil
			if f.ReceivedBytes == 0 && f.SentBytes > 0 && !near {
				return errServers
			}
			continue
		}

		if f.Sent = nil; near {
			f.Local, f.Remote = f.Remote, f.Local
		}

		if f.TCP != nil {
			f.TCP.Series = nil
		}
	}
	return nil
}
