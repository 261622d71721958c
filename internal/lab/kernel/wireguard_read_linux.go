package kernel

import (
	"errors"
	"os"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl"
)

// WireGuardReader reads the kernel's devices of a network namespace again and again.
type WireGuardReader struct{ c *wgctrl.Client }

// OpenWireGuard opens a reader.
func OpenWireGuard() (*WireGuardReader, error) {
	c, err := wgctrl.New()
	if err != nil {
		return nil, explain(err, "open wireguard")
	}
	return &WireGuardReader{c}, nil
}

// Close closes the reader.
func (r *WireGuardReader) Close() error { return r.c.Close() }

// Peers lists the peers of some of the kernel's devices, by device.
func (r *WireGuardReader) Peers(devices []string) ([]WireGuardPeer, error) {
	var out []WireGuardPeer
	for _, name := range devices {
		d, err := r.c.Device(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // it has gone meanwhile
		}
		if err != nil {
			return nil, explain(err, "read wireguard device %s", name)
		}
		clear(d.PrivateKey[:])
		for i := range d.Peers {
			p := &d.Peers[i]
			clear(p.PresharedKey[:])
			peer := WireGuardPeer{Device: name, Index: i}
			peer.Sent, peer.Received = uint64(max(p.TransmitBytes, 0)), uint64(max(p.ReceiveBytes, 0))
			if p.LastHandshakeTime.After(time.Unix(0, 0)) {
				peer.Handshake = p.LastHandshakeTime
			}
			out = append(out, peer)
		}
	}
	return out, nil
}
