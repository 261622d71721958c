package knob

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/netip"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// End is an end of a WireGuard tunnel on a router without an agent, whose device is named by Place.Port. It
// holds no secret: the router makes the private key, and there is no preshared one.
type End struct {
	Port   int            `json:"port"` // UDP
	MTU    int            `json:"mtu"`
	Inner  []netip.Prefix `json:"inner"`            // addresses of the device
	Behind []Behind       `json:"behind,omitempty"` // routes that only the tunnel's path takes
	Peer   *Peer          `json:"peer,omitempty"`   // nil: it is not known yet
}

// Behind is a route to what the tunnel leads to.
type Behind struct {
	To  netip.Prefix `json:"to"`
	Via netip.Addr   `json:"via"`
}

// Peer is the other end.
type Peer struct {
	Key      string         `json:"key"` // public, base64
	Endpoint netip.AddrPort `json:"endpoint"`
	Allowed  []netip.Prefix `json:"allowed"`
}

// NoEnd is the state of a device that there is not.
const NoEnd State = "none"

// TunnelEnd is the knob of these ends, which no plan sets: a lab lays tunnels by it where a driver makes it.
func TunnelEnd() Knob {
	lacks := func(Place) (State, error) { return "", host.ErrUnsupported }
	return &ofNode[State]{declared: declared{&factor.Declaration{Name: "tunnel_end"}},
		spelling: verbatim(func(text string) (State, error) {
			e, err := ParseEnd(text)
			return e.State(), err
		}),
		read:  lacks,
		apply: func(p Place, _ State) error { _, err := lacks(p); return err },
		check: func(p Place, _ State) check.Answer { return check.Not("node %s has an agent", p.Node) }}
}

// State is the canonical text of an end, of none the text NoEnd.
func (e *End) State() State {
	if e == nil {
		return NoEnd
	}
	c := *e
	c.Inner = slices.SortedFunc(slices.Values(e.Inner), netip.Prefix.Compare)
	c.Behind = slices.SortedStableFunc(slices.Values(e.Behind),
		func(a, b Behind) int { return a.To.Compare(b.To) })
	if e.Peer != nil {
		p := *e.Peer
		p.Allowed = slices.SortedFunc(slices.Values(p.Allowed), netip.Prefix.Compare)
		c.Peer = &p
	}
	text, _ := json.Marshal(c) // of numbers and texts
	return State(text)
}

// ParseEnd reads a canonical state and no other text, nil of NoEnd. What it returns is of plain addresses and
// numbers, whoever wrote the text.
func ParseEnd(text string) (*End, error) {
	if text == string(NoEnd) {
		return nil, nil
	}
	var e End
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	err := d.Decode(&e)
	if err == nil {
		err = e.check()
	}
	if err == nil && string(e.State()) != text {
		err = want("it in its canonical form")
	}
	if err != nil {
		return nil, refuse("tunnel_end", text, err)
	}
	return &e, nil
}

func (e *End) check() error {
	plain := func(a netip.Addr) bool { return a.IsValid() && a.Zone() == "" && !a.Is4In6() }
	whole := func(list []netip.Prefix) bool {
		return len(list) > 0 && !slices.ContainsFunc(list, func(p netip.Prefix) bool {
			return !p.IsValid() || !plain(p.Addr())
		})
	}
	switch p := e.Peer; {
	case e.Port < 1 || e.Port > 65535:
		return want("a port from 1 to 65535")
	case e.MTU < 576 || e.MTU > 65535:
		return want("an mtu from 576 to 65535")
	case !whole(e.Inner):
		return want("inner addresses")
	case slices.ContainsFunc(e.Behind, func(b Behind) bool {
		return !b.To.IsValid() || b.To != b.To.Masked() || !plain(b.Via) || b.Via.Is4() != b.To.Addr().Is4()
	}):
		return want("routes to networks by addresses of their version of IP")
	case p == nil:
		return nil
	case !whole(p.Allowed) || !plain(p.Endpoint.Addr()) || p.Endpoint.Port() == 0:
		return want("a peer's endpoint and allowed addresses")
	default:
		key, err := base64.StdEncoding.DecodeString(p.Key)
		if err != nil || len(key) != 32 || base64.StdEncoding.EncodeToString(key) != p.Key {
			return want("a public key of 32 bytes in base64")
		}
		return nil
	}
}
