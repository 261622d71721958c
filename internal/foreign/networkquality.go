package foreign

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// qualityFile is the JSON document that networkQuality -c writes on macOS 12 to 27. Rates are in bit/s,
// responsiveness is in round trips per minute, and base_rtt is in ms. With -s, the directions run one after
// the other, and each direction has its own responsiveness. The last fields are written by mach rpm
// (networkquality-rs, cli/src/report.rs).
type qualityFile struct {
	Down     *number `json:"dl_throughput"`
	Up       *number `json:"ul_throughput"`
	RPM      *number `json:"responsiveness"`
	DownRPM  *number `json:"dl_responsiveness"`
	UpRPM    *number `json:"ul_responsiveness"`
	Base     *number `json:"base_rtt"`
	Start    words   `json:"start_date"`
	Device   words   `json:"interface_name"`
	Endpoint words   `json:"test_endpoint"`
	OS       words   `json:"os_version"`
	Code     words   `json:"error_code"`
	Domain   words   `json:"error_domain"`

	Idle     *number     `json:"unloaded_latency_ms"`
	Download *machReport `json:"download"`
	Upload   *machReport `json:"upload"`
}

type machReport struct {
	Rate   *number `json:"throughput"` // bit/s
	Loaded *number `json:"loaded_latency_ms"`
	RPM    *number `json:"rpm"`
	Failed number  `json:"failed_connections"`
}

// measured holds the values measured in one direction. A nil value is unknown.
type measured struct {
	direction, engine   string
	rate, up, down      *number
	rpm, idleMs, loadMs *number
	failed              float64 // number of failed connections
}

func readNetworkQuality(text []byte) ([]Result, error) {
	var f qualityFile
	if err := decode(text, &f); err != nil {
		return nil, err
	}

	var all []measured
	switch {
	case f.Code != "" || f.Domain != "":
		return nil, &failedError{fmt.Sprintf("networkQuality failed: %s %s", f.Domain, f.Code)}
	case f.Download != nil || f.Upload != nil:
		for _, one := range []struct {
			direction string
			*machReport
		}{{record.Down, f.Download}, {record.Up, f.Upload}} {
			m := one.machReport
			if m != nil {
				all = append(all, measured{
					direction: one.direction,
					rate:      m.Rate,
					rpm:       m.RPM,
					idleMs:    f.Idle,
					loadMs:    m.Loaded,
					engine:    "mach",
					failed:    float64(m.Failed),
				})
			}
		}
	case f.DownRPM != nil || f.UpRPM != nil || f.Down == nil || f.Up == nil:
		all = []measured{{direction: record.Down, rate: f.Down, rpm: f.DownRPM, idleMs: f.Base},
			{direction: record.Up, rate: f.Up, rpm: f.UpRPM, idleMs: f.Base}}
	default:
		all = []measured{{
			direction: record.Both,
			rate:      new(*f.Down + *f.Up),
			up:        f.Up,
			down:      f.Down,
			rpm:       f.RPM,
			idleMs:    f.Base,
		}}
	}

	var out []Result
	for _, m := range all {
		if m.rate == nil {
			continue
		}

		r, err := m.result()
		if err != nil {
			return nil, err
		}

		r.Began = qualityTime(string(f.Start))
		for key, v := range map[string]words{"os_version": f.OS, "interface_name": f.Device,
			"test_endpoint": f.Endpoint} {
			if v != "" {
				r.Foreign.Facts[key] = string(v)
			}
		}

		r.Foreign.Version = strings.TrimPrefix(string(f.OS), "Version ")
		out = append(out, *r)
	}

	if len(out) == 0 {
		return nil, errors.New("it contains no throughput")
	}

	return out, nil
}

// qualityTime parses the date of a test. A date without a time zone is in UTC. It returns the zero time if
// the date is missing.
func qualityTime(text string) time.Time {
	for _, layout := range []string{time.DateTime, time.RFC3339, "2006-01-02T15:04:05",
		"2006-01-02 15:04:05 -0700"} { // time.Parse accepts fractions of a second with each layout
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC()
		}
	}
	return time.Time{}
}

func (m measured) result() (*Result, error) {
	tool := cmp.Or(m.engine, "networkQuality")
	r := newResult("", oneRun, "series", "single round trips",
		"a responsiveness like ours: its own is over TLS")
	r.Foreign.Tool = tool
	if m.failed > 0 {
		r.lack(fmt.Sprintf("a full load: %g connections failed", m.failed))
	}

	for _, v := range []struct {
		metric string
		value  *number
		scale  float64
	}{{metrics.Goodput, m.rate, 1}, {metrics.GoodputUp, m.up, 1}, {metrics.GoodputDown, m.down, 1},
		{metrics.Responsiveness, m.rpm, 1}, {metrics.RequestIdle, m.idleMs, 1e6},
		{metrics.RequestLoaded, m.loadMs, 1e6}} {
		if v.value == nil {
			continue
		}

		x := float64(*v.value) * v.scale
		if finite(x, maxRate) {
			r.Foreign.Values[v.metric] = x
		} else {
			return nil, fmt.Errorf("%s is %g, which cannot be", v.metric, x)
		}
	}

	r.set(factor.Engine, strings.ToLower(tool))
	r.set(factor.Protocol, "tcp")
	r.set(factor.Direction, m.direction)
	return &r, nil
}
