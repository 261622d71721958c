package driver

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// TestParseWays reads what iproute2 6.1 prints.
func TestParseWays(t *testing.T) {
	to := []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7"),
		netip.MustParseAddr("203.0.113.9")}
	text := `to 192.0.2.7
192.0.2.7 via 198.51.100.1 dev eth0 src 198.51.100.2 uid 0 
    cache 
to 2001:db8::7
to 203.0.113.9
203.0.113.9 dev br-lan src 203.0.113.1 uid 0 
    cache 
addresses
1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN group default qlen 1000
    inet 127.0.0.1/8 scope host lo
2: eth0@if7: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc mq state UP group default qlen 1000
    inet 198.51.100.2/24 brd 198.51.100.255 scope global eth0
    inet6 2001:db8:1::2/64 scope global 
    inet6 fe80::1/64 scope link 
`
	routes, addresses, _ := strings.Cut(text, "\naddresses\n")
	ways := parseWays(routes, len(to))
	own := ownAddresses(addresses)
	want := []kernel.Way{{
		Device: "eth0",
		Via:    netip.MustParseAddr("198.51.100.1"),
		Source: netip.MustParseAddr("198.51.100.2"),
	}, {}, {
		Device: "br-lan",
		Source: netip.MustParseAddr("203.0.113.1"),
	}}
	if !reflect.DeepEqual(ways, want) {
		t.Errorf("ways: got %+v, want %+v", ways, want)
	}

	if len(own) != 2 || own[0].String() != "198.51.100.2" || own[1].String() != "2001:db8:1::2" {
		t.Errorf("addresses: got %v", own)
	}

	if ways, own := parseWays("", 0), ownAddresses(""); len(ways)+len(own) != 0 {
		t.Errorf("of nothing: got %v, %v", ways, own)
	}
}
