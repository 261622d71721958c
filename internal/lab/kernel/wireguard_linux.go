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

// AddWireGuard makes a kernel WireGuard device.
func AddWireGuard(dev string, mtu int) error {
	reportDetails()
	at := netlink.NewLinkAttrs()
	at.Name, at.MTU = dev, mtu
	return explain(netlink.LinkAdd(&netlink.Wireguard{LinkAttrs: at}), "add wireguard device %s", dev)
}

// ProbeWireGuard makes a device and deletes it again.
func ProbeWireGuard() error {
	dev := fmt.Sprintf("cpwg%d", os.Getpid())
	if err := AddWireGuard(dev, 0); err != nil {
		return err
	}
	return DeleteLink(dev)
}

// ConfigureWireGuard sets a kernel device's keys and its one peer.
func ConfigureWireGuard(dev string, w WireGuard) error {
	c, err := wgctrl.New()
	if err != nil {
		return explain(err, "configure wireguard device %s", dev)
	}
	defer c.Close()
	private, preshared := wgtypes.Key(w.Private), wgtypes.Key(w.Preshared)
	defer clear(private[:])
	defer clear(preshared[:])
	peer := wgtypes.PeerConfig{
		PublicKey: wgtypes.Key(w.Peer), PresharedKey: &preshared, ReplaceAllowedIPs: true,
		Endpoint: net.UDPAddrFromAddrPort(w.Endpoint),
	}
	for _, p := range w.Allowed {
		peer.AllowedIPs = append(peer.AllowedIPs, *ipNet(p.Masked()))
	}
	err = c.ConfigureDevice(dev, wgtypes.Config{
		PrivateKey: &private, ListenPort: &w.Port, ReplacePeers: true, Peers: []wgtypes.PeerConfig{peer},
	})
	return explain(err, "configure wireguard device %s", dev)
}

// ReadWireGuard reads the counters of a kernel device.
func ReadWireGuard(dev string) (WireGuardStats, error) {
	c, err := wgctrl.New()
	if err != nil {
		return WireGuardStats{}, explain(err, "read wireguard device %s", dev)
	}
	defer c.Close()
	d, err := c.Device(dev)
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("device %s %w", dev, ErrAbsent)
	}
	if err != nil {
		return WireGuardStats{}, explain(err, "read wireguard device %s", dev)
	}
	var s WireGuardStats
	for _, p := range d.Peers {
		s.Sent += uint64(max(p.TransmitBytes, 0))
		s.Received += uint64(max(p.ReceiveBytes, 0))
		// The library gives the epoch, not the zero time, for "never".
		if p.LastHandshakeTime.After(time.Unix(0, 0)) {
			s.Handshake = p.LastHandshakeTime
		}
	}
	return s, nil
}
