package knob

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/netip"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
)

// End describes the end of a WireGuard tunnel on a router without an agent. Place.Port is the name of its
// device. An End contains no secrets, because the router generates the private key and there is no preshared
// key.
type End struct {
	Port   uint16                      `json:"port"` // UDP port
	MTU    uint16                      `json:"mtu"`
	Inner  []netip.Prefix              `json:"inner"`            // addresses of the device
	Behind map[netip.Prefix]netip.Addr `json:"behind,omitempty"` // maps destinations to gateways
	// Key, Endpoint and Allowed describe the other end once it is known: its public key in base64, its outer
	// address, and its allowed IPs.
	Key      string         `json:"key,omitempty"`
	Endpoint netip.AddrPort `json:"endpoint,omitzero"`
	Allowed  []netip.Prefix `json:"allowed,omitempty"`
}

// NoEnd is the state if the device does not exist.
const NoEnd State = "none"

// TunnelEnd returns a knob whose state is an End. The knob implements only Language. A lab uses it for tunnel
// ends that are set up by a driver instead of an agent.
func TunnelEnd() Knob {
	return &kernelKnob[State]{
		declared: declared{factor.Declaration{Name: "tunnel_end"}},
		spelling: verbatim(func(text string) (State, error) {
			e, err := ParseEnd(text)
			return e.State(), err
		}),
	}
}

// State returns the canonical text of e, or NoEnd if e is nil. It sorts the lists in e.
func (e *End) State() State {
	if e == nil {
		return NoEnd
	}

	slices.SortFunc(e.Inner, netip.Prefix.Compare)
	slices.SortFunc(e.Allowed, netip.Prefix.Compare)
	text, _ := json.Marshal(e) // cannot fail for these types
	return string(text)
}

// ParseEnd parses a canonical state and rejects any other text. It returns nil for NoEnd. All addresses and
// numbers in the result are valid, even if text comes from an untrusted source.
func ParseEnd(text string) (*End, error) {
	if text == NoEnd {
		return nil, nil
	}

	var e End
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	err := d.Decode(&e)
	key, wrong := base64.StdEncoding.DecodeString(e.Key)
	zone := e.Endpoint.Addr().Zone()
	for _, via := range e.Behind {
		zone += via.Zone()
	}

	switch whole := e.Endpoint.IsValid() && len(e.Allowed) > 0; {
	case err != nil:
	case wrong != nil || len(key) != 0 && len(key) != 32 || whole != (len(key) > 0),
		base64.StdEncoding.EncodeToString(key) != e.Key:
		err = want("a public key of 32 bytes in base64 with an endpoint and addresses, or none of them")
	case zone != "" || e.State() != text:
		err = want("it in its canonical form, without zones")
	}

	if err != nil {
		return nil, refuse("tunnel_end", text, err)
	}

	return &e, nil
}
