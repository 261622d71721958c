package plan_test

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/cipher"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/shortflow"
)

// topologies returns those of the labs, as far as plans look at them.
func topologies() []record.Topology {
	shape := func(name, near, far string, links ...string) record.Topology {
		t := record.Topology{Name: name, Near: near, Far: far, Tunnel: [2]string{near, far}}
		nodes := map[string]bool{}
		for _, l := range links { // node.port node.port
			var e [4]string
			copy(e[:], strings.FieldsFunc(l, func(r rune) bool { return r == '.' || r == ' ' }))
			t.Links = append(t.Links, record.TopoLink{Ends: [2]record.TopoPort{{Node: e[0], Port: e[1]},
				{Node: e[2], Port: e[3]}}})
			for _, n := range []string{e[0], e[2]} {
				if !nodes[n] {
					nodes[n], t.Nodes = true, append(t.Nodes, record.TopoNode{Name: n})
				}
			}
		}

		return t
	}
	return []record.Topology{
		shape("forward", "client", "router", "client.lan router.lan", "router.wan server.wan"),
		shape("to-router", "client", "router", "client.lan router.lan"),
		shape("site-to-site", "router-a", "router-b", "client.lan router-a.lan", "router-a.wan router-b.wan",
			"router-b.lan server.lan"),
		shape("direct", "client", "server", "client.lan server.lan"),
	}
}

// words returns a vocabulary like the registry's: the factors of every plan and of engines, and settings with
// a place and a grammar of their own.
func words() plan.Vocabulary {
	base := factor.Base(factor.Options{
		MaxTunnels: 16,
		Shapes:     topologies(),
		Tunnels: []string{"none", "wireguard", "wireguard-kernel", "wireguard-userspace",
			"openvpn", "openvpn-chacha20-poly1305", "openvpn-tcp", "openvpn-tcp-chacha20-poly1305"},
		Engines: []string{"native", "iperf3", "responsiveness", "flows", "requests", "xdp",
			factor.CipherEngine},
		Congestions: []string{"cubic", "reno", "bbr"},
	})
	form := func(name, pattern, want string) factor.Declaration {
		re := regexp.MustCompile(`^(?:` + pattern + `)$`)
		return factor.Declaration{
			Name:   name,
			Placed: factor.Placed,
			Parse: func(text string) (string, error) {
				if !re.MatchString(text) {
					return "", &factor.LevelError{Text: text, Want: want}
				}
				return text, nil
			},
		}
	}
	queue := form("queue", `[a-z_]+( [a-z]+ [0-9]+[kmMG]?)*`, "a queue such as pfifo limit 1000")
	queue.Needs = func(s factor.Shape, place string) (bool, string) {
		return place != "" || s.Name != "direct", "topology direct has no router"
	}
	settings := []factor.Declaration{
		queue,
		{Name: "link_mtu", Placed: factor.Placed, Parse: factor.Whole(68, 65535)},
		form("idle_policies", `[0-9]+`, "N"),
		form("firewall", `off|[0-9]+( stateful)?`, "off, N or N stateful"),
		{Name: "cpus", Hard: true, Parse: factor.Whole(1, 64)},
		{
			Name:   "sysctl:",
			Placed: factor.Placed,
			Param: func(param string) (factor.Declaration, bool) {
				return form("", `.+`, "a value"), regexp.MustCompile(`^[a-z0-9_.]+$`).MatchString(param)
			},
		},
		{Name: "broken", Parse: func(string) (string, error) { return "", errors.New("never right") }},
	}
	measured := []string{"goodput_bps", "packet_rate_pps", "loss_ratio", "retransmits", "rtt_idle_p50_ns",
		"rtt_loaded_p99_ns", "host_busiest_core_ratio"}
	return plan.Vocabulary{
		Metrics: measured,
		Catalogue: &factor.Catalogue{
			Shapes: topologies(),
			Factors: slices.Concat(settings, base, shortflow.Flows{}.Factors(),
				shortflow.Requests{}.Factors(),
				cipher.Factors(topologies()), factor.Further()),
		},
	}
}

func TestListResolvesNames(t *testing.T) {
	for _, tc := range []struct {
		name string
		want bool
	}{
		{"streams", true},
		{"queue", true},
		{"queue@router.wan", true},
		{"queue@nowhere", false},
		{"queue@", false},
		{"streams@client", false},
		{"sysctl:", false},
		{"sysctl:net.ipv4.tcp_rmem", true},
		{"sysctl:net.ipv4.tcp_rmem@client", true},
		{"sysctl:../../etc@client", false},
		{"queue:x", false},
		{"", false},
	} {
		f, ok := words().Lookup(tc.name)
		if ok != tc.want {
			t.Errorf("Lookup(%q) found: got %v, want %v", tc.name, ok, tc.want)
		}

		if ok && f.Name != tc.name {
			t.Errorf("Lookup(%q).Name: got %q, want the name asked for", tc.name, f.Name)
		}
	}
}

func TestBaseLevels(t *testing.T) {
	for _, tc := range []struct{ factor, text, want string }{
		{"congestion", "bbr", "bbr"}, {"congestion", "westwood", "westwood"}, {"congestion", "-x y", ""}, {"congestion", "cubic+bbr", "cubic+bbr"}, {"congestion", "bbr+bbr", ""},
		{"congestion", "cubic+", ""}, {"congestion", "cubic+vegas", "cubic+vegas"},
		{"pacing", "300M", "300M"}, {"pacing", "flat", ""}, {"pacing", "0", ""},
		{"mss", "88", "88"}, {"mss", "87", ""}, {"mss", "65496", ""}, {"socket_buffer", "4608", "4608"},
		{"socket_buffer", "4607", ""},
		{"connection_rate", "2000", "2k"}, {"connection_rate", "1", "1"}, {"connection_rate", "0", ""},
		{"connection_rate", "11M", ""},
		{"connection_rate", "flat", ""}, {"arrivals", "isochronous", "isochronous"}, {"arrivals", "even", ""},
		{"flow_size", "websearch", "websearch"}, {"flow_size", "5000", "5000"}, {"flow_size", "small", ""},
		{"request_size", "1", "1"}, {"request_size", "0", ""}, {"response_size", "1073741824", "1073741824"},
		{"response_size", "1073741825", ""},
		{"udp_mode", "count", "count"}, {"udp_mode", "fast", ""}, {"udp_gso", "off", "off"},
		{"udp_gso", "on", ""},
		{"dscp", "63", "63"}, {"dscp", "64", ""}, {"ecn", "on", "on"}, {"ecn", "1", ""},
		{"streams", "4", "4"}, {"streams", "10000", "10000"}, {"streams", "10001", ""}, {"streams", "0", ""},
		{"streams", "010", ""}, {"streams", "1_000", ""}, {"streams", "2.5", ""}, {"streams", "+4", ""},
		{"streams", "0x4", ""}, {"streams", "1e2", ""}, {"streams", "", ""}, {"streams", "-1", ""},
		{"mtu", "576", "576"}, {"mtu", "575", ""}, {"mtu", "65536", ""},
		{"rate", "flat", "flat"}, {"rate", "300 Mbit/s", "300M"}, {"rate", "1500M", "1.5G"},
		{"rate", "64000", "64k"}, {"rate", "999", "999"}, {"rate", "0", ""}, {"rate", "1e999", ""},
		{"rate", "fast", ""}, {"ip", "4", "4"}, {"ip", "5", ""}, {"nat", "off", "off"}, {"nat", "false", ""},
		{"frame_size", "64", "64"}, {"frame_size", "63", ""},
	} {
		f, _ := words().Lookup(tc.factor)
		got, err := f.Parse(tc.text)
		if got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%s: Parse(%q): got %q, %v, want %q", tc.factor, tc.text, got, err, tc.want)
		}
	}
}

func factors(pairs ...string) record.Factors {
	f := record.Factors{}
	for i := 0; i < len(pairs); i += 2 {
		f[pairs[i]] = pairs[i+1]
	}
	return f
}
