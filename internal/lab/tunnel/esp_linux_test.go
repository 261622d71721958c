package tunnel

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

func ESP() Tunnel { return espKinds()[0] }

func TestESPDefaultMTUFillsTheUnderlay(t *testing.T) {
	tests := []struct {
		name   string
		v4, v6 int
	}{
		{"esp", 1446, 1426}, {"esp-aes-gcm-256", 1446, 1426},
		{"esp-aes-cbc-sha256", 1438, 1406}, {"esp-chacha20-poly1305", 1446, 1426},
		{"esp-policy", 1446, 1426},
	}
	for i, k := range espKinds() {
		got := k.(kind).nodeSide.(esp)
		if got.name != tests[i].name || fitMTU(got.name, false) != tests[i].v4 ||
			fitMTU(got.name, true) != tests[i].v6 {
			t.Errorf("%s: got %d over IPv4 and %d over IPv6, want %+v", got.name, fitMTU(got.name, false),
				fitMTU(got.name, true), tests[i])
		}
	}
}

// TestESPAssociationsAreTheirOwn: no two of side-by-side tunnels share an SPI, no two directions or ciphers
// a key, and the SPIs are not reserved ones.
func TestESPAssociationsAreTheirOwn(t *testing.T) {
	secret := bytes.Repeat([]byte{7}, presharedSize)
	spis := map[uint32]bool{}
	keys := map[string]bool{}
	for _, k := range espKinds() {
		k := k.(kind).nodeSide.(esp)
		for _, there := range []bool{true, false} {
			a, err := k.association(secret, 51821, there)
			must(t, err)
			if again, err := k.association(secret, 51821, there); err != nil ||
				!bytes.Equal(a.Key, again.Key) {
				t.Errorf("%s: the other end derives another key (%v)", k.name, err)
			}

			if len(a.Key) != k.cipher.KeySize() || keys[string(a.Key[:16])] ||
				bytes.Contains(a.Key, secret[:4]) {
				t.Errorf("%s: a key has %d bytes, or is another's, or the secret", k.name, len(a.Key))
			}

			keys[string(a.Key[:16])] = true
		}
	}

	for port := range 8 {
		for _, there := range []bool{true, false} {
			a, err := ESP().(kind).nodeSide.(esp).association(secret, DefaultPort+port, there)
			must(t, err)
			if a.SPI < 256 || spis[a.SPI] {
				t.Errorf("port %d: SPI %#x is reserved or another's", DefaultPort+port, a.SPI)
			}

			spis[a.SPI] = true
		}
	}
}

func TestESPWithoutKernelIsUnsupported(t *testing.T) {
	_, _, a, b := newEnds(t)
	for _, k := range espKinds() {
		c := k.Check(context.Background(), a, b)
		if c.State == check.Yes {
			continue
		}

		if c.State != check.No || c.Reason == "" || c.Hint == "" {
			t.Errorf("%s: check says %+v, want no with reason and hint", k.Name(), c)
		}

		if _, err := k.Up(context.Background(), a, b, Spec{}); !errors.Is(err, host.ErrUnsupported) {
			t.Errorf("%s: laying it gives %v, want ErrUnsupported", k.Name(), err)
		}
	}
}

// TestESPSeals: what crosses the link outside is as long as the formulas say, so it is neither clear nor
// sealed with something else.
func TestESPSeals(t *testing.T) {
	near, far, a, b := newEndsFor(t, ESP())
	p, err := ESP().Up(context.Background(), a, b, Spec{Device: "wg7"})
	must(t, err)
	outside := ask0[kernel.LinkCounters](t, near, "test/counters", "wan")
	inside, err := p.Counters(context.Background(), false)
	must(t, err)
	const size = 4 << 20
	transfer(t, near, far, "198.18.9.2", size)
	outside2 := ask0[kernel.LinkCounters](t, near, "test/counters", "wan")
	after, err := p.Counters(context.Background(), false)
	must(t, err)
	packets := outside2.TxPackets - outside.TxPackets
	got := float64(outside2.TxBytes-outside.TxBytes) / float64(size)
	t.Logf("%d packets, %.4f bytes outside and %.4f inside per byte", packets, got,
		float64(after.Sent-inside.Sent)/size)
	// 1394 bytes of payload in 1514 of frame without check sequence; a connection's beginning, end and
	// window updates are some packets more.
	want := 1514.0 / 1394
	if got < want || got > want*1.02 {
		t.Errorf("%.4f bytes cross the link per byte of data, want %.4f", got, want)
	}
}

func TestESPTunnelKeepsItsSecret(t *testing.T) {
	near, far, a, b := newEndsFor(t, ESP())
	text, secret := recordedLaying(t, ESP(), near, far, a, b, func() {})
	keys := [][]byte{secret}
	for _, there := range []bool{true, false} {
		k, err := ESP().(kind).nodeSide.(esp).association(secret, DefaultPort, there)
		must(t, err)
		keys = append(keys, k.Key)
	}

	for _, key := range keys {
		for _, form := range forms(key) {
			if strings.Contains(text, form) {
				t.Errorf("a key is in what was said, as %d characters", len(form))
			}
		}
	}
}
