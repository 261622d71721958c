package kernel

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// AddWireGuard creates a kernel WireGuard device. If mtu is 0, the kernel's default is used.
func AddWireGuard(dev string, mtu int) error {
	reportDetails()
	at := netlink.NewLinkAttrs()
	at.Name, at.MTU = dev, mtu
	return explain(netlink.LinkAdd(&netlink.Wireguard{LinkAttrs: at}), "add wireguard device %s", dev)
}

// ProbeWireGuard tests whether the kernel supports WireGuard. It creates a device and deletes it again.
func ProbeWireGuard() error {
	dev := fmt.Sprintf("cpwg%d", os.Getpid())
	if err := AddWireGuard(dev, 0); err != nil {
		return err
	}
	return DeleteLink(dev)
}

// ConfigureWireGuard sets the keys and the only peer of a kernel device.
func ConfigureWireGuard(dev string, w WireGuard) error {
	c, err := wgctrl.New()
	if err != nil {
		return explain(err, "configure wireguard device %s", dev)
	}
	defer c.Close()
	private := wgtypes.Key(w.Private)
	preshared := wgtypes.Key(w.Preshared)
	defer clear(private[:])
	defer clear(preshared[:])
	peer := wgtypes.PeerConfig{
		PublicKey:         wgtypes.Key(w.Peer),
		PresharedKey:      &preshared,
		ReplaceAllowedIPs: true,
		Endpoint:          net.UDPAddrFromAddrPort(w.Endpoint),
	}
	for _, p := range w.Allowed {
		peer.AllowedIPs = append(peer.AllowedIPs, *ipNet(p.Masked()))
	}

	err = c.ConfigureDevice(dev, wgtypes.Config{
		PrivateKey:   &private,
		ListenPort:   &w.Port,
		ReplacePeers: true,
		Peers:        []wgtypes.PeerConfig{peer},
	})
	return explain(err, "configure wireguard device %s", dev)
}

// ReadWireGuard returns the counters of a kernel device, summed over its peers, and the time of the latest
// handshake.
func ReadWireGuard(dev string) (WireGuardStats, error) {
	r, err := OpenWireGuard()
	if err != nil {
		return WireGuardStats{}, err
	}
	defer r.Close()
	peers, err := r.Peers([]string{dev})
	if err == nil && len(peers) == 0 {
		err = explain(ErrAbsent, "read wireguard device %s", dev)
	}

	var s WireGuardStats
	for _, p := range peers {
		s.Sent += p.Sent
		s.Received += p.Received
		if p.Handshake.After(s.Handshake) {
			s.Handshake = p.Handshake
		}
	}

	return s, err
}

// WireGuardReader reads the counters of kernel WireGuard devices repeatedly.
type WireGuardReader struct{ c *wgctrl.Client }

// OpenWireGuard returns a reader for devices in the current network namespace.
func OpenWireGuard() (*WireGuardReader, error) {
	c, err := wgctrl.New()
	if err != nil {
		return nil, explain(err, "open wireguard")
	}
	return &WireGuardReader{c}, nil
}

// Close closes the reader.
func (r *WireGuardReader) Close() error { return r.c.Close() }

// Peers returns the peers of the given devices. It skips devices that do not exist.
func (r *WireGuardReader) Peers(devices []string) ([]WireGuardPeer, error) {
	var out []WireGuardPeer
	for _, name := range devices {
		d, err := r.c.Device(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // because the device was deleted meanwhile
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
			// The library returns the Unix epoch if there was no handshake.
			if p.LastHandshakeTime.After(time.Unix(0, 0)) {
				peer.Handshake = p.LastHandshakeTime
			}

			out = append(out, peer)
		}
	}
	return out, nil
}
