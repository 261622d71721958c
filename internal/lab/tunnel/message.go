package tunnel

import (
	"net/netip"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// The exchange with a node: request → offer; then the preshared key as a secret and connect → status;
// then any number of ask → status. No message has a place for a secret.

// request is the first message: make a device with these addresses, or only say whether it could be made.
type request struct {
	Probe  bool           `json:"probe,omitempty"`
	Device string         `json:"device,omitempty"`
	MTU    int            `json:"mtu,omitempty"`
	Port   int            `json:"port,omitempty"`
	Inner  []netip.Prefix `json:"inner,omitempty"`
	Routes []netip.Prefix `json:"routes,omitempty"`
	Outer  netip.Addr     `json:"outer,omitzero"` // of this end
	Near   bool           `json:"near,omitempty"` // this is the near end
}

// offer is the node's public key, or the answer to a probe.
type offer struct {
	Public string       `json:"public,omitempty"`
	Answer check.Answer `json:"answer"`
}

// connect names the peer: its public key, its outer address, and what it may send and be sent.
type connect struct {
	Public   string         `json:"public"`
	Endpoint netip.AddrPort `json:"endpoint"`
	Allowed  []netip.Prefix `json:"allowed"`
}

// ask wants the status; before it, a datagram to each address in Prove.
type ask struct {
	Prove []netip.Addr `json:"prove,omitempty"`
}

// status is of the tunnel's device: bytes and packets of what it carried, the age of the last handshake in
// ns or -1, and the implementation's last complaint. A tunnel without device says by which one its packets
// leave, and what counts them.
type status struct {
	Sent            uint64 `json:"sent"`
	Received        uint64 `json:"received"`
	SentPackets     uint64 `json:"sent_packets"`
	ReceivedPackets uint64 `json:"received_packets"`
	Handshake       int64  `json:"handshake_ns"`
	MTU             int    `json:"mtu"`
	Complaint       string `json:"complaint,omitempty"`
	Device          string `json:"device,omitempty"`
	Counted         string `json:"counted,omitempty"`
}
