package knob

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// These are the kinds of access that a provider offers. Package isp implements them.
const (
	Static = factor.StaticWAN // the address of the subscriber is configured statically
	DHCP   = "dhcp"           // defined in RFC 2131
	PPPoE  = factor.PPPoE     // defined in RFC 2516
)

// Accesses returns the kinds of access.
func Accesses() []string { return []string{Static, DHCP, PPPoE} }

// These are the verbs that run a provider and a subscriber.
const (
	VerbServe = "isp/serve"
	VerbJoin  = "isp/join"
)

// Access describes the access that a provider offers, or that a subscriber uses, on a port. The provider
// assigns all addresses of its network except its own to subscribers, starting with the first.
type Access struct {
	Kind   string `json:"kind"`
	Device string `json:"device"`
	// Addresses are added to the device while the provider serves. If empty, the provider uses the addresses
	// that the device has.
	Addresses []netip.Prefix `json:"addresses,omitempty"`
	// IPv6 is a block of IPv6 networks for DHCP and PPPoE. If invalid, only IPv4 is served. The first /56
	// contains the networks of the links, and each network is advertised on its link. Each subscriber is
	// delegated another /56 (RFC 8415 §6.3).
	IPv6 netip.Prefix `json:"ipv6,omitzero"`
	// User is the name with which a PPPoE subscriber must authenticate by PAP or CHAP. The password is sent
	// in a separate message as a secret. If User is "", no authentication is required.
	User string `json:"user,omitempty"`
	// Force makes the provider serve even on a device that is shared, for example because the default route
	// of the machine uses it.
	Force bool `json:"force,omitempty"`
}

// Check returns an error if a is invalid. It is needed because an Access may come from another user's
// controller.
func (a Access) Check() error {
	switch {
	case !slices.Contains(Accesses(), a.Kind):
		return fmt.Errorf("access %q: want one of %s", a.Kind, strings.Join(Accesses(), ", "))
	case !deviceLike(a.Device):
		return fmt.Errorf("access: %q is no device", a.Device)
	case !a.IPv6.IsValid():
		return nil
	case !a.IPv6.Addr().Is6() || a.IPv6 != a.IPv6.Masked() || a.IPv6.Bits() >= DelegatedBits:
		return fmt.Errorf("access: %s is no block of IPv6 networks of /%d", a.IPv6, DelegatedBits)
	case a.Kind == Static:
		return fmt.Errorf("access: IPv6 by %s", a.Kind)
	}
	return nil
}

// DelegatedBits is the length of the prefix that is delegated to each subscriber (RIPE-690 §4.2.3).
const DelegatedBits = 56

// Link returns the IPv6 address of the provider, with the prefix length of the port's link. It returns the
// zero Prefix if IPv6 is not served.
func (a Access) Link() netip.Prefix {
	if !a.IPv6.IsValid() {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(a.IPv6.Addr().Next(), 64)
}

// ProviderAddress is the default address of the provider on a port that belongs to the lab. It is in the
// block reserved for benchmarking (RFC 2544).
const ProviderAddress = "198.18.64.1/24"

// Provider returns the Access of a provider on a port that belongs to the lab. DHCP and PPPoE include IPv6,
// with networks from the block reserved for benchmarking (RFC 5180).
func Provider(kind, device string) Access {
	a := Access{Kind: kind, Device: device, Addresses: []netip.Prefix{netip.MustParsePrefix(ProviderAddress)}}
	if kind != Static {
		a.IPv6 = netip.MustParsePrefix("2001:2:0:4000::/50")
	}
	return a
}

// Own returns the addresses of the provider on a port that belongs to the lab, the IPv4 address first.
func (a Access) Own() (out []netip.Addr) {
	for _, p := range append(slices.Clone(a.Addresses), a.Link()) {
		if p.IsValid() {
			out = append(out, p.Addr())
		}
	}
	return out
}

// SessionDevice returns the device name for the n-th PPPoE session on a port, truncated to fit IFNAMSIZ.
func SessionDevice(port string, n int) string {
	name := "ppp-" + port
	if n > 1 {
		name = fmt.Sprintf("ppp%d-%s", n, port)
	}
	return name[:min(len(name), 15)]
}

// WAN sets how the first router obtains its WAN address from the next node, which emulates the provider. It
// is set at both ends of that link, first at the provider's end. The ends run as companions, which undo their
// changes when they exit, so there is nothing to read or restore. On all nodes, the knob drops learnt path
// MTUs before and after the change.
func WAN() Knob {
	kinds := words(Accesses()...)
	kinds.same = func(State, State) bool { return true }
	return wanKnob{&kernelKnob[State]{
		declared: declared{factor.Declaration{
			Policy: true,
			Name:   string(factor.WAN),
			Doc: "how the router gets its WAN address from the provider: set by hand (static), by DHCP, or " +
				"through a PPPoE session, which then carries the traffic",
			Levels:  Accesses(),
			Target:  factor.WANLink,
			Refuses: factor.NoWAN,
			Value: func(level string) string {
				if level == Static {
					return ""
				}
				return level
			},
			Without: without(Static, "with a static WAN"),
			Long:    func(level string) string { return "WAN by " + level },
		}},
		spelling: kinds,
		read:     func(Place) (State, error) { return Static, nil },
		apply:    func(Place, State) error { return forgetPathMTUs() },
		check: func(p Place, s State) error {
			if s != PPPoE || p.Port == "" {
				return nil
			}

			err := kernel.ProbePPPoE()
			if err == nil {
				_, err = FindPPPD()
			}

			return err
		},
	}}
}

// OwnLinks is implemented by knobs that work only on links that belong to the lab.
type OwnLinks interface{ OwnLinks() bool }

type wanKnob struct{ *kernelKnob[State] }

func (wanKnob) OwnLinks() bool { return true }

func (wanKnob) Companions(p Place, s State) []Companion {
	if s == Static || p.Port == "" {
		return nil
	}

	verb := VerbServe
	if p.Port == p.WAN {
		verb = VerbJoin
	}

	return []Companion{{Verb: verb, Task: Access{Kind: s, Device: p.Port}}}
}

// PPPD holds the paths of pppd and its PPPoE plugin. With the plugin, the kernel itself processes the packets
// of the session.
type PPPD struct{ Program, Plugin string }

// FindPPPD looks for pppd and its plugin, which is pppoe.so or rp-pppoe.so, in the directories where
// distributions install them.
func FindPPPD() (PPPD, error) {
	program := firstFile("/usr/sbin/pppd", "/sbin/pppd", "/usr/bin/pppd", "/bin/pppd")
	plugin := firstFile("/usr/lib/pppd/*/*pppoe.so", "/usr/lib64/pppd/*/*pppoe.so",
		"/usr/lib/*/pppd/*/*pppoe.so")
	if program == "" || plugin == "" {
		return PPPD{}, check.WithHint(cannot("pppd with its plugin for PPPoE is not installed"),
			"install the package ppp")
	}
	return PPPD{program, plugin}, nil
}

// firstFile returns the first file that matches one of the patterns, or "".
func firstFile(patterns ...string) string {
	for _, pattern := range patterns {
		found, _ := filepath.Glob(pattern) // the error is nil, because the pattern is valid
		if len(found) > 0 {
			return found[0]
		}
	}
	return ""
}
