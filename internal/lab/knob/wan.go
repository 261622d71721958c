package knob

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// Kinds of access that a provider gives, see package isp.
const (
	Static = factor.StaticWAN // the subscriber is told its address by hand
	DHCP   = "dhcp"           // RFC 2131
	PPPoE  = factor.PPPoE     // RFC 2516
)

// Accesses lists them.
func Accesses() []string { return []string{Static, DHCP, PPPoE} }

// Verbs of the provider's and of the subscriber's side.
const (
	VerbServe = "isp/serve"
	VerbJoin  = "isp/join"
)

// Access describes what is offered, or joined, at a port. The provider has its addresses there, or is given
// them for the time; subscribers get the first others of its network.
type Access struct {
	Kind   string `json:"kind"`
	Device string `json:"device"`
	// Addresses are held on the device while it is served; with none it has its own.
	Addresses []netip.Prefix `json:"addresses,omitempty"`
	// IPv6 is a block of networks, with DHCP and PPPoE: the first /56 has those of the links, which are
	// advertised there, and each subscriber is delegated another /56 (RFC 8415 §6.3). None: only IPv4.
	IPv6 netip.Prefix `json:"ipv6,omitzero"`
	// User is whom a subscriber by PPPoE must say it is, by PAP or CHAP with the password that follows as a
	// secret; "" asks nobody.
	User string `json:"user,omitempty"`
	// Force serves also where the machine's default route leads out of the device.
	Force bool `json:"force,omitempty"`
}

// Check validates an access, which may come from somebody else's controller.
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

// DelegatedBits is the length of the prefix that a subscriber is delegated (RIPE-690 §4.2.3).
const DelegatedBits = 56

// Link is the provider's address over IPv6, with the network of the port's link; invalid if there is none.
func (a Access) Link() netip.Prefix {
	if !a.IPv6.IsValid() {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(a.IPv6.Addr().Next(), 64)
}

// ProviderAddress is the address of a provider on a port of its own, unless another is chosen, from the block
// set aside for benchmarking (RFC 2544).
const ProviderAddress = "198.18.64.1/24"

// Provider is the access of a kind that is offered on a port of its own; with DHCP and PPPoE also over
// IPv6, with a block of networks that is set aside for benchmarking (RFC 5180).
func Provider(kind, device string) Access {
	a := Access{Kind: kind, Device: device, Addresses: []netip.Prefix{netip.MustParsePrefix(ProviderAddress)}}
	if kind != Static {
		a.IPv6 = netip.MustParsePrefix("2001:2:0:4000::/50")
	}
	return a
}

// Own are the provider's addresses of its own port, over IPv4 first.
func (a Access) Own() (out []netip.Addr) {
	for _, p := range append(slices.Clone(a.Addresses), a.Link()) {
		if p.IsValid() {
			out = append(out, p.Addr())
		}
	}
	return out
}

// SessionDevice is the name of the device of a port's n-th PPPoE session, within IFNAMSIZ.
func SessionDevice(port string, n int) string {
	name := "ppp-" + port
	if n > 1 {
		name = fmt.Sprintf("ppp%d-%s", n, port)
	}
	return name[:min(len(name), 15)]
}

// WAN sets how the first router gets its WAN from the node beyond, which plays the provider. It is set at
// both ends of that link, first at the provider. Both do their part in processes of their own, which undo it
// when they end: there is nothing to read or to put back. All other nodes forget what they know of the path's
// MTU, before and after.
func WAN() Knob {
	return &wanKnob{declared{factor.Declaration{
		Policy: true,
		Name:   string(factor.WAN),
		Doc: "how the router gets its WAN from the provider: addresses set by hand, DHCP, or a PPPoE " +
			"session, which then carries its traffic",
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
	}}}
}

type wanKnob struct{ declared }

func (k *wanKnob) Parse(text string) (State, error) {
	s, err := words(Accesses()...).parse(text)
	if err != nil {
		err = refuse(k.Name(), text, err)
	}
	return s, err
}

func (*wanKnob) Same(State, State) bool                                 { return true }
func (*wanKnob) Read(context.Context, Place, State) (State, error)      { return Static, nil }
func (*wanKnob) Apply(context.Context, Place, State) error              { return forgetPathMTUs() }
func (*wanKnob) OwnLinks() bool                                         { return true }
func (*wanKnob) Check(_ context.Context, p Place, s State) check.Answer { return checkAccess(p, s) }

// OwnLinks is implemented by knobs that work only at the links of a network that is the lab's own.
type OwnLinks interface{ OwnLinks() bool }

func checkAccess(p Place, s State) check.Answer {
	if s != PPPoE || p.Port == "" {
		return check.OK()
	}

	if err := kernel.ProbePPPoE(); err != nil {
		return answer(err)
	}

	if _, err := FindPPPD(); err != nil {
		return check.Not("%v", err).Hinted("install the package ppp")
	}

	return check.OK()
}

func (*wanKnob) Companions(p Place, s State) []Companion {
	if s == Static || p.Port == "" {
		return nil
	}

	verb := VerbServe
	if p.Port == p.WAN {
		verb = VerbJoin
	}

	return []Companion{{Verb: verb, Task: Access{Kind: string(s), Device: p.Port}}}
}

// PPPD is the PPP daemon and its plugin for PPPoE, with which a session's packets stay in the kernel.
type PPPD struct{ Program, Plugin string }

// FindPPPD looks for them where distributions put them.
func FindPPPD() (p PPPD, err error) {
	for _, file := range []string{"/usr/sbin/pppd", "/sbin/pppd", "/usr/bin/pppd", "/bin/pppd"} {
		if info, err := os.Stat(file); p.Program == "" && err == nil && info.Mode().IsRegular() {
			p.Program = file
		}
	}

	for _, folder := range []string{"/usr/lib/pppd/*", "/usr/lib64/pppd/*", "/usr/lib/*/pppd/*"} {
		for _, name := range []string{"pppoe.so", "rp-pppoe.so"} {
			found, _ := filepath.Glob(filepath.Join(folder, name)) // the pattern is right
			if p.Plugin == "" && len(found) > 0 {
				p.Plugin = found[0]
			}
		}
	}

	if p.Program == "" || p.Plugin == "" {
		return p, errors.Join(errNoPPPD, host.ErrUnsupported)
	}

	return p, nil
}

var errNoPPPD = errors.New("pppd with its plugin for PPPoE is not installed")
