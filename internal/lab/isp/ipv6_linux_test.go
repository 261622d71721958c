package isp

import (
	"bytes"
	"encoding/hex"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

var block = netip.MustParsePrefix("2001:2:0:4000::/50")

func newBindings() *bindings {
	return &bindings{
		block: block,
		link:  netip.MustParsePrefix("2001:2:0:4000::1/64"),
		of:    map[string]int{},
		own:   &dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: here},
	}
}

func network(text string) *net.IPNet {
	_, n, err := net.ParseCIDR(text)
	if err != nil {
		panic(err)
	}
	return n
}

// hear has the provider answer a message as it comes over the wire.
func hear(t *testing.T, b *bindings, m *dhcpv6.Message) (*dhcpv6.Message, grant) {
	t.Helper()
	got, err := dhcpv6.MessageFromBytes(m.ToBytes())
	must(t, err)
	r, g := b.answer(got)
	if r == nil {
		return nil, g
	}

	if r.TransactionID != m.TransactionID {
		t.Errorf("%s: transaction %s, want %s", r.MessageType, r.TransactionID, m.TransactionID)
	}

	r, err = dhcpv6.MessageFromBytes(r.ToBytes())
	must(t, err)
	return r, g
}

// offered are the addresses and networks of a message, with how long they hold.
func offered(m *dhcpv6.Message) map[string]time.Duration {
	out := map[string]time.Duration{}
	if m == nil {
		return out
	}

	for _, ia := range m.Options.IANA() {
		for _, a := range ia.Options.Addresses() {
			out[a.IPv6Addr.String()] = a.ValidLifetime
		}

		s := ia.Options.Status()
		if s != nil {
			out[s.StatusCode.String()] = 0
		}
	}

	for _, ia := range m.Options.IAPD() {
		for _, p := range ia.Options.Prefixes() {
			out[p.Prefix.String()] = p.ValidLifetime
		}

		s := ia.Options.Status()
		if s != nil {
			out[s.StatusCode.String()] = 0
		}
	}

	return out
}

func solicit(t *testing.T, mac net.HardwareAddr, more ...dhcpv6.Modifier) *dhcpv6.Message {
	t.Helper()
	m, err := dhcpv6.NewSolicit(mac, append([]dhcpv6.Modifier{dhcpv6.WithIAPD([4]byte{1}),
		dhcpv6.WithClientID(&dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: mac})}, more...)...)
	must(t, err)
	return m
}

// TestDHCPv6 is a subscriber's life, by the messages of a client's library.
func TestDHCPv6(t *testing.T) {
	b := newBindings()
	first := map[string]time.Duration{"2001:2:0:4000::2": leaseTime, "2001:2:0:4100::/56": leaseTime}
	given := grant{
		addr:    netip.MustParseAddr("2001:2:0:4000::2"),
		network: netip.MustParsePrefix("2001:2:0:4100::/56"),
	}
	check := func(what string, m *dhcpv6.Message, kind dhcpv6.MessageType, want map[string]time.Duration,
		wants grant) *dhcpv6.Message {
		t.Helper()
		r, g := hear(t, b, m)
		if r == nil || r.MessageType != kind {
			t.Fatalf("%s: got %v, want %s", what, r, kind)
		}

		expect.Same(t, what, want, offered(r))
		if g != wants {
			t.Errorf("%s: grants %+v, want %+v", what, g, wants)
		}

		return r
	}
	offer := check("solicit", solicit(t, there), dhcpv6.MessageTypeAdvertise, first, grant{})
	dns := offer.Options.DNS()
	if len(dns) != 1 || dns[0].String() != "2001:2:0:4000::1" {
		t.Errorf("DNS %v, want the provider", dns)
	}

	request, err := dhcpv6.NewRequestFromAdvertise(offer)
	must(t, err)
	check("request", request, dhcpv6.MessageTypeReply, first, given)
	other := map[string]time.Duration{"2001:2:0:4000::3": leaseTime, "2001:2:0:4200::/56": leaseTime}
	quick := check("rapid commit", solicit(t, net.HardwareAddr{2, 0, 0, 0, 0, 3}, dhcpv6.WithRapidCommit),
		dhcpv6.MessageTypeReply, other, grant{
			addr:    netip.MustParseAddr("2001:2:0:4000::3"),
			network: netip.MustParsePrefix("2001:2:0:4200::/56"),
		})
	if quick.GetOneOption(dhcpv6.OptionRapidCommit) == nil {
		t.Error("rapid commit: the reply does not say so (RFC 8415 §18.3.1)")
	}

	renew := *request
	renew.MessageType = dhcpv6.MessageTypeRenew
	check("renew", &renew, dhcpv6.MessageTypeReply, first, given)
	stale := solicit(t, there, dhcpv6.WithIANA(dhcpv6.OptIAAddress{
		IPv6Addr:      net.ParseIP("2001:db8::9"),
		ValidLifetime: time.Hour,
	}), dhcpv6.WithIAPD([4]byte{1}, &dhcpv6.OptIAPrefix{
		Prefix:        network("2001:db8:1::/56"),
		ValidLifetime: time.Hour,
	}))
	stale.MessageType = dhcpv6.MessageTypeRebind
	check("rebind of what another gave", stale, dhcpv6.MessageTypeReply, map[string]time.Duration{
		"2001:2:0:4000::2": leaseTime, "2001:2:0:4100::/56": leaseTime, "2001:db8::9": 0,
		"2001:db8:1::/56": 0}, given)

	release := *request
	release.MessageType = dhcpv6.MessageTypeRelease
	released := check("release", &release, dhcpv6.MessageTypeReply, map[string]time.Duration{},
		grant{network: given.network, returned: true})
	s := released.Options.Status()
	if s == nil || s.StatusCode != iana.StatusSuccess {
		t.Errorf("release: status %v, want success", s)
	}

	twice := solicit(t, there)
	twice.AddOption(&dhcpv6.OptIANA{IaId: [4]byte{9}})
	twice.AddOption(&dhcpv6.OptIAPD{IaId: [4]byte{9}})
	check("two of each", twice, dhcpv6.MessageTypeAdvertise, map[string]time.Duration{
		"2001:2:0:4000::2": leaseTime, "2001:2:0:4100::/56": leaseTime, "NoAddrsAvail": 0,
		"NoPrefixAvail": 0}, grant{})

	inform := &dhcpv6.Message{MessageType: dhcpv6.MessageTypeInformationRequest}
	check("information request", inform, dhcpv6.MessageTypeReply, map[string]time.Duration{}, grant{})
	for at, want := range map[string]iana.StatusCode{"2001:2:0:4000::2": iana.StatusSuccess,
		"2001:db8::9": iana.StatusNotOnLink} {
		m := solicit(t, there, dhcpv6.WithIANA(dhcpv6.OptIAAddress{IPv6Addr: net.ParseIP(at)}))
		m.MessageType = dhcpv6.MessageTypeConfirm
		r, _ := hear(t, b, m)
		if r == nil || r.Options.Status() == nil || r.Options.Status().StatusCode != want {
			t.Errorf("confirm %s: got %v, want %s", at, r, want)
		}
	}
}

func TestDHCPv6SaysNothing(t *testing.T) {
	elsewhere := dhcpv6.WithServerID(&dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: there})
	own := dhcpv6.WithServerID(newBindings().own)
	for name, m := range map[string]*dhcpv6.Message{
		"solicit of one server":      solicit(t, there, own),
		"request without server":     {MessageType: dhcpv6.MessageTypeRequest},
		"an advertisement":           {MessageType: dhcpv6.MessageTypeAdvertise},
		"a solicit without a client": {MessageType: dhcpv6.MessageTypeSolicit},
		"too long an identifier": solicit(t, there, dhcpv6.WithClientID(&dhcpv6.DUIDOpaque{
			Type: 9,
			Data: make([]byte, maxDUID),
		})),
		"confirmation of nothing": {
			MessageType: dhcpv6.MessageTypeConfirm,
			Options: solicit(t,
				there).Options,
		},
		"request to another": {
			MessageType: dhcpv6.MessageTypeRequest,
			Options: solicit(t, there,
				elsewhere).Options,
		},
		"release to another": {
			MessageType: dhcpv6.MessageTypeRelease,
			Options: solicit(t, there,
				elsewhere).Options,
		},
	} {
		b := newBindings()
		r, g := hear(t, b, m)
		if r != nil || g != (grant{}) || len(b.of) > 0 {
			t.Errorf("%s: got %v and %+v, want no answer", name, r, g)
		}
	}
}

// TestSessionOverIPv6: the only subscriber of a link has the same, whoever it says it is.
func TestSessionOverIPv6(t *testing.T) {
	b := newBindings()
	b.of[""] = 2
	for i := range 3 {
		_, g := hear(t, b, solicit(t, net.HardwareAddr{2, 0, 0, 0, 0, byte(i)}, dhcpv6.WithRapidCommit))
		want := netip.MustParsePrefix("2001:2:0:4200::/56")
		if g.network != want || len(b.of) != 1 {
			t.Errorf("subscriber %d: got %s, want %s; %d are known", i, g.network, want, len(b.of))
		}
	}
}

// TestSubscribersOverIPv6 are no more than there are networks.
func TestSubscribersOverIPv6(t *testing.T) {
	b := newBindings()
	for i := range maxLeases + 10 {
		hear(t, b, solicit(t, net.HardwareAddr{2, 0, 0, 0, 1, byte(i)}))
	}

	if len(b.of) != 63 {
		t.Errorf("%d have got a network of %s, want 63", len(b.of), block)
	}

	r, _ := hear(t, b, solicit(t, there))
	expect.Same(t, "one more", map[string]time.Duration{"NoAddrsAvail": 0, "NoPrefixAvail": 0}, offered(r))
}

func TestDelegation(t *testing.T) {
	for n, want := range map[int]string{1: "2001:2:0:4100::/56", 63: "2001:2:0:7f00::/56", 64: ""} {
		got, ok := delegation(block, n)
		if ok != (want != "") || ok && got.String() != want {
			t.Errorf("%d: got %s, %t, want %q", n, got, ok, want)
		}
	}
}

// TestAdvertisement compares with bytes that are put together by RFC 4861 §4.2, §4.6 and RFC 8106 §5.1.
func TestAdvertisement(t *testing.T) {
	const link = "20010002000040000000000000000000"
	session := hex.EncodeToString(advertisement(newBindings().link, nil, 0))
	if want := "8600000040c00000" + "0000000000000000" + "030440c0"; !strings.HasPrefix(session, want) {
		t.Errorf("in a session: got\n%s, want\n%s…", session, want)
	}

	for lifetime, want := range map[time.Duration]string{
		routerLifetime: "8600000040c00708" + "0000000000000000" + "0101020000000001" +
			"030440c00000a8c00000a8c000000000" + link + "1903000000000708" + link[:31] + "1",
		0: "8600000040c00000" + "0000000000000000" + "0101020000000001" +
			"030440c0000000000000000000000000" + link + "1903000000000000" + link[:31] + "1",
	} {
		got := advertisement(newBindings().link, here, lifetime)
		if hex.EncodeToString(got) != want {
			t.Errorf("lifetime %s: got\n%x, want\n%s", lifetime, got, want)
		}
	}
}

func TestSolicits(t *testing.T) {
	for text, want := range map[string]bool{
		"8500000000000000":                 true,
		"85000000000000000101020000000001": true,
		"850000000000000001010200000000":   false, // cut short
		"85000000000000000100020000000001": false, // an option of no length
		"850000000000000001":               false,
		"8501000000000000":                 false, // another code
		"8600000000000000":                 false, // an advertisement
		"850000000000":                     false,
		"":                                 false,
	} {
		m, err := hex.DecodeString(text)
		must(t, err)
		got := solicits(m)
		if got != want {
			t.Errorf("%s: %t, want %t", text, got, want)
		}
	}
}

func FuzzSolicits(f *testing.F) {
	f.Add([]byte{133, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 0, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, m []byte) {
		if solicits(m) && (len(m)%8 != 0 || m[0] != 133) {
			t.Errorf("%x is taken for a solicitation", m)
		}
	})
}

// FuzzDHCPv6: whatever is heard, the answer can be read, and is for the one who asked.
func FuzzDHCPv6(f *testing.F) {
	m, err := dhcpv6.NewSolicit(there, dhcpv6.WithIAPD([4]byte{1}))
	must(f, err)
	f.Add(m.ToBytes())
	m.MessageType = dhcpv6.MessageTypeRebind
	f.Add(m.ToBytes())
	m.MessageType = dhcpv6.MessageTypeRelease
	m.AddOption(dhcpv6.OptServerID(newBindings().own))
	f.Add(m.ToBytes())
	f.Add([]byte{11, 1, 2, 3})
	f.Fuzz(func(t *testing.T, frame []byte) {
		m, err := dhcpv6.MessageFromBytes(frame)
		if err != nil {
			return
		}

		b := newBindings()
		r, _ := b.answer(m)
		if r == nil {
			return
		}

		again, err := dhcpv6.MessageFromBytes(r.ToBytes())
		if err != nil || !bytes.Equal(frame[1:4], again.TransactionID[:]) || len(b.of) > 1 {
			t.Errorf("%x: answered by %x, %v; %d subscribers", frame, r.ToBytes(), err, len(b.of))
		}
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
