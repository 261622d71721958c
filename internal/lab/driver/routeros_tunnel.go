package driver

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
)

// wireguard and wireguardPeers are menus. An end of a tunnel is a WireGuard interface with a peer, addresses
// and routes (manual, WireGuard). All of these have the same comment. All print commands use a proplist,
// because they would print keys otherwise.
const wireguard, wireguardPeers = "/interface/wireguard", "/interface/wireguard/peers"

// endName returns the name of a tunnel's interface on the router. endMark returns the comment of all items
// that belong to the interface.
func endName(device string) string { return rosMark + "-" + device }
func endMark(device string) string { return rosMark + " tunnel " + device }

func readROSEnd(ctx context.Context, h host.Host, dev, _ string) (string, error) {
	var all [6][]item
	for i, print := range [...]string{wireguard + "/print as-value proplist=mtu,listen-port",
		wireguardPeers + "/print as-value proplist=public-key,allowed-address,endpoint-address," +
			"endpoint-port",
		"/ip/address/print as-value proplist=address", "/ipv6/address/print as-value proplist=address",
		"/ip/route/print as-value proplist=dst-address,gateway",
		"/ipv6/route/print as-value proplist=dst-address,gateway"} {
		var err error
		if all[i], err = items(ctx, h, print+" where comment="+quoteROS(endMark(dev))); err != nil {
			return "", err
		}
	}

	e, err := parseROSEnd(all)
	return e.State(), err
}

// parseROSEnd parses the items of an end: the interface, the peer, and the addresses and routes for each IP
// version.
func parseROSEnd(all [6][]item) (e *knob.End, err error) {
	if len(all[0]) == 0 {
		return nil, nil
	}

	if len(all[0]) > 1 || len(all[1]) > 1 {
		return nil, fmt.Errorf("the tunnel's end has %d interfaces with %d peers", len(all[0]), len(all[1]))
	}

	inner := []string{}
	behind := map[string]string{}
	for _, a := range slices.Concat(all[2], all[3]) {
		inner = append(inner, a["address"])
	}

	for _, r := range slices.Concat(all[4], all[5]) {
		behind[r["dst-address"]] = r["gateway"]
	}

	told := map[string]any{"port": json.Number(all[0][0]["listen-port"]),
		"mtu": json.Number(all[0][0]["mtu"]), "inner": inner, "behind": behind}
	for _, p := range all[1] {
		told["key"], told["allowed"] = p["public-key"], strings.Split(p["allowed-address"], ",")
		told["endpoint"] = net.JoinHostPort(p["endpoint-address"], p["endpoint-port"])
	}

	text, err := json.Marshal(told)
	if err == nil {
		err = json.Unmarshal(text, &e)
	}

	return e, err
}

// applyROSEnd removes the routes, addresses and peer of an end and adds new ones. It keeps an existing
// interface, and thereby its key.
func applyROSEnd(ctx context.Context, h host.Host, dev, value string) error {
	e, err := knob.ParseEnd(value)
	if err != nil {
		return err
	}

	var out []string
	mark := endMark(dev)
	menu := func(a netip.Addr) string { return map[bool]string{true: "/ip", false: "/ipv6"}[a.Is4()] }
	for _, m := range []string{"/ip/route", "/ipv6/route", "/ip/address", "/ipv6/address", wireguardPeers} {
		out = append(out, remove(m, "comment", mark))
	}

	own := find(wireguard, "comment", mark)
	if e == nil {
		return changeROS(ctx, h, append(out, wireguard+"/remove "+own)...)
	}

	name := quoteROS(endName(dev))
	comment := " comment=" + quoteROS(mark)
	arguments := fmt.Sprintf(" listen-port=%d mtu=%d", e.Port, e.MTU)
	out = append(out, ":if ([:len "+own+"] = 0) do={"+wireguard+"/add name="+name+arguments+comment+
		"} else={"+wireguard+"/set "+own+arguments+"}")
	for _, p := range e.Inner {
		add := menu(p.Addr()) + "/address/add address=" + p.String() + " interface=" + name
		if p.Addr().Is6() {
			add += " advertise=no"
		}

		out = append(out, add+comment)
	}

	for _, to := range slices.SortedFunc(maps.Keys(e.Behind), netip.Prefix.Compare) {
		out = append(out, menu(to.Addr())+"/route/add dst-address="+to.String()+" gateway="+
			e.Behind[to].String()+comment)
	}

	if e.Key != "" {
		allowed := strings.Trim(fmt.Sprint(e.Allowed), "[]")
		out = append(out, fmt.Sprintf("%s/add interface=%s public-key=%s allowed-address=%s "+
			"endpoint-address=%s endpoint-port=%d%s", wireguardPeers, name, quoteROS(e.Key),
			strings.ReplaceAll(allowed, " ", ","), e.Endpoint.Addr(), e.Endpoint.Port(), comment))
	}

	return changeROS(ctx, h, out...)
}

// TunnelKey implements Tunneling.
func (RouterOS) TunnelKey(ctx context.Context, h host.Host, device string) (string, error) {
	i, err := first(ctx, h, wireguard+"/print as-value proplist=public-key where comment="+
		quoteROS(endMark(device)))
	return i["public-key"], err
}

// TunnelMoved implements Tunneling. It reports no handshake if nothing was received from the peer.
func (RouterOS) TunnelMoved(ctx context.Context, h host.Host, device string) (c kernel.LinkCounters,
	handshake int64, err error) {
	all, err := RouterOS{}.Counters(ctx, h, []string{endName(device)})
	var peer item
	if err == nil {
		peer, err = first(ctx, h, peersPrint+" where comment="+quoteROS(endMark(device)))
	}

	age, wrong := parseROSTime(peer["last-handshake"])
	n, _ := peer.number("rx")
	if n == 0 || wrong != nil {
		age = -1
	}

	return all[endName(device)], int64(age), err
}

// Ping implements Tunneling.
func (RouterOS) Ping(ctx context.Context, h host.Host, to netip.Addr) error {
	_, err := console(ctx, h, ":do {/ping address="+to.WithZone("").String()+
		" count=1 interval=200ms} on-error={}")
	return err
}
