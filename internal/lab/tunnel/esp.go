package tunnel

import (
	"context"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/overhead"
)

// ESP is IPsec: ESP in tunnel mode (RFC 4303) by the kernel, route-based with an XFRM interface, sealed
// with AES-GCM-128. There is no key exchange: the keys of both directions are derived from one secret that
// both ends are given, and live as long as the tunnel.
func ESP() Tunnel { return esp{name: "esp", cipher: kernel.ESPAESGCM128} }

// ESPPolicy is ESP like that, but policy-based: there is no device, and the kernel compares every packet of
// the node with the policies.
func ESPPolicy() Tunnel {
	return esp{name: "esp-policy", cipher: kernel.ESPAESGCM128, deviceless: true}
}

// espKinds are ESP with each cipher.
func espKinds() []Tunnel {
	return []Tunnel{
		ESP(),
		esp{name: "esp-aes-gcm-256", cipher: kernel.ESPAESGCM256},
		esp{name: "esp-aes-cbc-sha256", cipher: kernel.ESPAESCBC256SHA256},
		esp{name: "esp-chacha20-poly1305", cipher: kernel.ESPChaCha20Poly1305},
		ESPPolicy(),
	}
}

type esp struct {
	name       string
	cipher     kernel.ESPCipher
	deviceless bool // policy-based
}

func (k esp) Name() string { return k.name }

// Burdens: while any policy is loaded, the kernel looks for one for every packet.
func (k esp) Burdens() bool { return true }

// Check asks both nodes.
func (k esp) Check(ctx context.Context, near, far End) check.Answer {
	return checkEnds(ctx, k.name, near, far)
}

// Up makes a device on each node, gives both one secret, and proves that sealed packets cross in both
// directions.
func (k esp) Up(ctx context.Context, near, far End, s Spec) (Path, error) {
	if s.MTU == 0 {
		s.MTU = k.fitMTU(near.Outer.Is6())
	}
	return up(ctx, &path{
		spec: withDefaults(s), mute: true,
		ends: [2]*end{{End: near, kind: k.name}, {End: far, kind: k.name}},
	})
}

// fitMTU is what an Ethernet underlay of 1500 bytes has room for.
func (k esp) fitMTU(outer6 bool) int {
	t, _ := overhead.Named(k.name)
	if t.OuterIP = overhead.V4; outer6 {
		t.OuterIP = overhead.V6
	}
	return t.FitMTU(1500)
}
