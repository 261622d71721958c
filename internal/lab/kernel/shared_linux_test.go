package kernel

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
)

// TestShared: whoever serves on one of these devices would serve others as well.
func TestShared(t *testing.T) {
	apart.Needs(t, "ip")
	const (
		ports = `link add p type veth peer name p1; link add q type veth peer name q1; link set p up;
			link set p1 up; link set q1 up; addr add 198.18.9.1/24 dev p;`
		leads = `route add default via 198.18.9.2;` // by p
		tagV5 = `link add link q name q.5 type vlan id 5; link set q up; link set q.5 up;`
	)
	// leadsBy gives a device the default route.
	leadsBy := func(dev string) string {
		return "addr add 198.18.8.1/24 dev " + dev + "; route add default via 198.18.8.2"
	}
	for name, tt := range map[string]struct {
		made string // by ip
		dev  string
		want string
	}{
		"a port of its own":            {"", "p", ""},
		"with a VLAN of its own":       {"link add link p name p.5 type vlan id 5", "p", ""},
		"the default route's":          {leads, "p", "default route leads out of p"},
		"the default route of a table": {"route add default via 198.18.9.2 table 77", "p", "leads out of p"},
		"one of several": {"link set q up; addr add 198.18.8.1/24 dev q; " +
			"route add default nexthop via 198.18.9.2 nexthop via 198.18.8.2", "q", "leads out of q"},
		"a bridge's":             {"link add b0 type bridge; link set p master b0", "p", "p belongs to b0, a bridge"},
		"a bond's":               {"link add b0 type bond; link set q master b0", "q", "q belongs to b0, a bond"},
		"a VRF's":                {"link add v0 type vrf table 9; link set p master v0", "p", "p belongs to v0, a vrf"},
		"the bridge":             {"link add b0 type bridge; link set q master b0", "b0", "b0 is a bridge of q"},
		"a bridge without ports": {"link add b0 type bridge", "b0", ""},
		"below the default VLAN": {tagV5 + leadsBy("q.5"), "q", "leads out of q.5, which lies on q"},
		"below the default macvlan": {"link add link q name m0 type macvlan; link set q up; link set m0 up;" +
			leadsBy("m0"), "q", "leads out of m0, which lies on q"},
		"below the ports of a default bridge": {tagV5 + "link add b0 type bridge; link set q.5 master b0; " +
			"link set b0 up;" + leadsBy("b0"), "q", "leads out of b0, which lies on q.5, which lies on q"},
		"a macvlan on the default device": {leads + "link add link p name m0 type macvlan", "m0",
			"default route leads out of p"},
		"a VLAN of the default device":  {leads + "link add link p name p.5 type vlan id 5", "p.5", ""},
		"the far end of a default veth": {"link set q1 up; link set q up;" + leadsBy("q"), "q1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			inNamespace(t, func(t *testing.T) {
				for line := range strings.SplitSeq(ports+tt.made, ";") {
					words := strings.Fields(line)
					if len(words) == 0 {
						continue
					}

					out, err := exec.Command("ip", words...).CombinedOutput()
					if strings.Contains(string(out), "Unknown device type") {
						t.Logf("not tried: this kernel has no such device: %s", line)
						return
					}

					if err != nil {
						t.Errorf("ip %s: %v: %s", line, err, out)
						return
					}
				}

				got, err := Shared(tt.dev)
				if err != nil || !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
					t.Errorf("got %q, %v, want %q", got, err, tt.want)
				}
			})
		})
	}
}

// TestSharedBy: what this kernel may lack, as netlink tells of it.
func TestSharedBy(t *testing.T) {
	const sessions = "Id       Address              Device\n00000001 52:54:00:00:00:01    eth1\n"
	link := func(kind, name string, index, parent, master, other int) netlink.Link {
		return &netlink.GenericLink{
			LinkType: kind,
			LinkAttrs: netlink.LinkAttrs{
				Name:        name,
				Index:       index,
				ParentIndex: parent,
				MasterIndex: master,
				NetNsID:     other,
			},
		}
	}
	links := []netlink.Link{
		link("device", "eth0", 1, 0, 0, -1),
		link("device", "eth1", 2, 0, 0, -1),
		link("ppp", "ppp0", 3, 0, 0, -1),
		link("vlan", "eth0.5", 4, 1, 0, -1),
		link("bond", "bond0", 5, 0, 0, -1),
		link("device", "eth2", 6, 0, 5, -1),
		link("vlan", "bond0.7", 7, 5, 0, -1),
		link("vrf", "red", 8, 0, 0, -1),
		link("device", "eth3", 9, 0, 8, -1),
		link("veth", "wan", 10, 1, 0, 4),
		link("macvlan", "m0", 11, 1, 0, 4),
		link("macvtap", "t0", 12, 6, 0, -1),
		link("device", "eth4", 13, 0, 99, -1),
	}
	for _, tt := range []struct{ dev, leads, want string }{
		{"eth0", "eth0.5", "default route leads out of eth0.5, which lies on eth0"},
		{"eth0", "ppp0", ""},
		{"eth1", "ppp0", "default route leads out of ppp0, which lies on eth1"},
		{"eth2", "eth0", "eth2 belongs to bond0, a bond"},
		{"t0", "eth0", "eth2 belongs to bond0, a bond"},
		{"bond0", "bond0.7", "leads out of bond0.7, which lies on bond0"},
		{"bond0", "eth0", ""},
		{"eth3", "eth0", "eth3 belongs to red, a vrf"},
		{"eth4", "eth0", "eth4 belongs to a device of another namespace"},
		{"wan", "eth0", ""},
		{"eth0", "wan", ""},
		{"m0", "eth1", "m0 lies on a device of another namespace"},
		{"eth0.5", "eth0", ""},
	} {
		got := sharedBy(links, []string{tt.leads}, sessions, tt.dev)
		if !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%s, default by %s: got %q, want %q", tt.dev, tt.leads, got, tt.want)
		}
	}
}
