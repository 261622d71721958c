package knob

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// Offload sets how a device merges and segments packets. "super" allows packets of up to 64 KiB. With "wire",
// every packet on the link has the size that it would have on a cable. Other states list features by the
// names of the kernel or of ethtool, such as "tso=on rx-gro=off".
func Offload() Knob {
	s := verbatim(parseOffload)
	s.same = sameOffload
	k := ofPorts(ofRouter(factor.Declaration{
		Name:    "offload",
		Unit:    "wire, super, or features such as gro=on udp-gro=on",
		Doc:     "what a node does to many packets at once, in the words of ethtool(8)",
		Rank:    20,
		Without: without("wire", "with packets as on a wire"),
	}), s, readOffload, applyOffload)
	k.check = checkOffload
	return k
}

// superFeatures returns the features that "super" sets. "wire" turns all of them off. mangleid, a part of
// tso, is usually off by default.
func superFeatures() map[string]bool {
	return map[string]bool{"tx-generic-segmentation": true, "tx-tcp-segmentation": true,
		"tx-tcp6-segmentation": true, "tx-tcp-ecn-segmentation": true, "tx-tcp-mangleid-segmentation": true,
		kernel.UDPSegmentation: true, "rx-gro": true, "tx-gso-list": false, "rx-gro-list": false,
		"rx-udp-gro-forwarding": false, "rx-lro": false}
}

// shortFeatures maps the short names of ethtool to the names of the kernel.
func shortFeatures() map[string][]string {
	return map[string][]string{
		"tso": {"tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-tcp-ecn-segmentation"},
		"gso": {"tx-generic-segmentation"},
		"gro": {"rx-gro"},
		"lro": {"rx-lro"},
		// UDP GRO forwarding merges UDP packets that are forwarded.
		"udp-gro": {"rx-udp-gro-forwarding"},
		"uso":     {kernel.UDPSegmentation},
		"sg":      {"tx-scatter-gather"},
	}
}

func parseOffload(text string) (State, error) {
	if text == "super" || text == "wire" {
		return text, nil
	}

	wrong := want("super, wire or a list such as tso=on gro=off")
	set := map[string]bool{}
	for field := range strings.FieldsSeq(text) {
		name, value, ok := strings.Cut(field, "=")
		if !ok || !featureLike(name) || value != "on" && value != "off" {
			return "", wrong
		}

		names := shortFeatures()[name]
		if names == nil {
			names = []string{name}
		}

		for _, n := range names {
			_, twice := set[n]
			if twice {
				return "", wrong
			}

			set[n] = value == "on"
		}
	}

	if len(set) == 0 {
		return "", wrong
	}

	return spellFeatures(set), nil
}

func featureLike(name string) bool {
	return name != "" && strings.Trim(name, "-0123456789abcdefghijklmnopqrstuvwxyz") == ""
}

func spellFeatures(set map[string]bool) State {
	var list []string
	for _, n := range slices.Sorted(maps.Keys(set)) {
		list = append(list, n+"="+onOff().spell(set[n]))
	}
	return strings.Join(list, " ")
}

// OffloadFeatures returns the features that a state requires of a device. The map has contains the features
// of the device, and the map fixed contains the features that cannot be changed.
func OffloadFeatures(s State, has, fixed map[string]bool) map[string]bool {
	want := map[string]bool{}
	if s == "super" || s == "wire" {
		for n, on := range superFeatures() {
			on = on && s == "super"
			// "super" omits features that the driver lacks. "wire" includes features that cannot be turned
			// off, so that it is rejected for such a device.
			_, known := has[n]
			if known && (!fixed[n] || has[n] && !on) {
				want[n] = on
			}
		}
		return want
	}

	for field := range strings.FieldsSeq(s) {
		name, value, _ := strings.Cut(field, "=")
		want[name] = value == "on"
	}

	return want
}

// features returns the features of a device, and which of them cannot be changed.
func features(dev string) (has, fixed map[string]bool, err error) {
	if has, err = kernel.Features(dev); err == nil {
		fixed, err = kernel.FixedFeatures(dev)
	}
	return has, fixed, err
}

func readOffload(dev string) (State, error) {
	has, fixed, err := features(dev)
	return OffloadState(has, fixed), err
}

// OffloadState returns the state of a device that has the given features.
func OffloadState(has, fixed map[string]bool) State {
	for _, s := range []State{"super", "wire"} {
		if satisfied(OffloadFeatures(s, has, fixed), has) {
			return s
		}
	}

	now := map[string]bool{}
	for n := range superFeatures() {
		on, known := has[n]
		if known && !fixed[n] {
			now[n] = on
		}
	}

	return spellFeatures(now)
}

func satisfied(want, has map[string]bool) bool {
	for n, on := range want {
		if has[n] != on {
			return false
		}
	}
	return true
}

func applyOffload(dev string, s State) error {
	has, fixed, err := features(dev)
	if err != nil {
		return err
	}

	if err := kernel.SetFeatures(dev, OffloadFeatures(s, has, fixed)); err != nil || s != "super" ||
		!fixed[kernel.UDPSegmentation] {
		return err
	}

	// Set the feature, because this is the only way to find out whether the other end of a tap supports it.
	err = kernel.SetFeatures(dev, map[string]bool{kernel.UDPSegmentation: true})
	if errors.Is(err, kernel.ErrUnsupported) {
		return nil
	}

	return err
}

// sameOffload compares the features that both states contain.
func sameOffload(want, got State) bool {
	has := OffloadFeatures(got, superFeatures(), nil)
	for n, on := range OffloadFeatures(want, has, nil) {
		now, known := has[n]
		if known && now != on {
			return false
		}
	}
	return true
}

func checkOffload(p Place, s State) error {
	has, fixed, err := features(p.Port)
	want := OffloadFeatures(s, has, fixed)
	for _, n := range slices.Sorted(maps.Keys(want)) {
		now, known := has[n]
		if err == nil && (!known || fixed[n] && now != want[n]) {
			err = fmt.Errorf("%s of %s: %w", n, p.Port, kernel.ErrUnsupported)
		}
	}
	return err
}
