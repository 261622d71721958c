package probe

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// wireguard reads the peers' counters of the WireGuard devices in the kernel. A userspace implementation is
// not read, because it reveals its counters only to users who may read its keys.
func wireguard(root Root) Probe {
	return Probe{
		Name:   "wireguard",
		Scope:  record.ScopeNode,
		Slow:   true,
		Stems:  wireguardMetrics,
		Empty:  "no WireGuard device of the kernel has a peer here",
		Source: root.openWireGuard,
	}
}

var wireguardMetrics = []record.Metric{
	counter("rx_bytes", "bytes",
		"bytes received from the peer, including tunnel headers; the label, such as \"wg0.peer0\", "+
			"counts peers in the kernel's order"),
	counter("tx_bytes", "bytes", "bytes sent to the peer, including tunnel headers"),
	level("handshake_age_ns", "ns", "time since the last handshake with the peer; no value before the first"),
}

type wireguardSampler struct {
	columns
	devices // all devices; when they change, WireGuard devices are searched for again
	root    Root
	reader  *kernel.WireGuardReader
	ours    []string
	known   []kernel.WireGuardPeer
}

func (root Root) openWireGuard(Options) (Sampler, error) {
	// Opening the netlink family would load the WireGuard module, so it is opened only if the module is
	// loaded.
	if len(matches(root.sys("module/wireguard"))) == 0 {
		return nil, absent("WireGuard is not in use on this kernel (its module is not loaded)")
	}

	r, err := kernel.OpenWireGuard()
	if errors.Is(err, kernel.ErrUnsupported) || errors.Is(err, kernel.ErrAbsent) {
		return nil, absent("%v", err)
	}

	if err != nil {
		return nil, err
	}

	d, err := openDevices(root)
	return &wireguardSampler{devices: d, root: root, reader: r}, err
}

// wireguardDevices lists the kernel's WireGuard devices. Finding the devices is much more expensive than
// reading one of them.
func wireguardDevices(root Root) []string {
	var names []string
	for _, path := range matches(root.sys("class/net/*/uevent")) {
		text, err := os.ReadFile(path)
		if err == nil && slices.Contains(strings.Split(string(text), "\n"), "DEVTYPE=wireguard") {
			names = append(names, filepath.Base(filepath.Dir(path)))
		}
	}
	return names
}

func (s *wireguardSampler) Sample(dst []float64) error {
	changed, err := s.renew()
	if err != nil {
		return err
	}

	if changed {
		s.ours = wireguardDevices(s.root)
	}

	now, err := s.reader.Peers(s.ours)
	if err != nil {
		s.names = nil // search again, because a device may have been recreated as another kind
		return err
	}

	if !slices.EqualFunc(now, s.known, func(a, b kernel.WireGuardPeer) bool {
		return a.Device == b.Device && a.Index == b.Index
	}) {
		s.known, s.columns = now, nil
		for _, p := range now {
			s.add(labelled(p.Device, "peer"+strconv.Itoa(p.Index)), wireguardMetrics)
		}
		return ErrColumns
	}

	for i, p := range now {
		dst[3*i], dst[3*i+1], dst[3*i+2] = float64(p.Received), float64(p.Sent), nan
		if !p.Handshake.IsZero() {
			dst[3*i+2] = float64(time.Since(p.Handshake))
		}
	}

	return nil
}

func (s *wireguardSampler) Close() error { return errors.Join(s.reader.Close(), s.devices.Close()) }
