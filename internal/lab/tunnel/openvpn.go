package tunnel

import (
	"context"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// Ciphers of OpenVPN's data channel, by its own names.
const (
	cipherAES256GCM = "AES-256-GCM"
	cipherChaCha20  = "CHACHA20-POLY1305"
)

// nameOpenVPN begins the names of the kinds.
const nameOpenVPN = "openvpn"

// openVPNTime is how long a started end may take to connect: a TLS handshake is done, on an emulated
// machine too.
const openVPNTime = 20 * time.Second

// OpenVPN is OpenVPN 2.6 over UDP with AES-256-GCM, by the installed program in userspace: its data-channel
// offload is off. The far end is the server, the near end its client. Nothing is fragmented or clamped by
// OpenVPN itself (mssfix 0, no fragment): with a large inner MTU the packets outside are IP fragments.
func OpenVPN() Tunnel { return openVPN{nameOpenVPN, cipherAES256GCM, false} }

// openVPNKinds are OpenVPN over each transport, with each cipher.
func openVPNKinds() []Tunnel {
	return []Tunnel{
		OpenVPN(),
		openVPN{nameOpenVPN + "-chacha20-poly1305", cipherChaCha20, false},
		openVPN{nameOpenVPN + "-tcp", cipherAES256GCM, true},
		openVPN{nameOpenVPN + "-tcp-chacha20-poly1305", cipherChaCha20, true},
	}
}

type openVPN struct {
	name   string
	cipher string
	tcp    bool // outside
}

func (k openVPN) Name() string { return k.name }

// Check asks both nodes for an installed openvpn that can do it.
func (k openVPN) Check(ctx context.Context, near, far End) check.Answer {
	if a := checkEnds(ctx, k.name, near, far); a.State != check.Yes {
		return a
	}
	return check.OKBecause("in userspace: data-channel offload is switched off")
}

// Up starts a server at the far end and a client at the near one. Each makes a key and a certificate, of
// which the other end is told the fingerprint; the secret that both are given seals the control channel
// (tls-crypt).
func (k openVPN) Up(ctx context.Context, near, far End, s Spec) (Path, error) {
	if s.MTU == 0 {
		s.MTU = fitMTU(k.name, near.Outer.Is6())
	}
	return up(ctx, &path{
		spec: s, serverFirst: true, connectTime: acceptTime + openVPNTime + answerTime,
		ends: [2]*end{{End: near, kind: k.name}, {End: far, kind: k.name}},
	})
}
