package catalogue

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func published(t *testing.T) *Catalogue {
	t.Helper()
	c, err := Published()
	if err != nil {
		t.Fatal(err)
	}

	return c
}

// TestPublishedIsWhole: every row is there, and single ones are what the studies print.
func TestPublishedIsWhole(t *testing.T) {
	c := published(t)
	got := []int{len(c.Sources), len(c.Devices), len(c.Results), len(c.Speeds), len(c.Powers)}
	if diff := cmp.Diff([]int{5, 15, 109, 51, 10}, got); diff != "" {
		t.Errorf("sources, devices, results, speeds, powers (-want +got)\n%s", diff)
	}

	rate, busy := 2450e6, .53
	want := Result{
		Row:        9,
		Source:     "filogic",
		Device:     "BPI-R4",
		Measured:   "2026",
		Tool:       "iperf3 3.16",
		Statistic:  "median",
		Runs:       5,
		Seconds:    60,
		Tunnel:     "wireguard",
		Protocol:   "tcp",
		Streams:    4,
		MTU:        1420,
		GoodputBps: &rate,
		CPULow:     &busy,
		CPUHigh:    &busy,
		Note:       c.Results[8].Note,
	}
	if diff := cmp.Diff(want, c.Results[8]); diff != "" {
		t.Errorf("row 9 (-want +got)\n%s", diff)
	}

	if got, want := c.Results[8].How(), "median of 5 × 60 s"; got != want {
		t.Errorf("How() = %q, want %q", got, want)
	}

	soak := c.Results[29]
	if soak.Statistic != "soak" || soak.GoodputBps != nil {
		t.Errorf("row 30: got %s, want no payload: the study gives the rate of the link", soak.Rate())
	}

	s := c.Speeds[14]
	if s.Algorithm != "chacha20-poly1305" || *s.Value != 225897130 || s.Unit != "B/s" {
		t.Errorf("speed 14 = %+v", s)
	}

	p := c.Powers[8]
	if p.Low != nil || p.High != nil {
		t.Errorf("a draw that the source does not give: %+v", p)
	}
}

func TestDevice(t *testing.T) {
	c := published(t)
	for name, want := range map[string]struct {
		port   float64
		family string
	}{"bpi-r4": {10e9, "arm64"}, "OpenWrt One": {1e9, "arm64"}, "RB5009UPr+S+IN": {0, "arm64"},
		"Turris Omnia": {0, "arm"},
		"mt7621":       {0, "mipsel"}} {
		d, ok := c.Device(name)
		if !ok || d.PortBps() != want.port || d.Family() != want.family {
			t.Errorf("%s: %v, port %g, family %s, want %+v", name, ok, d.PortBps(), d.Family(), want)
		}
	}

	if _, ok := c.Device("BPI-R5"); ok {
		t.Error("BPI-R5 was found")
	}
}

func TestFilter(t *testing.T) {
	c := published(t)
	for _, test := range []struct {
		f    Filter
		want int
	}{
		{Filter{}, 109}, {Filter{Device: "bpi-r4"}, 10}, {Filter{Device: "BPI-R4", Tunnel: "wireguard"}, 6},
		{Filter{Tunnel: "wireguard", MTU: 1280}, 2}, {Filter{Protocol: "udp"}, 9}, {Filter{IP: "6"}, 32},
		{Filter{Source: "rb5009", Streams: 4}, 11}, {Filter{Streams: 16}, 0},
	} {
		got := len(c.Filtered(test.f))
		if got != test.want {
			t.Errorf("%+v: %d results, want %d", test.f, got, test.want)
		}
	}
}

// faults names the data that cannot be meant.
func faults(c *Catalogue) (found []string) {
	fault := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	needs := func(of string, texts ...string) {
		if slices.Contains(texts, "") {
			fault("%s: a text is missing", of)
		}
	}
	among := func(of, text string, words ...string) {
		if !slices.Contains(words, text) {
			fault("%s: %q is none of %s", of, text, strings.Join(words, ", "))
		}
	}
	counts := func(of string, numbers ...int) {
		if slices.Min(numbers) < 0 {
			fault("%s: a number is below 0", of)
		}
	}
	measured := func(of string, values ...*float64) {
		for _, v := range values {
			if v != nil && !(*v >= 0 && *v <= 1e15) {
				fault("%s: %g cannot be", of, *v)
			}
		}
	}
	from := func(of, source, device string) {
		if _, ok := c.Source(source); !ok {
			fault("%s: source %q is not in sources.csv", of, source)
		}

		name := inYear().ReplaceAllString(device, "")
		if _, ok := c.Device(name); !ok && !strings.HasPrefix(device, "(") {
			fault("%s: device %q is not in devices.csv", of, device)
		}
	}
	names := map[string]bool{}
	once := func(name string) {
		if names[name] {
			fault("%s is there twice", name)
		}

		names[name] = true
	}
	for _, s := range c.Sources {
		once("source " + s.ID)
		needs("source "+s.ID, s.ID, s.About, s.Licence)
	}

	for _, d := range c.Devices {
		of := "device " + d.Name
		once(strings.ToLower(of))
		needs(of, d.Name, d.SoC, d.Arch)
		counts(of, d.Cores, d.Threads, d.ClockMHz, d.MemoryMB)
		from(of, d.Source, d.Name)
	}

	for _, r := range c.Results {
		of := fmt.Sprintf("throughput row %d", r.Row)
		from(of, r.Source, r.Device)
		needs(of, r.Tool)
		among(of, r.Tunnel, "none", "wireguard", "openvpn", "esp")
		among(of, r.Protocol, "tcp", "udp")
		among(of, r.IP, "", "4", "6")
		among(of, r.Direction, "", "up", "down", "in", "out")
		counts(of, r.Runs, r.Streams, r.Packet, r.MTU)
		measured(of, r.GoodputBps, r.Retransmits, r.CPULow, r.CPUHigh, r.PacketRate, &r.Seconds)
	}

	for i, s := range c.Speeds {
		of := fmt.Sprintf("crypto row %d", i+1)
		from(of, s.Source, s.Device)
		needs(of, s.Algorithm)
		among(of, s.Operation, "throughput", "sign", "verify", "derive")
		among(of, s.Unit, "B/s", "op/s")
		counts(of, s.Block)
		measured(of, s.Value)
	}

	for i, p := range c.Powers {
		of := fmt.Sprintf("power row %d", i+1)
		from(of, p.Source, p.Device)
		needs(of, p.Load)
		measured(of, p.Low, p.High)
		if (p.Low == nil) != (p.High == nil) || p.Low != nil && *p.Low > *p.High {
			fault("%s: watts_low and watts_high are no range", of)
		}
	}

	return found
}

// TestPublishedHasNoFaults: every row can be meant.
func TestPublishedHasNoFaults(t *testing.T) {
	for _, fault := range faults(published(t)) {
		t.Error(fault)
	}
}

// TestFaultsAreNamed: data that cannot be meant is found.
func TestFaultsAreNamed(t *testing.T) {
	for _, test := range []struct{ file, from, to, want string }{
		{"devices", "BPI-R4,MediaTek MT7988A (Filogic 880),", "BPI-R4,,", "device BPI-R4: a text is missing"},
		{"devices", "OpenWrt One,", "BPI-R4,", "device bpi-r4 is there twice"},
		{"devices", ",1800,", ",fast,", `clock_mhz "fast"`},
		{"devices", ",1800,", ",-1800,", "a number is below 0"},
		{"devices", "device,soc", "name,soc", "want rows below the columns"},
		{"throughput", "filogic,BPI-R4", "filogic,BPI-R5", `device "BPI-R5" is not in devices.csv`},
		{"throughput", "filogic,BPI-R4", "folio,BPI-R4", `source "folio" is not in sources.csv`},
		{"throughput", ",9350,", ",-1,", "throughput row 1: -1e+06 cannot be"},
		{"throughput", ",9350,", ",NaN,", "throughput row 1: NaN cannot be"},
		{"throughput", "none,tcp", "none,quic", `"quic" is none of tcp, udp`},
		{"power", ",14,16", ",16,14", "no range"},
		{"crypto", "kB/s", "MB/s", `"MB/s" is none of B/s, op/s`},
		{"sources", "rb5009,", "filogic,", "source filogic is there twice"},
		{"sources", "filogic,", `"filogic,`, "data/sources.csv"},
	} {
		c, err := read(func(name string) ([]byte, error) {
			text, err := files.ReadFile(name)
			if strings.Contains(name, test.file) {
				changed := strings.Replace(string(text), test.from, test.to, 1)
				if changed == string(text) {
					t.Fatalf("%s has no %q", name, test.from)
				}

				text = []byte(changed)
			}
			return text, err
		})
		if err == nil {
			err = errors.New(strings.Join(faults(c), "\n"))
		}

		if !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s with %q: got %v, want %q", test.file, test.to, err, test.want)
		}
	}

	if _, err := read(func(string) ([]byte, error) { return nil, errors.New("gone") }); err == nil {
		t.Error("a missing file: got no error")
	}
}
