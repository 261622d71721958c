package lab_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/isp"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
)

// TestWANByDHCP: the server plays the provider, and the router gives up its address for the one that it gets.
// Both are left as they were, whatever ends it.
func TestWANByDHCP(t *testing.T) {
	apart.Needs(t, "ip")
	ctx := labtest.Context(t)
	l, _ := labtest.UpIn(t, t.TempDir(), "forward", registry.LabParts())
	looks := func(node string) string {
		n, err := l.Node(ctx, node)
		must(t, err)
		out, err := host.Run(ctx, agent.NewHost(node, n.Agent), host.Command{
			Path: "sh",
			Args: []string{"-c",
				"ip -br addr; ip route | sort; ip rule"},
		})
		must(t, err)
		return string(out)
	}
	before := [2]string{looks("router"), looks("server")}
	must(t, l.Reconcile(ctx, []record.Setting{{Knob: "wan", Node: "server", Port: "wan", Value: knob.DHCP},
		{Knob: "wan", Node: "router", Port: "wan", Value: knob.DHCP}}))
	labtest.WantReach(t, l, 0, 4, 1501, 100, 1500)
	must(t, l.Reconcile(ctx, nil))
	for i, node := range []string{"router", "server"} {
		got := looks(node)
		if got != before[i] {
			t.Errorf("%s is left otherwise than it was:\n%s\nbefore:\n%s", node, got, before[i])
		}
	}
}

// TestIPv6FromProvider: the kernel of a router gets a default route and an address by the provider's
// advertisements, and a DHCPv6 client there another address and a network, to which the provider has a route.
// The provider is left as it was.
func TestIPv6FromProvider(t *testing.T) {
	t.Parallel()
	apart.Needs(t, "ip")
	ctx := labtest.Context(t)
	l, _ := labtest.UpIn(t, t.TempDir(), "forward", registry.LabParts())
	do := func(node, script string, args ...string) string {
		t.Helper()
		n, err := l.Node(ctx, node)
		must(t, err)
		out, err := host.Run(ctx, agent.NewHost(node, n.Agent), host.Command{
			Path: "sh",
			Args: append([]string{"-c", script}, args...),
		})
		must(t, err)
		return string(out)
	}
	until := func(what, node, script string, is func(string) bool) {
		t.Helper()
		for {
			got := do(node, script)
			if is(got) {
				return
			}

			if host.Pause(ctx, 50*time.Millisecond) != nil {
				t.Fatalf("%s: %s:\n%s", node, what, got)
			}
		}
	}
	if do("server", "cat /proc/sys/net/ipv6/conf/all/disable_ipv6 || echo 1") != "0\n" {
		t.Skip("skip: this kernel has no IPv6")
	}

	const looks = "ip -br addr; ip route; ip -6 route | sort; cat /proc/sys/net/ipv6/conf/*/forwarding"
	tentative := func(s string) bool { return !strings.Contains(s, "tentative") }
	until("duplicate address detection", "server", "ip -6 addr show dev wan", tentative)
	until("duplicate address detection", "router", "ip -6 addr show dev wan", tentative)
	before := do("server", looks)
	do("router", "echo 2 >/proc/sys/net/ipv6/conf/wan/accept_ra")

	server, err := l.Node(ctx, "server")
	must(t, err)
	s, err := server.Agent.Open(ctx, knob.VerbServe, knob.Access{
		Kind:   knob.DHCP,
		Device: "wan",
		IPv6:   netip.MustParsePrefix("2001:2:0:4000::/50"),
	})
	must(t, err)
	must(t, host.Await(ctx, s, &isp.Event{}))
	until("no route and address by advertisements", "router", "ip -6 addr show dev wan; ip -6 route",
		func(s string) bool {
			return strings.Contains(s, "inet6 2001:2:0:4000:") &&
				strings.Contains(s, "default via fe80::1 dev wan proto ra")
		})
	program, err := os.Executable()
	must(t, err)
	got := do("router", "ip -6 neigh flush dev wan; "+partMark+`=subscriber "$0"`, program)
	if got != "2001:2:0:4000::2 2001:2:0:4100::/56\n" {
		t.Errorf("by DHCPv6 the router gets %q", got)
	}

	var told isp.Event
	must(t, host.Await(ctx, s, &told))
	if !strings.HasSuffix(told.Text, "has the address 2001:2:0:4000::2 and the network 2001:2:0:4100::/56 "+
		"by DHCPv6") {
		t.Errorf("the provider tells %q", told.Text)
	}

	// A neighbour that says that it is no router would lose the default route.
	until("the provider is no router", "router", "ip -6 neigh show dev wan; ip -6 route show default",
		func(s string) bool {
			return strings.Contains(s, "router REACHABLE") && strings.Contains(s, "default via fe80::1")
		})
	// Who has such a route, and would lose it by being a router itself, is none over IPv6.
	do("router", "cd /proc/sys/net/ipv6/conf && echo 0 >lan/forwarding && echo 1 >wan/accept_ra")
	router, err := l.Node(ctx, "router")
	must(t, err)
	other, err := router.Agent.Open(ctx, knob.VerbServe, knob.Access{
		Kind:   knob.DHCP,
		Device: "lan",
		IPv6:   netip.MustParsePrefix("2001:2:0:8000::/50"),
	})
	must(t, err)
	must(t, host.Await(ctx, other, &isp.Event{}))
	must(t, host.Await(ctx, other, &told))
	if !strings.HasPrefix(told.Text, "IPv4 only: ") || !strings.Contains(told.Text, "on wan; sysctl") {
		t.Errorf("the other provider tells %q", told.Text)
	}

	must(t, errors.Join(other.Finish(), other.Close()))
	do("router", "echo 2 >/proc/sys/net/ipv6/conf/wan/accept_ra")
	if got := do("server", "ip -6 route show 2001:2:0:4100::/56"); !strings.HasPrefix(got,
		"2001:2:0:4100::/56 via fe80:") {
		t.Errorf("the provider's route to what it delegated is %q", got)
	}

	must(t, s.Finish())
	must(t, s.Close())
	until("left otherwise than it was, which was\n"+before, "server", looks,
		func(s string) bool { return s == before })
	until("the default route is left", "router", "ip -6 route show default",
		func(s string) bool { return s == "" })
}

// TestGuestPPPoE: one guest is another's provider. A session carries packets of 1492 bytes and no larger, and
// leaves both as they were; with a password nobody else gets one, and no file holds it. The guests' usual
// kernel has no PPP: CHOKEPOINT_PPP_KERNEL and CHOKEPOINT_PPP_MODULES name one that has, such as that of
// Debian's linux-image-amd64.
func TestGuestPPPoE(t *testing.T) {
	apart.Long(t, "boots a guest")
	kernel := os.Getenv("CHOKEPOINT_PPP_KERNEL")
	if kernel == "" {
		t.Skip("skip: CHOKEPOINT_PPP_KERNEL names no kernel with PPP")
	}

	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // an emulated guest takes its time
	defer cancel()
	plain := labtest.Guest(t)
	cache := labtest.GuestCache(t)
	program, err := vm.GuestProgram(ctx, plain.Image.Arch, cache, labtest.Source(t), func(string) {})
	must(t, err)
	img, err := vm.Recipe{
		Arch:    plain.Image.Arch,
		Program: program,
		Cache:   cache,
		Kernel:  kernel,
		Modules: os.Getenv("CHOKEPOINT_PPP_MODULES"),
	}.Image(ctx)
	must(t, err)
	guest := vm.NewGuest(img)
	l, _ := upGuest(t, t.TempDir(), "site-to-site", &guest)
	near, err := l.Node(ctx, "router-a")
	must(t, err)
	far, err := l.Node(ctx, "router-b")
	must(t, err)
	looks := func(n host.Agent) string {
		out, err := host.Run(ctx, agent.NewHost("router", n), host.Command{
			Path: "sh",
			Args: []string{"-c",
				"ip addr; ip route show table all; ip rule; ls /etc/ppp; ps | grep -c [p]ppd"},
		})
		_, known := host.ExitCode(err)
		if err != nil && !known {
			t.Fatal(err)
		}

		return string(out)
	}
	before := [2]string{looks(near.Agent), looks(far.Agent)}

	settings := []record.Setting{{Knob: "wan", Node: "router-b", Port: "wan", Value: knob.PPPoE},
		{Knob: "wan", Node: "router-a", Port: "wan", Value: knob.PPPoE}}
	must(t, l.Reconcile(ctx, settings))
	for _, ip := range []int{4, 6} {
		labtest.WantReach(t, l, 0, ip, 1493, 100, 1492)
	}

	if got := looks(near.Agent); !strings.Contains(got, "ppp-wan") {
		t.Errorf("the subscriber has no session:\n%s", got)
	}

	must(t, l.Reconcile(ctx, nil))
	for i, n := range []host.Agent{near.Agent, far.Agent} {
		got := looks(n)
		if got != before[i] {
			t.Errorf("node %d is left otherwise than it was:\n%s\nbefore:\n%s", i, got, before[i])
		}
	}

	t.Run("login", func(t *testing.T) {
		const password = "open sesame"
		s, err := far.Agent.Open(ctx, knob.VerbServe,
			knob.Access{Kind: knob.PPPoE, Device: "wan", User: "me"})
		must(t, err)
		must(t, s.(host.SecretSession).SendSecret(host.SecretFrom([]byte(password))))
		must(t, host.Await(ctx, s, &isp.Event{}))
		for _, said := range []string{"open barley", password} {
			want := said == password
			out, err := host.Run(ctx, agent.NewHost("router-a", near.Agent), host.Command{
				Path: "sh",
				Args: []string{"-c", `pppd plugin /lib/pppd/*/pppoe.so nic-wan ifname ppp-wan noauth \
					nodetach user me password "$0" noipdefault nodefaultroute maxfail 1 & p=$!
				i=0; until ip -4 addr show dev ppp-wan 2>/dev/null | grep -q inet; do
				kill -0 $p 2>/dev/null && [ $i -lt 100 ] || break; i=$((i+1)); sleep 0.1; done
				ip -4 addr show dev ppp-wan; kill $p; wait $p`, said},
			})
			_, known := host.ExitCode(err)
			if err != nil && !known {
				t.Fatal(err)
			}

			got := strings.Contains(string(out), "inet ")
			if got != want {
				t.Errorf("password %q: an address %t, want %t:\n%s", said, got, want, out)
			}
		}

		out, err := host.Run(ctx, agent.NewHost("router-b", far.Agent), host.Command{
			Path: "sh",
			Args: []string{"-c", `grep -rl "$0" /etc /run /tmp /var 2>/dev/null; cat /proc/[0-9]*/cmdline | tr '\0' '\n' |
			grep -F "$0" | grep -v grep; true`, password[:len(password)-1]},
		})
		must(t, err)
		own := password[:len(password)-1] + "\n" // the search's
		text := strings.TrimSpace(strings.ReplaceAll(string(out), own, ""))
		if text != "" {
			t.Errorf("the password is found: %s", text)
		}

		must(t, s.Finish())
		for host.Await(ctx, s, &isp.Event{}) == nil {
		}

		must(t, s.Close())
		for end := time.Now().Add(5 * time.Second); looks(far.Agent) != before[1]; {
			if time.Now().After(end) {
				t.Fatalf("the provider is left otherwise than it was:\n%s", looks(far.Agent))
			}

			time.Sleep(100 * time.Millisecond)
		}
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
