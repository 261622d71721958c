package tunnel

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
	"github.com/chokepoint-lab/chokepoint/internal/overhead"
)

func OpenVPN() Tunnel { return openVPNKinds()[0] }

// TestOpenVPNFragmentsOutside: a full packet inside leaves in as many packets outside, each as long, as the
// arithmetic says.
func TestOpenVPNFragmentsOutside(t *testing.T) {
	near, _, a, b := newEndsFor(t, OpenVPN())
	for _, mtu := range []int{1448, 1500, 6000} {
		p, err := OpenVPN().Up(context.Background(), a, b, Spec{Device: "wg7", MTU: mtu})
		must(t, err)
		parts := overhead.Tunnel{Kind: overhead.OpenVPNUDP}.Fragments(mtu, 1500)
		want := map[int]int{}
		for _, n := range parts {
			want[n] += copies
		}

		full := lengthsRequest{a.Inner[0].Addr(), b.Inner[0].Addr(), []int{mtu}, parts[len(parts)-1:]}
		ask0[[]map[int]int](t, near, "test/lengths", full) // by the first, neighbours are found
		got := ask0[[]map[int]int](t, near, "test/lengths", full)[0]
		maps.DeleteFunc(got, func(n, packets int) bool { return want[n] == 0 }) // of others, or none
		if !maps.Equal(got, want) {
			t.Errorf("mtu %d, %d full packets: packets outside by length are %v, want %v", mtu, copies,
				got, want)
		}

		must(t, p.Down(context.Background()))
	}
}

// TestOpenVPNDiesWithItsNode: a node that is killed takes its openvpn along.
func TestOpenVPNDiesWithItsNode(t *testing.T) {
	near, far, a, b := newEndsFor(t, OpenVPN())
	_, err := OpenVPN().Up(context.Background(), a, b, Spec{})
	must(t, err)
	var spaces []string
	for _, n := range []*testNode{near, far} {
		space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", n.pid))
		must(t, err)
		spaces = append(spaces, space)
		got := programsIn(space)
		if got != 1 {
			t.Errorf("%d openvpn run at %s, want one", got, n.name)
		}
	}

	near.kill()
	far.kill()
	expect.Soon(t, 5*time.Second, "openvpn after its node was killed", 0, func() int {
		return programsIn(spaces[0]) + programsIn(spaces[1])
	})
}

// programsIn counts the openvpn processes in a network namespace.
func programsIn(space string) int {
	n := 0
	all, _ := filepath.Glob("/proc/[0-9]*/comm") // the pattern is well-formed
	for _, comm := range all {
		name, _ := os.ReadFile(comm)
		in, _ := os.Readlink(filepath.Join(filepath.Dir(comm), "ns/net"))
		if strings.TrimSpace(string(name)) == "openvpn" && in == space {
			n++
		}
	}

	return n
}

// TestOpenVPNKeepsItsSecrets: neither what is said, nor arguments, nor environments have the shared secret
// or a private key.
func TestOpenVPNKeepsItsSecrets(t *testing.T) {
	near, far, a, b := newEndsFor(t, OpenVPN())
	args := ""
	text, secret := recordedLaying(t, OpenVPN(), near, far, a, b, func() {
		all, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is well-formed
		for _, file := range all {
			if b, _ := os.ReadFile(file); bytes.Contains(b, []byte("openvpn")) {
				args += string(b) + "\n"
			}
		}
	})
	if !strings.Contains(args, "openvpn\x00--config\x00stdin\x00") {
		t.Errorf("arguments are %q, want those of openvpn among them", args)
	}

	control, err := OpenVPN().(kind).nodeSide.(openVPN).controlKey(secret)
	must(t, err)
	text += args
	for _, form := range append(forms(secret), strings.Split(string(control), "\n")[1]) {
		if strings.Contains(text, form) {
			t.Errorf("a secret is in what was said, as %d characters", len(form))
		}
	}

	if strings.Contains(text, "PRIVATE") {
		t.Error("a private key is in what was said")
	}
}

func TestOpenVPNConfiguration(t *testing.T) {
	me, err := newIdentity()
	must(t, err)
	b, rest := pem.Decode(me.key)
	if b == nil || b.Type != "PRIVATE KEY" || len(rest) > 0 {
		t.Error("the key is not in PEM")
	}

	control, err := OpenVPN().(kind).nodeSide.(openVPN).controlKey(bytes.Repeat([]byte{7}, presharedSize))
	must(t, err)
	if got := bytes.Count(control, []byte("\n")); got != 18 {
		t.Errorf("the control channel's key has %d lines, want 18", got)
	}

	tests := []struct {
		name  string
		near  bool
		outer string
		kind  int
		want  []string
		not   []string
	}{
		{"client over UDP", true, "198.18.0.1", 0, []string{"client", "proto udp4", "remote 198.18.0.9 51823",
			"local 198.18.0.1",
			"lport 51823", "data-ciphers AES-256-GCM", "tun-mtu 6000", "mssfix 0", "disable-dco"},
			[]string{"mode server", "nobind"}},
		{"server over UDP and IPv6", false, "2001:2::1", 1, []string{"mode server", "tls-server",
			"proto udp6", "local 2001:2::1",
			"data-ciphers CHACHA20-POLY1305", "management-client-auth"},
			[]string{"client", "remote 198.18.0.9 51823"}},
		{"client over TCP", true, "198.18.0.1", 2, []string{"proto tcp4-client", "nobind"},
			[]string{"lport 51823"}},
		{"server over TCP and IPv6", false, "2001:2::1", 3, []string{"proto tcp6-server", "lport 51823"},
			[]string{"nobind"}},
	}
	for _, tt := range tests {
		k := openVPNKinds()[tt.kind].(kind).nodeSide.(openVPN)
		r := request{
			Spec:  Spec{Device: "tun3", MTU: 6000, Port: 51823},
			Outer: netip.MustParseAddr(tt.outer),
			Near:  tt.near,
		}
		c := connect{Public: me.fingerprint, Endpoint: netip.MustParseAddrPort("198.18.0.9:51823")}
		got := k.configuration(r, c, me, control)
		lines := strings.Split(string(got), "\n")
		has := map[string]bool{}
		for _, l := range lines {
			has[l] = true
		}

		for _, w := range append(tt.want, "dev tun3", "peer-fingerprint "+me.fingerprint, "</tls-crypt>") {
			if !has[w] {
				t.Errorf("%s: the line %q is missing", tt.name, w)
			}
		}

		for _, w := range tt.not {
			if has[w] {
				t.Errorf("%s: the line %q is there, want it not", tt.name, w)
			}
		}

		if cap(got) != configSize {
			t.Errorf("%s: the configuration outgrew its room of %d bytes", tt.name, configSize)
		}
	}

	me.clear()
	if bytes.Contains(me.key, []byte("PRIVATE")) {
		t.Error("the private key is there after it was overwritten")
	}
}

func TestOpenVPNDefaultMTUFillsTheUnderlay(t *testing.T) {
	for i, want := range [][2]int{{1448, 1428}, {1448, 1428}, {1422, 1402}, {1422, 1402}} {
		k := openVPNKinds()[i].(kind).nodeSide.(openVPN)
		expect.Same(t, k.name, want, [2]int{fitMTU(k.name, false), fitMTU(k.name, true)})
	}
}

func TestClientRoutes(t *testing.T) {
	got := clientRoutes([]netip.Prefix{
		netip.MustParsePrefix("198.18.9.1/32"), netip.MustParsePrefix("198.18.7.5/24"),
		netip.MustParsePrefix("2001:2:0:7::5/64"),
	})
	want := "iroute 198.18.9.1 255.255.255.255\niroute 198.18.7.0 255.255.255.0\niroute-ipv6 " +
		"2001:2:0:7::/64\n"
	diff := cmp.Diff(want, got)
	if diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// Lines of OpenVPN 2.6.14.
func TestOpenVPNConversation(t *testing.T) {
	start := time.Unix(1795247728, 0)
	t.Run("client", func(t *testing.T) {
		c := management{}
		for _, line := range []string{
			">INFO:OpenVPN Management Interface Version 5 -- type 'help' for more info",
			">STATE:1795247728,WAIT,,,,,,", ">STATE:1795247728,AUTH,,,,,,",
			">STATE:1795247728,CONNECTED,SUCCESS,,198.18.0.2,51823,198.18.0.1,51823",
		} {
			answer := c.hear(line, start)
			if answer != "" || c.connected() {
				t.Errorf("%s: answered %q, connected %v, want neither", line, answer, c.connected())
			}
		}

		c.hear(">LOG:1795247728,,Data Channel: cipher 'AES-256-GCM', peer-id: 0", start)
		if !c.connected() || c.cipher != "AES-256-GCM" || !c.since.Equal(start) {
			t.Errorf("got %+v, want it connected with AES-256-GCM", c)
		}

		c.hear(">LOG:1795247728,W,WARNING: something", start)
		c.hear(">STATE:1795247730,RECONNECTING,tls-error,,,,,", start)
		if c.connected() || c.words() != ": it says: WARNING: something" {
			t.Errorf("got %+v, want it unconnected with a complaint", c)
		}

		expect.Same(t, "after a restart", "hold release\n", c.hear(">HOLD:Waiting for hold release:1", start))
	})
	t.Run("server", func(t *testing.T) {
		c := management{server: true, allowed: []netip.Prefix{netip.MustParsePrefix("198.18.9.1/32")}}
		c.hear(">STATE:1795247727,CONNECTED,SUCCESS,,,,198.18.0.2,51823", start)
		if !c.ready || c.connected() {
			t.Errorf("got %+v, want it listening and not connected", c)
		}

		want := "client-auth 0 1\niroute 198.18.9.1 255.255.255.255\nEND\n"
		if got := c.hear(">CLIENT:CONNECT,0,1", start); got != want {
			t.Errorf("answered %q, want %q", got, want)
		}

		if got := c.hear(">CLIENT:REAUTH,0,2", start); got != "client-auth-nt 0 2\n" {
			t.Errorf("answered %q to a renewal", got)
		}

		if got := c.hear(">CLIENT:ESTABLISHED,0", start); got != "status 3\n" {
			t.Errorf("answered %q, want a question", got)
		}

		for line := range strings.Lines("TITLE\tOpenVPN " +
			"2.6.14\nCLIENT_LIST\tchokepoint\t198.18.0.1:51823\t\t\t1386\t1389\t2026-11-21 " +
			"07:55:28\t1795247728\tUNDEF\t0\t0\tCHACHA20-POLY1305\nGLOBAL_STATS\tdco_enabled\t0\nEND\n") {
			c.hear(strings.TrimSuffix(line, "\n"), start)
		}

		if !c.connected() || c.cipher != "CHACHA20-POLY1305" || c.offloaded {
			t.Errorf("got %+v, want it connected with ChaCha20", c)
		}

		c.hear("GLOBAL_STATS\tdco_enabled\t1", start)
		c.hear(">CLIENT:DISCONNECT,0", start)
		if c.connected() || !c.offloaded {
			t.Errorf("got %+v, want it offloaded and unconnected", c)
		}
	})
}

func TestCheckVersion(t *testing.T) {
	tests := []struct {
		text string
		want check.State
	}{
		{"OpenVPN 2.6.14 x86_64-pc-linux-gnu [SSL (OpenSSL)]\nlibrary versions: …\n", check.Yes},
		{"OpenVPN 2.7_rc1 x86_64\n", check.Yes},
		{"OpenVPN 3.0 x\n", check.Yes},
		{"OpenVPN 2.5.9 x\n", check.No},
		{"OpenVPN 2.99999999999999999999 x\n", check.Unknown},
		{"something else", check.Unknown},
	}
	for _, tt := range tests {
		got := checkVersion(tt.text)
		if got.State != tt.want {
			t.Errorf("%q: got %+v, want %v", tt.text, got, tt.want)
		}
	}
}

// Whatever the interface says: no panic, and only whole lines as answers, of which none is a command of the
// other side's making.
func FuzzOpenVPNConversation(f *testing.F) {
	f.Add(true, ">CLIENT:CONNECT,0,1")
	f.Add(false, ">STATE:1,CONNECTED")
	f.Add(true, "CLIENT_LIST\t")
	f.Fuzz(func(t *testing.T, server bool, line string) {
		c := management{server: server}
		line, _, _ = strings.Cut(line, "\n") // lines have none
		answer := c.hear(line, time.Unix(0, 0))
		if answer != "" && !strings.HasSuffix(answer, "\n") {
			t.Errorf("%q: answered %q, want whole lines", line, answer)
		}

		if strings.Count(answer, "\n") > 2 {
			t.Errorf("%q: answered %q, want one command", line, answer)
		}
	})
}

func FuzzParseFingerprint(f *testing.F) {
	f.Add(spellFingerprint(make([]byte, 32)))
	f.Add("")
	f.Add("AA:\nmanagement x")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseFingerprint(text)
		switch {
		case err != nil && got != "":
			t.Error("an error comes with a fingerprint, want none")
		case err == nil && (got != text || strings.ContainsAny(got, "\n\r \t")):
			t.Errorf("%q is taken as %q, want it refused", text, got)
		}
	})
}
