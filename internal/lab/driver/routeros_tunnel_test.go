package driver

import (
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
)

// endState is an end with everything: of a tunnel over IPv6, with an address and a route of each version.
const endState = `{"port":51821,"mtu":1420,"inner":["198.19.1.2/24","2001:2:0:101::2/64"],` +
	`"behind":{"198.19.65.2/32":"192.0.2.10","2001:2:0:201::2/128":"2001:db8::10"},` +
	`"key":"xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=","endpoint":"[2001:db8:1::2]:51821",` +
	`"allowed":["198.19.1.1/32","2001:2:0:101::1/128"]}`

// TestMakeROSEnd: each line that an end is made of, and no other.
func TestMakeROSEnd(t *testing.T) {
	const of = ` [%/find where comment="chokepoint tunnel tun1"]`
	remove := func(menu string) string { return menu + "/remove" + strings.Replace(of, "%", menu, 1) }
	clear := []string{remove("/ip/route"), remove("/ipv6/route"), remove("/ip/address"),
		remove("/ipv6/address"), remove("/interface/wireguard/peers")}
	const mark = ` comment="chokepoint tunnel tun1"`
	full := append(slices.Clone(clear),
		`:if ([:len [/interface/wireguard/find where`+mark+`]] = 0) do={/interface/wireguard/add `+
			`name="chokepoint-tun1" listen-port=51821 mtu=1420`+mark+`} else={/interface/wireguard/set `+
			`[/interface/wireguard/find where`+mark+`] listen-port=51821 mtu=1420}`,
		`/ip/address/add address=198.19.1.2/24 interface="chokepoint-tun1"`+mark,
		`/ipv6/address/add address=2001:2:0:101::2/64 interface="chokepoint-tun1" advertise=no`+mark,
		`/ip/route/add dst-address=198.19.65.2/32 gateway=192.0.2.10`+mark,
		`/ipv6/route/add dst-address=2001:2:0:201::2/128 gateway=2001:db8::10`+mark,
		`/interface/wireguard/peers/add interface="chokepoint-tun1" `+
			`public-key="xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=" `+
			`allowed-address=198.19.1.1/32,2001:2:0:101::1/128 endpoint-address=2001:db8:1::2 `+
			`endpoint-port=51821`+mark)
	for state, want := range map[string][]string{"none": append(clear, remove("/interface/wireguard")),
		endState: full} {
		w := &written{}
		err := applyROSEnd(t.Context(), w, "tun1", state)
		must(t, err)
		same(t, want, w.statements, "%s", state)
	}

	for _, state := range []string{"", "None", "{}", endState + " ",
		strings.Replace(endState, "198.19.65.2/32", `x\"; /system/reboot`, 1), strings.Replace(endState, `"mtu":1420`, `"mtu":1420,"x":1`, 1)} {
		if err := applyROSEnd(t.Context(), &written{}, "tun1", state); err == nil {
			t.Errorf("%s: got no error", state)
		}
	}
}

// FuzzROSEnd: what a router says of an end is an error, or an end whose state says the same.
func FuzzROSEnd(f *testing.F) {
	f.Add(`[{"name":"chokepoint-tun1","mtu":1420,"listen-port":51821}]`,
		`[{"public-key":"xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=","allowed-address":["198.19.1.1/32"],`+
			`"endpoint-address":"192.0.2.2","endpoint-port":51821}]`, `[{"address":"198.19.1.2/24"}]`,
		`[{"dst-address":"198.19.65.2","gateway":"192.0.2.10"}]`)
	f.Add(`[]`, ``, ``, ``)
	f.Add(`[{},{}]`, `[{"endpoint-address":"fe80::1%ether1"}]`, `[{"address":"x"}]`, `[{"gateway":"lan"}]`)
	f.Fuzz(func(t *testing.T, device, peer, addresses, routes string) {
		var all [6][]item
		for i, text := range []string{device, peer, addresses, "", routes, ""} {
			var err error
			if all[i], err = parseItems(text); err != nil {
				return
			}
		}

		e, err := parseROSEnd(all)
		if err != nil {
			return
		}

		again, err := knob.ParseEnd(string(e.State()))
		if err == nil && again.State() != e.State() {
			t.Errorf("got %s, then %s", e.State(), again.State())
		}
	})
}
