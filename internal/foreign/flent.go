package foreign

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// flentFile is a data file of flent, version 4 (doc/data-format.rst in flent). Versions 2 and 3 differ in
// the raw values, which are stored but not interpreted.
type flentFile struct {
	Version number               `json:"version"`
	X       []number             `json:"x_values"`
	Results map[string][]number  `json:"results"`
	Raw     map[string][]flentAt `json:"raw_values"`
	Meta    struct {
		Name   words   `json:"NAME"`
		Title  words   `json:"TITLE"`
		Note   words   `json:"NOTE"`
		Time   words   `json:"TIME"`
		Zero   words   `json:"T0"`
		Host   words   `json:"HOST"`
		Hosts  []words `json:"HOSTS"`
		Local  words   `json:"LOCAL_HOST"`
		Remote map[string]struct {
			Local words `json:"LOCAL_HOST"`
		} `json:"REMOTE_METADATA"`
		Flent   words `json:"FLENT_VERSION"`
		IP      words `json:"IP_VERSION"`
		Release words `json:"KERNEL_RELEASE"`
		Series  map[string]struct {
			Units  words `json:"UNITS"`
			Runner words `json:"RUNNER"`
		} `json:"SERIES_META"`
	} `json:"metadata"`
}

// flentAt holds a raw value. A value with a sequence number belongs to a single probe. A value with a
// duration belongs to an interval that ends at T.
type flentAt struct {
	T   number  `json:"t"`
	Val *maybe  `json:"val"`
	Dur number  `json:"dur"`
	Seq *number `json:"seq"`
}

// maybe is a JSON number, or NaN if the JSON value is anything else.
type maybe float64

func (m *maybe) UnmarshalJSON(b []byte) error {
	v, err := strconv.ParseFloat(string(b), 64)
	if *m = maybe(v); err != nil {
		*m = maybe(math.NaN())
	}
	return nil
}

// These are flent's names for series of round-trip times.
const (
	flentPing = "Ping (ms)"
	flentICMP = flentPing + " ICMP"
)

func readFlent(text []byte) ([]Result, error) {
	var named, f flentFile
	if err := decode(text, &named); err != nil {
		return nil, err
	}

	text = named.anonymous(text)
	if err := decode(text, &f); err != nil {
		return nil, err
	}

	if v := float64(f.Version); v != 2 && v != 3 && v != 4 {
		return nil, fmt.Errorf("version %g of flent's format: want 2 to 4", v)
	}

	m := &f.Meta
	zero, err := flentTime(string(cmp.Or(m.Zero, m.Time)))
	if err != nil {
		return nil, err
	}

	r := newResult(string(m.Flent), oneRun,
		"cut-off of start and end: a window is what all flows were seen in")
	r.Began = zero
	if r.Foreign.Raw, err = flentRaw(text); err != nil {
		return nil, err
	}

	if err := f.series(&r.Foreign); err != nil {
		return nil, err
	}

	for key, v := range map[string]words{"NAME": m.Name, "TITLE": m.Title, "NOTE": m.Note, "HOST": m.Host,
		"LOCAL_HOST": m.Local, "IP_VERSION": m.IP, "KERNEL_RELEASE": m.Release} {
		if v != "" {
			r.Foreign.Facts[key] = string(v)
		}
	}

	f.addFlows(&r)
	f.addPings(&r)
	if r.Traffic == nil && r.Idle == nil {
		for _, series := range r.Foreign.Series.Names {
			direction, _ := f.direction(series)
			if direction != "" {
				if len(f.X) == 1 {
					return nil, fmt.Errorf("series %.40q has one time step, which has no length",
						series)
				}
				return nil, fmt.Errorf("series %.40q has no rate at any time", series)
			}
		}
		return nil, check.Hinted("those are TCP or UDP upload and download in Mbits/s, such as of "+
			"tcp_upload or rrul, and \""+flentPing+"\"", "none of its series is one that is read: %s",
			name(strings.Join(r.Foreign.Series.Names, ", ")))
	}

	r.set(factor.Engine, "flent")
	r.set("test", string(m.Name))
	r.set(title, string(m.Title))
	if m.IP == "4" || m.IP == "6" {
		r.set(factor.IP, string(m.IP))
	}

	return []Result{r}, nil
}

// flentTime parses an ISO 8601 time and interprets it as UTC.
func flentTime(s string) (time.Time, error) {
	t, err := time.Parse("2006-01-02T15:04:05.999999999", strings.TrimSuffix(s, "Z"))
	if err != nil || t.Year() < 1971 || t.Year() > 2200 {
		return time.Time{}, fmt.Errorf("T0 or TIME %.40q is no time", s)
	}
	return t, nil
}

// series copies all series unchanged to a record.
func (f *flentFile) series(to *record.Foreign) error {
	if len(f.X) == 0 {
		return errors.New("x_values are empty")
	}

	names := slices.Sorted(maps.Keys(f.Results))
	t := record.NewTable()
	for i, x := range f.X {
		if !finite(float64(x), maxSeconds) || i > 0 && x <= f.X[i-1] {
			return fmt.Errorf("x value %d is %g: times must be from 0 on and ascend", i+1, float64(x))
		}

		t.T = append(t.T, int64(math.Round(float64(x)*1e9)))
	}

	for _, n := range names {
		if len(f.Results[n]) != len(f.X) {
			return fmt.Errorf("series %.40q has %d values for %d times", n, len(f.Results[n]), len(f.X))
		}

		plain := name(n)
		if slices.Contains(t.Names, plain) {
			return fmt.Errorf("series %.40q is there twice", plain)
		}

		column := make([]float64, len(f.X))
		for i, v := range f.Results[n] {
			column[i] = float64(v)
		}

		t.Names, t.V = append(t.Names, plain), append(t.V, column)
		u := f.Meta.Series[n].Units
		if u != "" {
			to.Facts["unit of "+plain] = string(u)
		}
	}

	to.Series = t
	return nil
}

// flentSeries returns the name of a series without "::" and the number after it. ok is false for derived
// series.
func flentSeries(series string) (name string, ok bool) {
	name, sub, below := strings.Cut(series, "::")
	_, err := strconv.Atoi(sub)
	return name, !below || err == nil
}

// direction returns the direction and protocol of a series that is the rate of a single flow. It returns ""
// for other series.
func (f *flentFile) direction(series string) (direction, protocol string) {
	meta := f.Meta.Series[series]
	head, ok := flentSeries(series)
	words := strings.Fields(head)
	if !ok || len(words) < 2 || meta.Units != "" && meta.Units != "Mbits/s" ||
		strings.HasPrefix(string(meta.Runner), "Sum") || strings.HasPrefix(string(meta.Runner), "Average") ||
		slices.Contains([]string{"avg", "sum", "totals", "fairness"}, words[len(words)-1]) {
		return "", ""
	}

	direction = map[string]string{"upload": record.Up, "download": record.Down}[words[1]]
	if protocol = strings.ToLower(words[0]); protocol != factor.TCP && protocol != factor.UDP {
		return "", ""
	}

	return direction, protocol
}

// addFlows converts the series of rates, in Mbit/s, to flows.
func (f *flentFile) addFlows(r *Result) {
	zero := float64(r.Began.UnixNano()) / 1e9
	t := &record.Traffic{Engine: "flent", Version: r.Foreign.Version}
	load := record.Load{Direction: record.Up, IP: 4, Opener: "near"}
	count := map[string]int{}
	first := int64(math.MaxInt64)
	last := int64(0)
	for _, series := range slices.Sorted(maps.Keys(f.Results)) {
		direction, protocol := f.direction(series)
		if direction == "" {
			continue
		}

		table := f.bytes(series, zero)
		n := len(table.T)
		if n < 2 {
			continue
		}

		bytes := table.V[0]
		total := int64(bytes[n-1] - bytes[0])
		length := table.T[n-1] - table.T[0]
		first, last = min(first, table.T[0]), max(last, table.T[n-1])
		count[direction]++
		t.Flows = append(t.Flows, record.Flow{
			Stream:        count[direction],
			Direction:     direction,
			SentBytes:     total,
			ReceivedBytes: total,
			SenderNs:      length,
			ReceiverNs:    length,
			Received:      table,
		})
		load.Protocol = protocol
	}

	if len(t.Flows) == 0 {
		return
	}

	load.Streams = max(count[record.Up], count[record.Down])
	switch {
	case count[record.Up] > 0 && count[record.Down] > 0:
		load.Direction = record.Both
	case count[record.Down] > 0:
		load.Direction = record.Down
	}

	if load.Direction != record.Down {
		r.lack("what arrived of an upload: flent reports what was sent")
	}

	if f.Meta.IP == "6" {
		load.IP = 6
	}

	t.Load, r.Traffic, r.Window = load, t, record.Window{Start: first, End: last, Stop: last}
	r.setLoad(load)
}

// maxBytes is the largest plausible byte count.
const maxBytes = 1e18

// byteCount integrates rates to a cumulative count of bytes.
type byteCount struct {
	table *record.Table
	sum   float64
}

// add counts the bytes that a rate in Mbit/s transfers in the given number of seconds. from and to are the
// times in nanoseconds between which the rate applied. Implausible values are ignored.
func (c *byteCount) add(from, to int64, seconds, rate float64) {
	if from < 0 || to <= from || !finite(rate*1e6, maxRate) || !finite(float64(to)/1e9, maxSeconds) {
		return
	}

	t := c.table
	if len(t.T) == 0 {
		t.Append(from, 0)
	}

	c.sum += rate * 1e6 / 8 * seconds
	if to > t.T[len(t.T)-1] && c.sum < maxBytes {
		t.Append(to, c.sum)
	}
}

// bytes returns the cumulative byte count of a series. It uses the raw rates if the file has any. Otherwise,
// it uses the rates on the common axis. Each rate applies to the step that ends at the rate's time.
func (f *flentFile) bytes(series string, zero float64) *record.Table {
	c := byteCount{table: record.NewTable("bytes")}
	for _, p := range f.Raw[series] {
		if at := float64(p.T) - zero; p.Val != nil {
			to := int64(at * 1e9)
			c.add(to-int64(float64(p.Dur)*1e9), to, float64(p.Dur), float64(*p.Val))
		}
	}

	if len(c.table.T) > 1 {
		return c.table
	}

	c = byteCount{table: record.NewTable("bytes")}
	for i, v := range f.Results[series] {
		from := float64(f.X[max(i-1, 0)])
		to := float64(f.X[i])
		if i == 0 && len(f.X) > 1 { // assume that the first step is as long as the second
			from -= float64(f.X[1]) - to
		}

		from, to = math.Round(from*1e9), math.Round(to*1e9)
		c.add(int64(from), int64(to), (to-from)/1e9, float64(v))
	}

	return c.table
}
