package foreign

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// irttFile is the JSON of irtt client -o, format 1 (its doc/irtt-client.md). Times are nanoseconds.
type irttFile struct {
	Version struct {
		IRTT   words `json:"irtt"`
		Format int   `json:"json_format"`
	} `json:"version"`
	Config struct {
		Params struct {
			Interval int64 `json:"interval"`
			Length   int   `json:"length"`
			DSCP     int   `json:"dscp"` // the whole byte
		} `json:"params"`
		IP words `json:"ip_version"`
	} `json:"config"`
	Stats struct {
		Duplicates int64 `json:"duplicates"`
		Start      struct {
			Wall int64 `json:"wall"`
		} `json:"start_time"`
	} `json:"stats"`
	Trips []struct {
		Lost  json.RawMessage `json:"lost"` // false, true, "true_up", "true_down"
		Stamp struct {
			Client struct {
				Send struct {
					Wall int64 `json:"wall"`
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
		return nil, fmt.Errorf("JSON format %d of irtt: 1 is read", f.Version.Format)
	}
	if len(f.Trips) == 0 {
		return nil, errors.New("there is no round trip in it")
	}
	start := f.Stats.Start.Wall
	if start <= 0 {
		start = f.Trips[0].Stamp.Client.Send.Wall
	}
	p := f.Config.Params
	ip := 4
	if strings.HasSuffix(string(f.Config.IP), "6") {
		ip = 6
	}
	l := &record.Latency{Probe: "echo", Stamps: "user", IntervalNs: max(p.Interval, 0),
		Size:       min(max(p.Length, 0), 65535) + traffic.PacketOverhead(ip),
		Includes:   "from irtt's send to its receive, without the server's time",
		Duplicates: max(f.Stats.Duplicates, 0)}
	for i, trip := range f.Trips {
		at := trip.Stamp.Client.Send.Wall - start
		if at < 0 || at > mostSeconds*1e9 {
			return nil, fmt.Errorf("round trip %d was sent %d ns after the start", i+1, at)
		}
		rtt := int64(-1)
		if v := trip.Delay.RTT; v != nil && string(trip.Lost) == "false" && *v >= 0 && *v <= mostSeconds*1e9 {
			rtt = *v
		}
		l.RTT, l.SentAt = append(l.RTT, rtt), append(l.SentAt, at)
	}
	r := Result{Factors: record.Factors{}, Began: time.Unix(0, max(start, 0)).UTC(),
		Foreign: record.Foreign{Version: string(f.Version.IRTT), Lacks: append([]string{oneRun,
			"whether a load was on the path: it is taken for idle", "kernel time stamps"}, unwatched...)}}
	split(&r, l)
	set(r.Factors, factor.Engine, "irtt")
	set(r.Factors, factor.IP, strconv.Itoa(ip))
	set(r.Factors, factor.PacketSize, strconv.Itoa(l.Size))
	set(r.Factors, "interval", time.Duration(l.IntervalNs).String())
	if d := p.DSCP >> 2 & 63; d > 0 {
		set(r.Factors, factor.DSCP, strconv.Itoa(d))
	}
	return []Result{r}, nil
}
