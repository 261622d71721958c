package driver

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
)

// An end of a tunnel is a WireGuard interface with a peer, addresses and routes (manual, WireGuard), all with
// the same comment. No print is without names of what it is to tell: it would tell keys.
const wireguard, wireguardPeers = "/interface/wireguard", "/interface/wireguard/peers"

// endName is that of a tunnel's device on the router, and endMark the comment of all that belongs to it.
func endName(device string) string { return rosMark + "-" + device }
func endMark(device string) string { return rosMark + " tunnel " + device }

// several reads what the prints of several menus give, in one command.
func several(ctx context.Context, h host.Host, prints ...string) (out [][]item, err error) {
	var put []string
	for _, print := range prints {
		put = append(put, ":put "+quoteROS(partMark), toJSON(print))
	}
	text, err := console(ctx, h, put...)
	if err != nil {
		return nil, err
	}
	parts := strings.Split(text, partMark)[1:]
	if len(parts) != len(prints) {
		return nil, fmt.Errorf("the console answers %d of %d questions", len(parts), len(prints))
	}
	for _, part := range parts {
		all, err := parseItems(part)
		if err != nil {
			return nil, err
		}
		out = append(out, all)
	}
	return out, nil
}

func readROSEnd(ctx context.Context, h host.Host, dev string) (string, error) {
	ours := " where comment=" + quoteROS(endMark(dev))
	all, err := several(ctx, h, wireguard+"/print as-value proplist=name,mtu,listen-port"+ours,
		wireguardPeers+"/print as-value proplist=public-key,allowed-address,endpoint-address,endpoint-port"+ours,
		"/ip/address/print as-value proplist=address"+ours, "/ipv6/address/print as-value proplist=address"+ours,
		"/ip/route/print as-value proplist=dst-address,gateway"+ours,
		"/ipv6/route/print as-value proplist=dst-address,gateway"+ours)
	if err != nil {
		return "", err
	}
	e, err := parseROSEnd([6][]item(all))
	return string(e.State()), err
}

// parseROSEnd reads what the router has of an end: interface, peer, and of each version of IP addresses and
// routes.
func parseROSEnd(all [6][]item) (*knob.End, error) {
	if len(all[0]) == 0 {
		return nil, nil
	}
	if len(all[0]) > 1 || len(all[1]) > 1 {
		return nil, fmt.Errorf("the tunnel's end has %d interfaces with %d peers", len(all[0]), len(all[1]))
	}
	var errs []error
	number := func(i item, name string, most uint64) int {
		n, known := i.number(name)
		if !known || n > most {
			errs = append(errs, fmt.Errorf("its %s is no number to %d", name, most))
		}
		return int(min(n, most))
	}
	prefix := func(text string) netip.Prefix {
		p, err := netip.ParsePrefix(text)
		if a, wrong := netip.ParseAddr(text); wrong == nil && a.Zone() == "" {
			p, err = a.Prefix(a.BitLen())
		}
		errs = append(errs, err)
		return p
	}
	e := &knob.End{Port: number(all[0][0], "listen-port", 65535), MTU: number(all[0][0], "mtu", 65535)}
	for _, p := range all[1] {
		at, err := netip.ParseAddr(p["endpoint-address"])
		errs = append(errs, err)
		e.Peer = &knob.Peer{Key: p["public-key"],
			Endpoint: netip.AddrPortFrom(at, uint16(number(p, "endpoint-port", 65535)))}
		for text := range strings.FieldsFuncSeq(p["allowed-address"], func(r rune) bool { return r == ',' }) {
			e.Peer.Allowed = append(e.Peer.Allowed, prefix(text))
		}
	}
	for i := range 2 {
		for _, a := range all[2+i] {
			e.Inner = append(e.Inner, prefix(a["address"]))
		}
		for _, r := range all[4+i] {
			via, err := netip.ParseAddr(r["gateway"])
			errs = append(errs, err)
			e.Behind = append(e.Behind, knob.Behind{To: prefix(r["dst-address"]), Via: via})
		}
	}
	return e, errors.Join(errs...)
}

// makeROSEnd removes what hangs on the interface, and makes it anew; the interface stays, and with it its key.
func makeROSEnd(_ context.Context, _ host.Host, dev, value string) (out []string, err error) {
	e, err := knob.ParseEnd(value)
	if err != nil {
		return nil, err
	}
	mark := endMark(dev)
	menu := func(a netip.Addr) string { return map[bool]string{true: "/ip", false: "/ipv6"}[a.Is4()] }
	for _, m := range [...]string{"/ip/route", "/ipv6/route", "/ip/address", "/ipv6/address", wireguardPeers} {
		out = append(out, m+"/remove "+find(m, "comment", mark))
	}
	own := find(wireguard, "comment", mark)
	if e == nil {
		return append(out, wireguard+"/remove "+own), nil
	}
	name, comment := quoteROS(endName(dev)), " comment="+quoteROS(mark)
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
	for _, b := range e.Behind {
		out = append(out, menu(b.Via)+"/route/add dst-address="+b.To.String()+" gateway="+b.Via.String()+comment)
	}
	if p := e.Peer; p != nil {
		var allowed []string
		for _, a := range p.Allowed {
			allowed = append(allowed, a.String())
		}
		out = append(out, wireguardPeers+"/add interface="+name+" public-key="+quoteROS(p.Key)+
			" allowed-address="+strings.Join(allowed, ",")+" endpoint-address="+p.Endpoint.Addr().String()+
			" endpoint-port="+strconv.Itoa(int(p.Endpoint.Port()))+comment)
	}
	return out, nil
}

// TunnelKey implements Tunneling.
func (RouterOS) TunnelKey(ctx context.Context, h host.Host, device string) (string, error) {
	i, err := first(ctx, h, wireguard+"/print as-value proplist=public-key where name="+
		quoteROS(endName(device)))
	if err != nil {
		return "", fmt.Errorf("read the public key of %s on %s: %w", endName(device), h.Name(), err)
	}
	return i["public-key"], nil
}

// TunnelMoved implements Tunneling. A peer that nothing was received from has shaken no hands.
func (RouterOS) TunnelMoved(ctx context.Context, h host.Host, device string) (c kernel.LinkCounters,
	handshake int64, err error) {
	all, err := RouterOS{}.Counters(ctx, h, []string{endName(device)})
	if err != nil {
		return c, -1, err
	}
	peers, err := items(ctx, h, peersPrint+" where comment="+quoteROS(endMark(device)))
	if err != nil || len(peers) != 1 {
		return c, -1, errors.Join(err, fmt.Errorf("read the peer of %s on %s: there are %d", endName(device),
			h.Name(), len(peers)))
	}
	handshake = -1
	age, wrong := parseROSTime(peers[0]["last-handshake"])
	if n, _ := peers[0].number("rx"); n > 0 && wrong == nil {
		handshake = int64(age)
	}
	return all[endName(device)], handshake, nil
}

// Ping implements Tunneling.
func (RouterOS) Ping(ctx context.Context, h host.Host, to []netip.Addr) error {
	var send []string
	for _, a := range to {
		send = append(send, ":do {/ping address="+a.WithZone("").String()+" count=1 interval=200ms} on-error={}")
	}
	_, err := console(ctx, h, send...)
	return err
}

// TunnelNeeds implements Tunneling.
func (RouterOS) TunnelNeeds(port int) string {
	return fmt.Sprintf("UDP port %d must pass the router's chain input, and what leaves the tunnel its chain "+
		"forward: /ip/firewall/filter/print; IPv6 has rules of its own: /ipv6/firewall/filter/print", port)
}
