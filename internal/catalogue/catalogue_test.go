package catalogue

import (
	"errors"
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

// TestFaultsAreNamed: data that cannot be meant is refused with its place.
func TestFaultsAreNamed(t *testing.T) {
	for _, test := range []struct{ file, from, to, want string }{
		{"devices", "BPI-R4,MediaTek MT7988A (Filogic 880),", "BPI-R4,,", "row 1: soc is empty"},
		{"devices", "OpenWrt One,", "BPI-R4,", "BPI-R4 is there twice"},
		{"devices", ",1800,", ",fast,", `clock_mhz "fast"`},
		{"devices", "device,soc", "name,soc", "want rows below the columns"},
		{"throughput", "filogic,BPI-R4", "filogic,BPI-R5", `device "BPI-R5" is not in devices.csv`},
		{"throughput", "filogic,BPI-R4", "folio,BPI-R4", `source "folio" is not in sources.csv`},
		{"throughput", ",9350,", ",-1,", `throughput_mbps "-1"`},
		{"throughput", ",9350,", ",NaN,", `throughput_mbps "NaN"`},
		{"throughput", "none,tcp", "none,quic", `proto "quic" is none of tcp, udp`},
		{"power", ",14,16", ",16,14", "no range"},
		{"crypto", "kB/s", "MB/s", `unit "MB/s"`},
		{"sources", "rb5009,", "filogic,", "source filogic is there twice"},
		{"sources", "filogic,", `"filogic,`, "data/sources.csv"},
	} {
		_, err := read(func(name string) ([]byte, error) {
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
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s with %q: got %v, want %q", test.file, test.to, err, test.want)
		}
	}

	if _, err := read(func(string) ([]byte, error) { return nil, errors.New("gone") }); err == nil {
		t.Error("a missing file: got no error")
	}
}
