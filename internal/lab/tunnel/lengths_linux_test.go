package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/overhead"
)

// cbcKinds are tunnels that no plan has: OpenVPN's cipher of old.
func cbcKinds() []Tunnel {
	return []Tunnel{openVPNKind("openvpn-cbc-sha1", "AES-256-CBC", false),
		openVPNKind("openvpn-tcp-cbc-sha1", "AES-256-CBC", true)}
}

// lengthsRequest asks for datagrams inside a tunnel and what leaves the device outside.
type lengthsRequest struct {
	From, To netip.Addr // inner
	Sizes    []int      // L3 lengths of the datagrams
	Awaited  []int      // what of each is looked for outside
}

// copies gives how many datagrams of each size are sent: what a tunnel sends for itself is told from them by
// their number.
const copies = 3

// A packet leaves within patience of its sending. Each is waited for, because those that wait together are
// joined (GSO, TCP), and what leaves besides, such as a report of multicast groups, is passed over.
const patience = 200 * time.Millisecond

// testLengths returns, for each size, how many packets of which L3 length left the device wan.
func testLengths(r lengthsRequest) ([]map[int]int, error) {
	const everything = 0x0003 // ETH_P_ALL
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, everything<<8)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	wan, err := net.InterfaceByName("wan")
	if err != nil {
		return nil, err
	}

	at := &unix.SockaddrLinklayer{Protocol: everything << 8, Ifindex: wan.Index}
	if err := errors.Join(unix.Bind(fd, at),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO,
			new(unix.NsecToTimeval(int64(patience))))); err != nil {
		return nil, err
	}

	c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(r.From, 0)),
		net.UDPAddrFromAddrPort(netip.AddrPortFrom(r.To, 9)))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	header := overhead.IPv4Header + overhead.UDPHeader
	if r.To.Is6() {
		header = overhead.IPv6Header + overhead.UDPHeader
	}

	var out []map[int]int
	b := make([]byte, 1<<16)
	for i, size := range r.Sizes {
		seen := map[int]int{}
		for range copies {
			_, err := c.Write(make([]byte, size-header))
			// That is of one before, and nothing was sent.
			for try := 0; try < 10 && errors.Is(err, unix.ECONNREFUSED); try++ {
				_, err = c.Write(make([]byte, size-header))
			}

			if err != nil {
				return nil, fmt.Errorf("send %d bytes: %w", size, err)
			}

			for n := 1; n > 0; {
				if n, err = leaving(fd, b); err != nil {
					return nil, err
				}

				if seen[n]++; n == r.Awaited[i] {
					break
				}
			}
		}

		out = append(out, seen)
	}

	return out, nil
}

// leaving is the L3 length of the next packet that leaves the socket's device; 0 if none does.
func leaving(fd int, b []byte) (int, error) {
	for {
		n, from, err := unix.Recvfrom(fd, b, unix.MSG_TRUNC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return 0, nil
		case err != nil:
			return 0, err
		}

		if l, ok := from.(*unix.SockaddrLinklayer); ok && l.Pkttype == unix.PACKET_OUTGOING {
			return n, nil
		}
	}
}

// lengthSizes are lengths of inner packets for an MTU: its ends, and every remainder that a block of 16
// leaves.
func lengthSizes(mtu int) (sizes []int) {
	for n := mtu - 17; n <= mtu; n++ {
		sizes = append(sizes, n)
	}
	return append(sizes, 100, 111, 112, 113, mtu/2)
}

// The addresses of both ends outside, and the MTUs inside, at which lengths are measured.
var (
	outerAddresses = map[overhead.IP][2]string{overhead.V4: {"198.18.0.1", "198.18.0.2"},
		overhead.V6: {"2001:2::1", "2001:2::2"}}
	innerMTUs = [...]int{576, 1280, 1420, 1500, 9000}
)

// TestLengths: what leaves the device outside is byte for byte as long as the formulas say, of every tunnel
// that this kernel has, at MTUs from 576 to 9000.
func TestLengths(t *testing.T) {
	apart.Needs(t, "ip")
	for _, tun := range append(All(), cbcKinds()...) {
		for v, outer := range outerAddresses {
			t.Run(fmt.Sprint(tun.Name(), "/", v), func(t *testing.T) {
				t.Parallel()
				near, far := newPair(t)
				a, b := ends(near, far, outer)
				c := tun.Check(t.Context(), a, b)
				if c.State != check.Yes {
					t.Skip("skip: " + c.Reason)
				}

				inIP(t, near, far, "link", "set", "wan", "mtu", "9200")
				formula, ok := overhead.Named(tun.Name())
				if !ok {
					t.Fatal("no formula is known")
				}

				formula.OuterIP = v
				for _, mtu := range innerMTUs {
					inner, other := a, b
					if mtu < 1280 { // which IPv6 does not take
						inner.Inner = a.Inner[:1]
						inner.Routes = a.Routes[:1]
						other.Inner = b.Inner[:1]
						other.Routes = b.Routes[:1]
					}

					p, err := tun.Up(t.Context(), inner, other, Spec{Device: "wg7", MTU: mtu})
					must(t, err)
					formula.MTU = mtu
					lengthsAgree(t, near, inner, other, formula, mtu)
					must(t, p.Down(context.Background()))
				}
			})
		}
	}
}

// TestLengthsOfPlainTunnels is TestLengths of encapsulations that no plan has.
func TestLengthsOfPlainTunnels(t *testing.T) {
	apart.Needs(t, "ip")
	for _, tt := range []struct {
		name string
		v    overhead.IP
		link string
	}{
		{"vxlan", overhead.V4, "vxlan id 7 dstport 4789 noudpcsum local %s remote %s dev wan"},
		{"vxlan", overhead.V6, "vxlan id 7 dstport 4789 local %s remote %s dev wan"},
		{"gre", overhead.V4, "gre local %s remote %s ttl 64"},
		{"gre", overhead.V6, "ip6gre local %s remote %s encaplimit none"},
		{"ipip", overhead.V4, "ipip local %s remote %s ttl 64"},
		{"ipip", overhead.V6, "ip6tnl local %s remote %s encaplimit none mode any"},
	} {
		t.Run(fmt.Sprint(tt.name, "/", tt.v), func(t *testing.T) {
			t.Parallel()
			near, far := newPair(t)
			a, b := ends(near, far, outerAddresses[tt.v])
			inIP(t, near, far, "link", "set", "wan", "mtu", "9200")
			for i, n := range []*testNode{near, far} {
				local := outerAddresses[tt.v][i]
				remote := outerAddresses[tt.v][1-i]
				words := strings.Fields(fmt.Sprintf(tt.link, local, remote))
				out, err := ipIn(n, append([]string{"link", "add", "wg7", "type"}, words...)...)
				if err != nil {
					t.Skipf("skip: this kernel has it not: %s", out)
				}

				addresses := [][]netip.Prefix{a.Inner, b.Inner}[i][:1]
				ask0[bool](t, n, "test/address", addressRequest{"wg7", addresses})
			}

			formula, _ := overhead.Named(tt.name)
			formula.OuterIP = tt.v
			for _, mtu := range innerMTUs {
				inIP(t, near, far, "link", "set", "wg7", "mtu", fmt.Sprint(mtu))
				a.Inner, b.Inner = a.Inner[:1], b.Inner[:1]
				lengthsAgree(t, near, a, b, formula, mtu)
			}
		})
	}
}

// TestLengthsOfStack is TestLengths of a tunnel that another one carries.
func TestLengthsOfStack(t *testing.T) {
	apart.Needs(t, "ip")
	near, far := newPair(t)
	a, b := ends(near, far, [2]string{"192.0.2.1", "192.0.2.2"})
	inIP(t, near, far, "link", "set", "wan", "mtu", "9200")
	for i, n := range []*testNode{near, far} {
		out, err := ipIn(n, "link", "add", "vx", "mtu", "9100", "type", "vxlan", "id", "7", "dstport", "4789",
			"local", fmt.Sprint("198.18.0.", i+1), "remote", fmt.Sprint("198.18.0.", 2-i), "dev", "wan")
		if err != nil {
			t.Skipf("skip: this kernel has it not: %s", out)
		}

		ask0[bool](t, n, "test/address", addressRequest{"vx",
			[]netip.Prefix{netip.PrefixFrom([]End{a, b}[i].Outer, 24)}})
	}

	formula, _ := overhead.Stacked("wireguard+vxlan", overhead.V4)
	for _, mtu := range []int{1280, 1420, 9000} {
		p, err := WireGuardUserspace().Up(t.Context(), a, b, Spec{Device: "wg7", MTU: mtu})
		must(t, err)
		formula.MTU = mtu
		lengthsAgree(t, near, a, b, formula, mtu)
		must(t, p.Down(context.Background()))
	}
}

// TestLengthsInsideWireGuard is TestLengths of what WireGuard carries, at MTUs of its device that are no
// multiples of 16.
func TestLengthsInsideWireGuard(t *testing.T) {
	apart.Needs(t, "ip")
	for name, link := range map[string]string{
		"gre":   "gre local %s remote %s ttl 64",
		"vxlan": "vxlan id 7 dstport 4789 local %s remote %s",
	} {
		for _, underlay := range []int{1492, 1480} {
			t.Run(fmt.Sprint(name, "/", underlay), func(t *testing.T) {
				near, far := newPair(t)
				a, b := ends(near, far, outerAddresses[overhead.V4])
				inIP(t, near, far, "link", "set", "wan", "mtu", fmt.Sprint(underlay))
				formula, _ := overhead.Stacked(name+"+wireguard", overhead.V4)
				formula = formula.Over(underlay)
				formula.MTU = formula.FitMTU(underlay)
				carrier := Spec{Device: "wg7", MTU: formula.Via.MTU}
				p, err := WireGuardUserspace().Up(t.Context(), a, b, carrier)
				must(t, err)
				local := a.Inner[0].Addr()
				remote := b.Inner[0].Addr()
				for i, n := range []*testNode{near, far} {
					words := []string{"link", "add", "in7", "mtu", fmt.Sprint(formula.MTU), "type"}
					words = append(words, strings.Fields(fmt.Sprintf(link, local, remote))...)
					local, remote = remote, local
					out, err := ipIn(n, words...)
					if err != nil {
						t.Skipf("skip: this kernel has it not: %s", out)
					}

					end := []*End{&a, &b}[i]
					end.Inner = []netip.Prefix{
						netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}), 24),
					}
					ask0[bool](t, n, "test/address", addressRequest{"in7", end.Inner})
				}

				lengthsAgree(t, near, a, b, formula, formula.MTU)
				must(t, p.Down(context.Background()))
			})
		}
	}
}

// TestLengthsOfESP is TestLengths of every suite, with NAT traversal and without, by ip xfrm.
func TestLengthsOfESP(t *testing.T) {
	apart.Needs(t, "ip")
	const aead = "aead rfc4106(gcm(aes)) 0x0102030405060708090a0b0c0d0e0f1011121314 128"
	cbc := func(hash string, key, bits int) string {
		return fmt.Sprintf("enc cbc(aes) 0x0102030405060708090a0b0c0d0e0f10 auth-trunc hmac(%s) 0x%s %d",
			hash, strings.Repeat("5a", key), bits)
	}
	for _, tt := range []struct{ name, algorithm string }{
		{"esp-aead", aead}, {"esp-cbc-sha1", cbc("sha1", 20, 96)}, {"esp-cbc-sha256", cbc("sha256", 32, 128)},
		{"esp-cbc-sha384", cbc("sha384", 48, 192)}, {"esp-cbc-sha512", cbc("sha512", 64, 256)},
	} {
		for _, name := range []string{tt.name, tt.name + "-natt"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				near, far, a, b := newEnds(t)
				inIP(t, near, far, "link", "set", "wan", "mtu", "9200")
				a.Inner, b.Inner = a.Inner[:1], b.Inner[:1]
				for i, n := range []*testNode{near, far} {
					ask0[bool](t, n, "test/address", addressRequest{"lo",
						[][]netip.Prefix{a.Inner, b.Inner}[i]})
				}

				words := strings.Fields("xfrm state add src 198.18.0.1 dst 198.18.0.2 proto esp spi 0x1234 " +
					"mode tunnel " + tt.algorithm)
				if strings.HasSuffix(name, "natt") {
					words = append(words, "encap", "espinudp", "4500", "4500", "0.0.0.0")
				}

				policy := strings.Fields("xfrm policy add src 198.18.9.1/32 dst 198.18.9.2/32 dir out tmpl " +
					"src 198.18.0.1 dst 198.18.0.2 proto esp mode tunnel")
				for _, w := range [][]string{words, policy, {"route", "add", "198.18.9.2/32", "dev", "wan",
					"src", "198.18.9.1"}} {
					if out, err := ipIn(near, w...); err != nil {
						t.Skipf("skip: this kernel has it not: %s", out)
					}
				}

				formula, _ := overhead.Named(name)
				for _, mtu := range innerMTUs {
					lengthsAgree(t, near, a, b, formula, mtu)
				}
			})
		}
	}
}

// lengthsAgree compares what crosses with a formula, for each version of IP inside.
func lengthsAgree(t *testing.T, near *testNode, a, b End, formula overhead.Tunnel, mtu int) {
	t.Helper()
	for i := range a.Inner {
		sizes := lengthSizes(mtu)
		outer := []int{}
		for _, size := range sizes {
			outer = append(outer, formula.Outer(size))
		}

		from := a.Inner[i].Addr()
		to := b.Inner[i].Addr()
		// By the first, neighbours are found.
		ask0[[]map[int]int](t, near, "test/lengths", lengthsRequest{from, to, sizes[:1], outer[:1]})
		got := ask0[[]map[int]int](t, near, "test/lengths", lengthsRequest{from, to, sizes, outer})
		for j, size := range sizes {
			want := outer[j]
			if got[j][want] < copies {
				t.Errorf("mtu %d, %d packets of %d bytes to %s: packets outside by length are %v, "+
					"want of %d", mtu, copies, size, to, got[j], want)
			}
		}
	}
}

// ipIn runs ip in a node's namespace.
func ipIn(n *testNode, words ...string) (string, error) {
	out, err := exec.Command("nsenter", append([]string{"-t", fmt.Sprint(n.pid), "-n", "ip"}, words...)...).
		CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func inIP(t *testing.T, near, far *testNode, words ...string) {
	t.Helper()
	for _, n := range []*testNode{near, far} {
		if out, err := ipIn(n, words...); err != nil {
			t.Fatalf("ip %s at %s: %v: %s", strings.Join(words, " "), n.name, err, out)
		}
	}
}
