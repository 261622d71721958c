package foreign

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// irttFile is the JSON document that irtt client -o writes, format 1 (doc/irtt-client.md in irtt). Times
// are in nanoseconds.
type irttFile struct {
	Version struct {
		IRTT   words `json:"irtt"`
		Format int   `json:"json_format"`
	} `json:"version"`
	Config struct {
		Params struct {
			Interval int64 `json:"interval"`
			Length   int   `json:"length"`
			DSCP     int   `json:"dscp"` // the whole DS byte, including the ECN bits
		} `json:"params"`
		IP words `json:"ip_version"`
	} `json:"config"`
	Stats struct {
		Duplicates int64 `json:"duplicates"`
	} `json:"stats"`
	Trips []struct {
		Lost  words `json:"lost"` // false, true, true_up or true_down; false and true may be quoted
		Stamp struct {
			Client struct {
				Send struct {
					Wall      int64 `json:"wall"`
					Monotonic int64 `json:"monotonic"`
				} `json:"send"`
			} `json:"client"`
		} `json:"timestamps"`
		Delay struct {
			RTT *int64 `json:"rtt"`
		} `json:"delay"`
	} `json:"round_trips"`
}

func readIRTT(text []byte) ([]Result, error) {
	var f irttFile
	if err := decode(text, &f); err != nil {
		return nil, err
	}

	if f.Version.Format != 1 {
		return nil, fmt.Errorf("JSON format %d of irtt: want 1", f.Version.Format)
	}

	if len(f.Trips) == 0 {
		return nil, errors.New("it contains no round-trip times")
	}

	first := f.Trips[0].Stamp.Client.Send
	p := f.Config.Params
	ip := 4
	if strings.HasSuffix(string(f.Config.IP), "6") {
		ip = 6
	}

	l := &record.Latency{
		Probe:      "echo",
		Stamps:     "user",
		IntervalNs: max(p.Interval, 0),
		Size:       min(max(p.Length, 0), 65535) + traffic.PacketOverhead(ip),
		Includes:   "from irtt's send to its receive, without the server's time",
		Duplicates: max(f.Stats.Duplicates, 0),
	}
	for i, trip := range f.Trips {
		at := trip.Stamp.Client.Send.Monotonic - first.Monotonic
		if first.Monotonic == 0 {
			at = trip.Stamp.Client.Send.Wall - first.Wall
		}

		if at < 0 || at > maxSeconds*1e9 {
			return nil, fmt.Errorf("round trip %d was sent %d ns after the first", i+1, at)
		}

		rtt := int64(-1)
		v := trip.Delay.RTT
		if v != nil && trip.Lost == "false" && *v >= 0 && *v <= maxSeconds*1e9 {
			rtt = *v
		}

		l.RTT, l.SentAt = append(l.RTT, rtt), append(l.SentAt, at)
	}

	r := newResult(string(f.Version.IRTT), oneRun, "whether a load was on the path: it is taken for idle",
		"kernel time stamps")
	if first.Wall > 0 {
		r.Began = time.Unix(0, first.Wall).UTC()
	}

	split(&r, l)
	r.set(factor.Engine, "irtt")
	r.setNumber(factor.IP, ip)
	r.setNumber(factor.PacketSize, l.Size)
	r.set("interval", time.Duration(l.IntervalNs).String())
	r.setNumber(factor.DSCP, p.DSCP>>2&63)
	return []Result{r}, nil
}
