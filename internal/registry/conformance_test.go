package registry_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/stream"
)

func TestHosts(t *testing.T) {
	t.Run("local", func(t *testing.T) {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, "have"), []byte("had"), 0o600))
		hostSuite(t, host.Local(), dir)
	})
	t.Run("fake", func(t *testing.T) {
		hostSuite(t, labtest.NewHost("fake", map[string]string{"/dir/have": "had"}, nil), "/dir")
	})
}

// TestTunnels runs the suite over every kind, in a lab where the tunnel ends on an end node and in one
// where it runs between two routers.
func TestTunnels(t *testing.T) {
	t.Parallel()
	for _, topology := range []string{"forward", "site-to-site"} {
		l := labtest.Up(t, topology, registry.LabParts())
		for _, kind := range node.Tunnels() {
			t.Run(topology+"/"+kind.Name(), func(t *testing.T) { tunnelSuite(t, l, kind) })
		}
	}
}

// TestTunnelsSideBySide: each carries packets on addresses of its own, over either version of IP outside.
func TestTunnelsSideBySide(t *testing.T) {
	t.Parallel()
	for _, topology := range []string{"forward", "peer-to-router"} {
		l := labtest.Up(t, topology, registry.LabParts())
		for _, outer := range []int{4, 6} {
			p, err := l.Path(labtest.Context(t), lab.TunnelSpec{
				Kind:  "wireguard",
				MTU:   1420,
				Outer: outer,
				Count: 3,
			})
			must(t, err)
			for _, sub := range p.Subpaths() {
				for ip := 4; ip <= 6; ip += 2 {
					before, err := sub.Tunnel.Counters(labtest.Context(t), false)
					must(t, err)
					got := labtest.Reach(t, l, sub.Slot, ip, 1421, 100, 1420)
					after, err := sub.Tunnel.Counters(labtest.Context(t), false)
					want := []int{100, 1420}
					if err != nil || !slices.Equal(got.Back, want) ||
						int64(after.Sent-before.Sent) < got.Bytes {
						t.Errorf("%s, IPv%d outside, %s, IPv%d: %v came back (%s), counters %+v to %+v, %v; "+
							"want %v",
							topology, outer, after.Counted, ip, got.Back, got.Note, before, after, err, want)
					}
				}
			}
		}
	}
}

func TestTunnelMTUFollowsTheVersionOutside(t *testing.T) {
	words := registry.Vocabulary()
	f, ok := words.Lookup("mtu")
	if !ok {
		t.Fatal("no factor mtu")
	}

	for _, test := range []struct {
		tunnel, outer, want string
	}{
		{"wireguard", "", "1420"}, {"wireguard", "4", "1420"}, {"wireguard", "6", "1420"},
		{"esp", "", "1446"}, {"esp", "6", "1426"}, {"esp-policy", "6", "1426"}, {"esp-aes-cbc-sha256", "6",
			"1406"},
	} {
		got := f.Derive(record.Factors{"tunnel": test.tunnel, "outer_ip": test.outer})
		if got != test.want {
			t.Errorf("%s over IPv%s: got %s, want %s", test.tunnel, test.outer, got, test.want)
		}
	}
}

// settings are levels that change something on a lab as it comes up, at least one for each knob.
var settings = map[string][]record.Setting{
	"link_mtu": {{Node: "router", Port: "wan", Value: "1400"}, {Node: "server", Value: "9000"}},
	"queue": {{Node: "router", Port: "wan", Value: "pfifo limit 50"},
		{Node: "router", Value: "tbf rate 300M"},
		{Node: "router", Port: "lan", Value: "htb rate 300M"}},
	"txqueuelen": {{Node: "router", Value: "77"}},
	"offload":    {{Node: "client", Value: "wire"}},
	"nat":        {{Node: "router", Value: "masquerade"}, {Node: "router", Value: "forward"}},
	"vlan":       {{Node: "router", Port: "lan", Value: "10"}},
	"firewall":   {{Node: "router", Value: "10"}, {Node: "router", Value: "10 in a set stateful log"}},
	"ip_forward": {{Node: "router", Value: "off"}, {Node: "router", Value: "ipv4"}},
	"sysctl:":    {{Knob: "sysctl:net.ipv4.tcp_ecn", Node: "client", Value: "1"}},
	"cpus":       {{Node: "router", Value: "0"}},

	"flowtable":     {{Node: "router", Value: "on"}},
	"mss_clamp":     {{Node: "router", Value: "pmtu"}, {Node: "router", Value: "1300"}},
	"governor":      {{Node: "router", Value: "performance"}},
	"conntrack_max": {{Node: "router", Value: "4321"}},
	"shape": {{Node: "router", Value: "50M"}, {
		Node:  "router",
		Port:  "lan",
		Value: "over pfifo limit 50",
	}},
	"policer":       {{Node: "router", Value: "50M"}},
	"napi_threaded": {{Node: "router", Value: "on"}},

	"gro_flush_timeout": {{Node: "router", Value: "20us"}},

	"cpu_count":     {{Node: "router", Value: "1"}},
	"irq_affinity":  {{Node: "router", Value: "1"}},
	"flow_export":   {{Node: "router", Value: "softflowd"}},
	"cpu_quota":     {{Node: "host", Value: "25%"}},
	"idle_policies": {{Node: "router", Value: "20"}},
	"fault": {{Node: "router", Port: "wan", Value: "link_rate=50M"},
		{Node: "router", Value: "rules=10+log_flood=on+cpu_hog=1"}, {Node: "client", Value: "loss=1%"}},
	"idle_tunnels": {{Node: "router", Value: "3"}},
}

func TestKnobs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, id := labtest.UpIn(t, dir, "forward", registry.LabParts())
	for _, k := range node.Knobs() {
		// Of a provider nothing is read back, see knob.WAN.
		if len(settings[k.Name()]) == 0 && k.Name() != string(factor.WAN) {
			t.Errorf("knob %s: got no setting to run the suite with, want one", k.Name())
		}

		for _, s := range settings[k.Name()] {
			if s.Knob == "" {
				s.Knob = k.Name()
			}

			t.Run(s.Knob+"="+s.Value+"@"+s.Node+"."+s.Port, func(t *testing.T) {
				knobSuite(t, l, func() *lab.Lab {
					other, err := lab.Attach(dir, id, registry.LabParts(), nil)
					must(t, err)
					return other
				}, k, s)
			})
		}
	}
}

func TestEngines(t *testing.T) {
	t.Parallel()
	for _, e := range node.Engines() {
		t.Run(e.Name(), func(t *testing.T) {
			t.Parallel()
			l := labtest.Up(t, "forward", registry.LabParts())
			for name, load := range labtest.Loads() {
				if e.Name() == "iperf3" && !slices.Contains([]string{"tcp up", "tcp down, 4", "udp 20M",
					"tcp, every byte"}, name) {
					continue // each takes seconds where the engine only knows whole ones
				}

				t.Run(name, func(t *testing.T) {
					leavesNothingAt(t, l)
					engineSuite(t, l, e, load)
				})
			}
		})
	}
}

// TestCountersAgreeWithTheEngine: real packets on all links, in both modes.
func TestCountersAgreeWithTheEngine(t *testing.T) {
	t.Parallel()
	l := labtest.Up(t, "forward", registry.LabParts())
	var wire []record.Setting
	for _, link := range l.Topology.Links {
		for _, end := range link.Ends {
			wire = append(wire, record.Setting{
				Knob:  "offload",
				Node:  end.Node,
				Port:  end.Port,
				Value: "wire",
			})
		}
	}

	must(t, l.Reconcile(labtest.Context(t), wire))
	for _, mode := range []string{record.UDPExact, record.UDPCount} {
		for _, flows := range []int{2, 100} {
			t.Run(fmt.Sprintf("%s, %d flows", mode, flows), func(t *testing.T) {
				load := labtest.Loads()["udp 20M"]
				load.UDPMode = mode
				load.Streams = flows
				load.PacketSize = 200
				load.Duration = 500 * time.Millisecond
				countersAgree(t, l, stream.Native{}, load)
			})
		}
	}

	t.Run("several sizes", func(t *testing.T) {
		load := labtest.Loads()["udp imix"]
		load.Duration = 500 * time.Millisecond
		countersAgree(t, l, stream.Native{}, load)
	})
}

func TestProbers(t *testing.T) {
	apart.Long(t, "takes longer than a package has")
	t.Parallel()
	for _, topology := range []string{"forward", "to-router", "peer-to-router", "site-to-site", "direct"} {
		t.Run(topology, func(t *testing.T) {
			l := labtest.Up(t, topology, registry.LabParts())
			for _, p := range node.Probers() {
				t.Run(p.Name(), func(t *testing.T) { proberSuite(t, l, p) })
			}
		})
	}
}

func TestProbes(t *testing.T) {
	t.Parallel()
	l := labtest.Up(t, "forward", registry.LabParts())
	// Without a queue of its own the client has nothing to show there.
	queue := record.Setting{Knob: "queue", Node: "client", Value: "pfifo limit 1000"}
	must(t, l.Reconcile(labtest.Context(t), []record.Setting{queue}))
	for _, p := range node.Probes() {
		t.Run(p.Name, func(t *testing.T) { probeSuite(t, l, p) })
	}
}

// countersAgree holds the accounts of a UDP load without warm-up to what the far node's device counted: each
// packet of the window is one there, of its length, and what else it saw are each flow's hellos and ends.
func countersAgree(t *testing.T, l *lab.Lab, e traffic.Engine, load record.Load) {
	t.Helper()
	const beside, ofEach, largest = 32, 20, 1514
	headers := map[int]int64{4: 14 + 20 + 8, 6: 14 + 40 + 8}[load.IP] // of Ethernet, IP and UDP
	near, far := labtest.Ends(t, l, 0, load.IP)
	bytesBefore, before := received(t, l)
	got, err := e.Offer(labtest.Context(t), near, far, load, cold{&labtest.Conductor{Length: load.Duration}})
	must(t, err)
	bytes, counted := received(t, l)
	bytes = bytes - bytesBefore
	counted = counted - before
	var arrived, arrivedBytes int64
	for _, f := range got.Flows {
		p := f.Packets
		arrived += p.Received
		arrivedBytes += f.ReceivedBytes + p.Received*headers
		if p.Sent != p.Received+p.Lost {
			t.Errorf("flow %d: sent %d, received %d, lost %d; want sent = received + lost", f.Stream, p.Sent,
				p.Received, p.Lost)
		}
	}

	if most := arrived + beside + ofEach*int64(load.Streams); counted < arrived || counted > most ||
		arrived < 1000 {
		t.Errorf("the device received %d packets, the engine %d in the window; want from that to %d", counted,
			arrived, most)
	}

	if most := arrivedBytes + (counted-arrived)*largest; bytes < arrivedBytes || bytes > most {
		t.Errorf("the device received %d bytes, the engine's frames have %d; want from that to %d", bytes,
			arrivedBytes, most)
	}
}

// cold is a conductor without warm-up.
type cold struct{ *labtest.Conductor }

// Ready implements traffic.Conductor.
func (c cold) Ready(ctx context.Context) (record.Window, error) {
	w, err := c.Conductor.Ready(ctx)
	w.Begin = w.Start
	return w, err
}

// received returns what the far node's device counted.
func received(t *testing.T, l *lab.Lab) (bytes, packets int64) {
	t.Helper()
	const bytesField, packetsField = 1, 2 // of /proc/net/dev
	device := l.Topology.Links[len(l.Topology.Links)-1].Ends
	port := device[0].Port
	if device[1].Node == l.Topology.Far {
		port = device[1].Port
	}

	for line := range strings.Lines(labtest.Exec(t, l, l.Topology.Far, "cat", "/proc/net/dev")) {
		f := strings.Fields(line)
		if len(f) > packetsField && f[0] == port+":" {
			_, err := fmt.Sscan(f[bytesField]+" "+f[packetsField], &bytes, &packets)
			must(t, err)
			return bytes, packets
		}
	}

	t.Fatalf("node %s has no device %s", l.Topology.Far, port)
	return 0, 0
}
