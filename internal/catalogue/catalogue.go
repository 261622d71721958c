// Package catalogue provides published results of other people's studies as typed data: devices,
// throughput, cipher speeds and power draw, each with its source and conditions. data/NOTICE.md lists the
// origins. The package reads only the data built into the program.
package catalogue

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/csv"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

//go:embed data/*.csv
var files embed.FS

// Source describes a published study.
type Source struct {
	ID        string `json:"id"`
	About     string `json:"about"`
	URL       string `json:"url,omitempty"`
	Published string `json:"published,omitempty"` // a year or several years
	Licence   string `json:"licence"`             // licence of the data, as stated by the study
}

// Device describes a router, or only a processor if the source names no router. Zero and "" mean that the
// source does not state the value.
type Device struct {
	Name      string `json:"name"`
	SoC       string `json:"soc"`
	Arch      string `json:"arch"`
	Cores     int    `json:"cores,omitempty"`
	Threads   int    `json:"threads,omitempty"`
	ClockMHz  int    `json:"clock_mhz,omitempty"`
	MemoryMB  int    `json:"memory_mb,omitempty"`
	Port      string `json:"fastest_port,omitempty"` // fastest port; both ports if the two used differ
	Link      string `json:"study_link,omitempty"`   // link that limits the study's rates, unless a port does
	OS        string `json:"os,omitempty"`
	OSVersion string `json:"os_version,omitempty"`
	Crypto    string `json:"crypto_extensions,omitempty"`
	Inferred  string `json:"inferred,omitempty"`
	Note      string `json:"note,omitempty"`
	Source    string `json:"source"`
}

var ethernet = check.Pattern(`(\d+(?:\.\d+)?)GbE`)

// PortBps returns the line rate between two ports in bit/s. If Port names two ports, this is the rate of the
// slower one. Otherwise, it is the rate of the fastest port. PortBps returns 0 if the source does not state
// the rate.
func (d Device) PortBps() float64 { return slowest(d.Port) }

// LinkBps returns the line rate of the study's link in bit/s, or 0 if a port limits the study's rates.
func (d Device) LinkBps() float64 { return slowest(d.Link) }

func slowest(ports string) (bps float64) {
	for _, m := range ethernet().FindAllStringSubmatch(ports, -1) {
		v, _ := strconv.ParseFloat(m[1], 64) // the pattern matches only numbers
		if bps == 0 || v*1e9 < bps {
			bps = v * 1e9
		}
	}
	return bps
}

// Family returns Arch without the name of the core: "arm64" for "arm64 Cortex-A73".
func (d Device) Family() string {
	family, _, _ := strings.Cut(d.Arch, " ")
	return family
}

// Result holds one published rate and its conditions. Zero and "" mean that the source does not state the
// value. Values for which zero is a possible result are pointers; nil means that the source does not state
// the value.
type Result struct {
	Row         int      `json:"row"` // row number from 1, in data/throughput.csv or a bundle; 0 if neither
	Source      string   `json:"source"`
	Device      string   `json:"device"`
	Measured    string   `json:"measured,omitempty"` // year of the measurement
	Tool        string   `json:"tool,omitempty"`
	Statistic   string   `json:"statistic,omitempty"`
	Runs        int      `json:"runs,omitempty"`
	Seconds     float64  `json:"duration_s,omitempty"`
	Condition   string   `json:"condition,omitempty"`
	Tunnel      string   `json:"tunnel"`
	Protocol    string   `json:"protocol"`
	IP          string   `json:"ip,omitempty"`
	Direction   string   `json:"direction,omitempty"`
	Streams     int      `json:"streams,omitempty"`
	Packet      int      `json:"packet_bytes,omitempty"`
	MTU         int      `json:"mtu,omitempty"` // inner MTU in bytes
	Queue       string   `json:"queue,omitempty"`
	Clock       string   `json:"cpu_clock,omitempty"` // MHz, or "auto"
	Firewall    string   `json:"firewall,omitempty"`
	GoodputBps  *float64 `json:"goodput_bps,omitempty"`
	Spread      float64  `json:"spread_ratio,omitempty"` // half the interval's width ÷ rate; 0 for a study
	Retransmits *float64 `json:"retransmits,omitempty"`
	CPULow      *float64 `json:"cpu_low_ratio,omitempty"` // CPU use of all cores together, 0 to 1
	CPUHigh     *float64 `json:"cpu_high_ratio,omitempty"`
	Consistency string   `json:"consistency,omitempty"`
	PacketRate  *float64 `json:"packet_rate_pps,omitempty"`
	Inferred    string   `json:"inferred,omitempty"`
	Note        string   `json:"note,omitempty"`
	Grade       string   `json:"grade,omitempty"` // set for a cell of our own runs; studies have no grades
	Lab         string   `json:"lab,omitempty"`   // set if one of our own runs measured the lab itself
}

// Rate formats the goodput, or returns "not given".
func (r Result) Rate() string {
	if r.GoodputBps == nil {
		return "not given"
	}
	return unit.Bitrate(*r.GoodputBps).String()
}

// How describes the statistic and the measurements from which the rate was computed, such as "median of 5 ×
// 60 s".
func (r Result) How() string {
	words := r.Statistic
	if r.Runs > 1 {
		words += fmt.Sprintf(" of %d", r.Runs)
	}

	if r.Seconds > 0 {
		words += fmt.Sprintf(" × %g s", math.Round(100*r.Seconds)/100)
	}

	return cmp.Or(words, "not stated")
}

// Conditions describes the conditions other than the traffic and the tunnel, such as "2026, up, queue cake,
// clock 1400".
func (r Result) Conditions() string {
	var words []string
	for _, w := range [...]struct{ name, value string }{{"", r.Measured}, {"", r.Direction},
		{"", r.Condition}, {"queue ", r.Queue}, {"clock ", r.Clock}, {"firewall ", r.Firewall}} {
		if w.value != "" {
			words = append(words, w.name+w.value)
		}
	}
	return strings.Join(words, ", ")
}

// Speed holds the published speed of an algorithm on a device.
type Speed struct {
	Source    string   `json:"source"`
	Device    string   `json:"device"`
	Algorithm string   `json:"algorithm"`
	Operation string   `json:"operation"` // "throughput", "sign", "verify", "derive"
	Block     int      `json:"block_bytes,omitempty"`
	Value     *float64 `json:"value,omitempty"` // nil if the source lists it as unknown
	Unit      string   `json:"unit"`            // "B/s" or "op/s"
	Mode      string   `json:"mode,omitempty"`
}

// Text formats the speed with its unit.
func (s Speed) Text() string {
	switch {
	case s.Value == nil:
		return "not known"
	case s.Unit == "B/s":
		return unit.Bitrate(*s.Value * 8).String()
	}
	return unit.Significant(*s.Value, 4) + " op/s"
}

// Power holds the power draw of a device under a load, in watts.
type Power struct {
	Source string   `json:"source"`
	Device string   `json:"device"`
	Load   string   `json:"load"`
	Low    *float64 `json:"watts_low,omitempty"`
	High   *float64 `json:"watts_high,omitempty"`
}

// Watts formats the range of the power draw, or returns "" if the source does not give it.
func (p Power) Watts() string {
	switch {
	case p.Low == nil:
		return ""
	case *p.Low == *p.High:
		return fmt.Sprintf("%g W", *p.Low)
	}
	return fmt.Sprintf("%g to %g W", *p.Low, *p.High)
}

// Catalogue holds all published data, in file order.
type Catalogue struct {
	Sources []Source
	Devices []Device
	Results []Result
	Speeds  []Speed
	Powers  []Power
}

// Published parses the built-in data, which the tests check. Errors name the file and the row.
func Published() (*Catalogue, error) { return read(files.ReadFile) }

func read(file func(name string) ([]byte, error)) (*Catalogue, error) {
	c := &Catalogue{}
	for _, part := range []struct {
		name    string
		columns string
		add     func(*row)
	}{
		{"sources", "id about url published licence", c.addSource},
		{"devices", "device soc arch cores threads clock_mhz ram_mb fastest_port study_link os os_version " +
			"crypto_extensions inferred note source", c.addDevice},
		{"throughput", "source device measured tool statistic runs duration_s condition tunnel proto ip " +
			"direction streams packet_bytes mtu queue cpu_clock firewall throughput_mbps retransmits " +
			"cpu_pct_low cpu_pct_high consistency kpps inferred note", c.addResult},
		{"crypto", "source device algorithm operation block_bytes value unit mode", c.addSpeed},
		{"power", "source device load watts_low watts_high", c.addPower},
	} {
		name := "data/" + part.name + ".csv"
		text, err := file(name)
		if err != nil {
			return nil, fmt.Errorf("read catalogue: %v", err)
		}

		records, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
		if err != nil {
			return nil, fmt.Errorf("read catalogue %s: %v", name, err)
		}

		columns := strings.Fields(part.columns)
		if len(records) < 2 || !slices.Equal(records[0], columns) {
			return nil, fmt.Errorf("read catalogue %s: want rows below the columns %s", name,
				strings.Join(columns, ","))
		}

		for i, fields := range records[1:] {
			r := &row{number: i + 1, columns: columns, fields: fields}
			if part.add(r); r.err != nil {
				return nil, fmt.Errorf("read catalogue %s: row %d: %w", name, i+1, r.err)
			}
		}
	}
	return c, nil
}

// row holds one row of a file and an error in it.
type row struct {
	number          int
	columns, fields []string
	err             error
}

func (r *row) text(column string) string { return r.fields[slices.Index(r.columns, column)] }

// value returns the number in a column, or nil if the field is empty. It divides the number by scale to
// convert it to our unit.
func (r *row) value(column string, scale float64) *float64 {
	text := r.text(column)
	if text == "" {
		return nil
	}

	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		r.err = fmt.Errorf("%s %q is not a number", column, text)
	}

	return new(v / scale)
}

func (r *row) whole(column string) int {
	v := r.value(column, 1)
	if v == nil {
		return 0
	}
	return int(*v)
}

func (c *Catalogue) addSource(r *row) {
	c.Sources = append(c.Sources, Source{r.text("id"), r.text("about"), r.text("url"), r.text("published"),
		r.text("licence")})
}

func (c *Catalogue) addDevice(r *row) {
	c.Devices = append(c.Devices, Device{
		Name:      r.text("device"),
		SoC:       r.text("soc"),
		Arch:      r.text("arch"),
		Cores:     r.whole("cores"),
		Threads:   r.whole("threads"),
		ClockMHz:  r.whole("clock_mhz"),
		MemoryMB:  r.whole("ram_mb"),
		Port:      r.text("fastest_port"),
		Link:      r.text("study_link"),
		OS:        r.text("os"),
		OSVersion: r.text("os_version"),
		Crypto:    r.text("crypto_extensions"),
		Inferred:  r.text("inferred"),
		Note:      r.text("note"),
		Source:    r.text("source"),
	})
}

func (c *Catalogue) addResult(r *row) {
	x := Result{
		Row:         r.number,
		Source:      r.text("source"),
		Device:      r.text("device"),
		Measured:    r.text("measured"),
		Tool:        r.text("tool"),
		Statistic:   r.text("statistic"),
		Runs:        r.whole("runs"),
		Condition:   r.text("condition"),
		Tunnel:      r.text("tunnel"),
		Protocol:    r.text("proto"),
		IP:          r.text("ip"),
		Direction:   r.text("direction"),
		Streams:     r.whole("streams"),
		Packet:      r.whole("packet_bytes"),
		MTU:         r.whole("mtu"),
		Queue:       r.text("queue"),
		Clock:       r.text("cpu_clock"),
		Firewall:    r.text("firewall"),
		GoodputBps:  r.value("throughput_mbps", 1e-6),
		Retransmits: r.value("retransmits", 1),
		CPULow:      r.value("cpu_pct_low", 100),
		CPUHigh:     r.value("cpu_pct_high", 100),
		Consistency: r.text("consistency"),
		PacketRate:  r.value("kpps", 1e-3),
		Inferred:    r.text("inferred"),
		Note:        r.text("note"),
	}
	s := r.value("duration_s", 1)
	if s != nil {
		x.Seconds = *s
	}

	c.Results = append(c.Results, x)
}

func (c *Catalogue) addSpeed(r *row) {
	unit := r.text("unit")
	scale := 1.0
	if unit == "kB/s" {
		unit, scale = "B/s", 1e-3
	}

	c.Speeds = append(c.Speeds, Speed{r.text("source"), r.text("device"), r.text("algorithm"),
		r.text("operation"), r.whole("block_bytes"), r.value("value", scale), unit, r.text("mode")})
}

func (c *Catalogue) addPower(r *row) {
	c.Powers = append(c.Powers, Power{r.text("source"), r.text("device"), r.text("load"),
		r.value("watts_low", 1), r.value("watts_high", 1)})
}

// inYear matches the year that may follow the name of a device. A text that starts with a parenthesis denotes
// something that is not a device.
var inYear = check.Pattern(` \(\d{4}\)$`)

// Source returns the study with the given id.
func (c *Catalogue) Source(id string) (Source, bool) {
	return find(c.Sources, func(s Source) bool { return s.ID == id })
}

// Device returns the device with the given name, ignoring case.
func (c *Catalogue) Device(name string) (Device, bool) {
	return find(c.Devices, func(d Device) bool { return strings.EqualFold(d.Name, name) })
}

func find[T any](list []T, is func(T) bool) (found T, ok bool) {
	i := slices.IndexFunc(list, is)
	if i >= 0 {
		return list[i], true
	}
	return found, false
}

// Filter selects results. A zero field matches everything.
type Filter struct {
	Source, Device, Tunnel, Protocol, IP string
	Streams, MTU                         int
}

// Filtered returns the results that match f. An attribute that the source does not state matches only a
// zero field.
func (c *Catalogue) Filtered(f Filter) []Result {
	return slices.DeleteFunc(slices.Clone(c.Results), func(r Result) bool {
		for _, at := range [...][2]string{{f.Source, r.Source}, {f.Device, r.Device}, {f.Tunnel, r.Tunnel},
			{f.Protocol, r.Protocol}, {f.IP, r.IP}} {
			if at[0] != "" && !strings.EqualFold(at[0], at[1]) {
				return true
			}
		}
		return f.Streams != 0 && f.Streams != r.Streams || f.MTU != 0 && f.MTU != r.MTU
	})
}

// IsDevice reports whether the device of a row is the device called meant, ignoring case. The row's device
// may be followed by a year in parentheses: "Turris Omnia (2021)" matches "Turris Omnia (2021)" and "Turris
// Omnia".
func IsDevice(device, meant string) bool {
	return strings.EqualFold(device, meant) || strings.EqualFold(inYear().ReplaceAllString(device, ""), meant)
}

// PowersOf returns the power draws of a device.
func (c *Catalogue) PowersOf(device string) []Power {
	return slices.DeleteFunc(slices.Clone(c.Powers), func(p Power) bool {
		return !IsDevice(p.Device, device)
	})
}

// SpeedsOf returns the cipher speeds of a device.
func (c *Catalogue) SpeedsOf(device string) []Speed {
	return slices.DeleteFunc(slices.Clone(c.Speeds), func(s Speed) bool { return s.Device != device })
}

// Names lists the names of all devices, then the other names in the device column of the results.
func (c *Catalogue) Names() []string {
	var names []string
	for _, d := range c.Devices {
		names = append(names, d.Name)
	}

	for _, r := range c.Results {
		if !slices.Contains(names, r.Device) {
			names = append(names, r.Device)
		}
	}

	return names
}
