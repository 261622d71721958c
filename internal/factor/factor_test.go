package factor

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// small is a catalogue of two labs with a knob that may be placed, one of the carrying machine, and a
// family.
func small() *Catalogue {
	router := Shape{
		Name:    "forward",
		Near:    "client",
		Far:     "server",
		Routers: []string{"router"},
		Nodes:   []Node{{Name: "client"}, {Name: "router", Router: true}, {Name: "server"}},
		Links: []Link{
			{Ends: [2]Port{{Node: "router", Port: "lan"}, {Node: "client", Port: "eth0"}}},
			{Ends: [2]Port{{Node: "server", Port: "eth0"}, {Node: "router", Port: "wan"}}},
		},
	}
	direct := Shape{
		Name:  "direct",
		Near:  "client",
		Far:   "server",
		Nodes: []Node{{Name: "client"}, {Name: "server"}},
		Links: []Link{{Ends: [2]Port{{Node: "server", Port: "eth0"}, {Node: "client", Port: "eth0"}}}},
	}
	shapes := []Shape{router, direct}
	return &Catalogue{
		Shapes: shapes,
		Factors: append(Base(Options{
			Shapes:      shapes,
			Tunnels:     []string{NoTunnel, "wireguard"},
			Engines:     []string{Native},
			Congestions: []string{"cubic"},
		}),
			Declaration{
				Name:    "queue",
				Parse:   Choice("fq"),
				Placed:  Placed,
				Needs:   NeedsRouter,
				Without: &Without{"", "of the same with the default queue"},
			},
			Declaration{Name: "cpu_quota", Parse: Choice("10%"), Placed: OnHost, Target: Carrier},
			Declaration{
				Name:    "sysctl:",
				Placed:  Placed,
				Without: &Without{"default", "of the same with the default"},
				Param: func(param string) (Declaration, bool) {
					return Declaration{
						Name:    "sysctl:" + param,
						Parse:   Choice("1"),
						Placed:  Placed,
						Without: &Without{"default", "of the same with the default"},
					}, param != "bad"
				},
			}),
	}
}

func TestLookup(t *testing.T) {
	c := small()
	for _, tt := range []struct {
		name string
		ok   bool
	}{
		{"streams", true}, {"queue", true}, {"queue@router", true}, {"queue@router.wan", true},
		{"queue@nowhere", false}, {"queue@router.eth9", false}, {"queue@host", false}, {"queue@ROUTER", false},
		{"streams@router", false}, {"cpu_quota@host", true}, {"cpu_quota@router", false},
		{"sysctl:net.core.rmem_max", true}, {"sysctl:net.core.rmem_max@client", true}, {"sysctl:", false},
		{"sysctl:bad", false}, {"unknown", false},
	} {
		d, ok := c.Lookup(tt.name)
		if ok != tt.ok || ok && d.Name != tt.name {
			t.Errorf("look up %s: got %q and %t, want %t", tt.name, d.Name, ok, tt.ok)
		}
	}
}

// TestPlacesBelongToLabs: a factor at a place means something in the labs that have it, and one of a
// router nothing where there is none.
func TestPlacesBelongToLabs(t *testing.T) {
	c := small()
	for _, tt := range []struct {
		name, topology string
		applies        bool
	}{
		{"queue", "forward", true}, {"queue", "direct", false}, {"queue@router.wan", "forward", true},
		{"queue@router.wan", "direct", false}, {"queue", "none such", false},
	} {
		d, ok := c.Lookup(tt.name)
		if !ok {
			t.Fatalf("no factor %s", tt.name)
		}

		applies, why := d.Applies(Cell{"topology": tt.topology})
		if applies != tt.applies ||
			applies == (why != "") {
			t.Errorf("%s in %s: applies %t (%q), want %t", tt.name, tt.topology, applies, why, tt.applies)
		}
	}
}

func TestWords(t *testing.T) {
	c := small()
	for _, tt := range []struct{ name, level, label, words string }{
		{"streams", "1", "1 stream", "1 stream"}, {"streams", "4", "4 streams", "4 streams"},
		{"protocol", "tcp", "TCP", "TCP"}, {"ip", "6", "IPv6", "IPv6"},
		{"tunnel", "none", "no tunnel", "no tunnel"},
		{"tunnel", "wireguard-kernel", "wireguard-kernel", "WireGuard, kernel"},
		{"packet_size", "64", "64 B", "64-byte packets"}, {"packet_size", "imix", "IMIX", "IMIX packets"},
		{"nat", "off", "off", "no NAT"}, {"nat", "masquerade", "masquerade", "NAT masquerade"},
		{"queue@router.wan", "fq", "queue@router.wan fq", "queue@router.wan fq"},
		{"of a later version", "x", "of a later version x", "of a later version x"},
	} {
		d := c.Of(tt.name)
		if d.Label(tt.level) != tt.label || d.Words(tt.level) != tt.words {
			t.Errorf("%s=%s: got %q and %q, want %q and %q", tt.name, tt.level, d.Label(tt.level),
				d.Words(tt.level), tt.label, tt.words)
		}
	}
}

func TestBaselines(t *testing.T) {
	c := small()
	for _, tt := range []struct {
		name, level string
		at          bool
	}{
		{"tunnel", "none", true}, {"tunnel", "wireguard", false}, {"queue@router.wan", "off", true},
		{"queue", "default", true}, {"queue", "fq", false}, {"sysctl:net.core.rmem_max", "default", true},
		{"sysctl:net.core.rmem_max", "", true}, {"sysctl:net.core.rmem_max", "off", false},
		{"streams", "1", false}, // has none
	} {
		at := c.Of(tt.name).AtBaseline(tt.level)
		if at != tt.at {
			t.Errorf("%s=%s at its baseline: %t, want %t", tt.name, tt.level, at, tt.at)
		}
	}

	words := c.Of("sysctl:net.core.rmem_max").Without.Words
	if words !=
		"of the same with the default net.core.rmem_max" {
		t.Errorf("the words of a family: %q", words)
	}
}

func TestTypedLevels(t *testing.T) {
	c := Cell{"streams": "4", "queue": "fq", "queue@router.wan": "codel", "queue@client": "sfq"}
	n := Streams.Number(c)
	if n != 4 || MTU.Number(c) != 0 || MTU.In(c) {
		t.Errorf("streams %d, MTU %d (%t)", n, MTU.Number(c), MTU.In(c))
	}

	got := map[string]string{}
	for place, level := range Queue.Each(c) {
		got[place] = level
	}

	want := map[string]string{"": "fq", "router.wan": "codel", "client": "sfq"}
	if !maps.Equal(got, want) {
		t.Errorf("queues: %v, want %v", got, want)
	}

	with := Streams.With(c, "")
	if Streams.In(with) || !Streams.In(c) {
		t.Errorf("without streams: %v of %v", with, c)
	}

	with = Streams.With(c, "8")
	if with.Key() != "queue=fq queue@client=sfq queue@router.wan=codel streams=8" {
		t.Errorf("key: %s", with.Key())
	}
}

// TestIDIsStable: scripts keep ids, so that another version has to give the same.
func TestIDIsStable(t *testing.T) {
	c := Cell{"tunnel": "none", "streams": "4"}
	if got := c.ID(); got != "508be4289c" {
		t.Errorf("got %s, want 508be4289c", got)
	}

	c["streams"] = "8"
	if got := c.ID(); got == "508be4289c" {
		t.Error("two cells have one id")
	}
}

// TestSortAndPosition: people's order is that of the ranks, then of the names; settings are made in the
// catalogue's.
func TestSortAndPosition(t *testing.T) {
	c := small()
	names := []string{"queue@router.wan", "zero", "streams", "tunnel", "another"}
	c.Sort(names)
	if !slices.Equal(names, []string{"tunnel", "streams", "another", "queue@router.wan", "zero"}) {
		t.Errorf("sorted: %v", names)
	}

	a, b := c.Position("queue"), c.Position("sysctl:net.core.rmem_max")
	if a < 0 || b <= a {
		t.Errorf("positions: queue %d, sysctl %d", a, b)
	}
}

func TestFoundOf(t *testing.T) {
	found, ok := FoundOf(Cell{"rate": "90% of found", "streams": "1"})
	if !ok || found.Share != .9 || !maps.Equal(found.Of, Cell{"rate": "flat", "streams": "1"}) {
		t.Errorf("a share of the rate: %v %t", found, ok)
	}

	if found, ok = FoundOf(Cell{"pacing": "50% of found"}); !ok || found.Share != .5 || len(found.Of) != 0 {
		t.Errorf("a share of the pace: %v %t", found, ok)
	}

	if _, ok = FoundOf(Cell{"rate": "300M"}); ok {
		t.Error("a stated rate is a share")
	}
}

// TestKindred: of many names those that share most words with a wrong one.
func TestKindred(t *testing.T) {
	names := []string{"rtt_idle_p50", "rtt_loaded_p50", "rtt_loaded_p99", "goodput", "loss_p99"}
	for text, want := range map[string]string{"rtt_p99": "rtt_loaded_p99", "quux": "",
		"RTT-p50": "rtt_idle_p50 rtt_loaded_p50", "rtt": "rtt_idle_p50 rtt_loaded_p50 rtt_loaded_p99"} {
		got := strings.Join(Kindred(text, names), " ")
		if got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

// A label that a plan gives to a level stands for it wherever levels are said, and for no other one.
func TestLabelsOfThePlan(t *testing.T) {
	c := (*Catalogue)(nil).Labelled(map[string]map[string]string{"tunnel": {"wireguard": "WG"}})
	d := c.Of("tunnel")
	got := []string{d.Label("wireguard"), d.Words("wireguard"), d.Label("none"), c.Of("streams").Label("1")}
	if !slices.Equal(got, []string{"WG", "WG", "no tunnel", "1 stream"}) {
		t.Errorf("labels are %q", got)
	}
}

func TestTells(t *testing.T) {
	const is = "openwrt 24.10.2 r28739-d9340319c6, kernel 6.6.93"
	for level, want := range map[string]bool{"24.10.2": true, "24.10": true, "openwrt": true, "6.6.93": true,
		"r28739": true, "openwrt 24.10.2": true, "24.1": false, "4.10": false, "10.2": false, "wrt": false,
		"24.10.3": false, "": false} {
		got := Tells(is, level)
		if got != want {
			t.Errorf("%q: got %v, want %v", level, got, want)
		}
	}

	if Tells("7.20.8 and 7.2", "7.2") != true {
		t.Error("a version behind a longer one is not found")
	}
}

func TestFirmwareLevel(t *testing.T) {
	for _, text := range []string{"24.10.2", "7.20.8 (long-term)", "OPNsense 24.7.1", "r28739-d9340319c6"} {
		if got, err := firmwareLevel(text); got != text || err != nil {
			t.Errorf("%q: got %q, %v", text, got, err)
		}
	}

	for _, text := range []string{"", "-rf", "a; reboot", "a  b", "$(x)", strings.Repeat("a", 61), "a\nb"} {
		if got, err := firmwareLevel(text); err == nil {
			t.Errorf("%q: got %q, want an error", text, got)
		}
	}
}
