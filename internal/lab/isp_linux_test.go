package lab_test

import (
	"context"
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
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
)

// TestWANByDHCP: the server plays the provider, and the router gives up its address for the one that it gets.
// Both are left as they were, whatever ends it.
func TestWANByDHCP(t *testing.T) {
	ctx := labtest.Context(t)
	l, _ := labtest.UpIn(t, t.TempDir(), "forward", registry.LabParts())
	looks := func(node string) string {
		n, err := l.Node(ctx, node)
		must(t, err)
		out, err := host.Run(ctx, agent.NewHost(node, n.Agent), host.Command{Path: "sh", Args: []string{"-c",
			"ip -br addr; ip route | sort; ip rule"}})
		must(t, err)
		return string(out)
	}
	before := [2]string{looks("router"), looks("server")}
	must(t, l.Settle(ctx, []record.Setting{{Knob: "wan", Node: "server", Port: "wan", Value: knob.DHCP},
		{Knob: "wan", Node: "router", Port: "wan", Value: knob.DHCP}}))
	if got := labtest.Reach(t, l, 0, 4, 1501, 100, 1500); len(got.Back) != 2 {
		t.Errorf("packets of 100, 1500 and 1501 bytes: %v came back (%s), want the first two", got.Back,
			got.Note)
	}
	must(t, l.Settle(ctx, nil))
	for i, node := range []string{"router", "server"} {
		if got := looks(node); got != before[i] {
			t.Errorf("%s is left otherwise than it was:\n%s\nbefore:\n%s", node, got, before[i])
		}
	}
}

// TestGuestPPPoE: one guest is another's provider. A session carries packets of 1492 bytes and no larger, and
// leaves both as they were; with a password nobody else gets one, and no file holds it. The guests' usual
// kernel has no PPP: CHOKEPOINT_PPP_KERNEL and CHOKEPOINT_PPP_MODULES name one that has, such as that of
// Debian's linux-image-amd64.
func TestGuestPPPoE(t *testing.T) {
	kernel := os.Getenv("CHOKEPOINT_PPP_KERNEL")
	if kernel == "" {
		t.Skip("skip: CHOKEPOINT_PPP_KERNEL names no kernel with PPP")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // an emulated guest takes its time
	defer cancel()
	plain := labtest.Guest(t)
	cache := labtest.GuestCache(t)
	program, err := vm.GuestProgram(ctx, plain.Image.Arch, cache, func(string) {})
	must(t, err)
	img, err := vm.Recipe{Arch: plain.Image.Arch, Program: program, Cache: cache, Kernel: kernel,
		Modules: os.Getenv("CHOKEPOINT_PPP_MODULES")}.Image(ctx)
	must(t, err)
	guest := vm.NewGuest(img)
	l, _ := labtest.UpGuest(t, t.TempDir(), "site-to-site", &guest, registry.LabParts())
	near, err := l.Node(ctx, "router-a")
	must(t, err)
	far, err := l.Node(ctx, "router-b")
	must(t, err)
	looks := func(n host.Agent) string {
		out, err := host.Run(ctx, agent.NewHost("router", n), host.Command{Path: "sh", Args: []string{"-c",
			"ip addr; ip route show table all; ip rule; ls /etc/ppp; ps | grep -c [p]ppd"}})
		if _, known := host.ExitCode(err); err != nil && !known {
			t.Fatal(err)
		}
		return string(out)
	}
	before := [2]string{looks(near.Agent), looks(far.Agent)}

	settings := []record.Setting{{Knob: "wan", Node: "router-b", Port: "wan", Value: knob.PPPoE},
		{Knob: "wan", Node: "router-a", Port: "wan", Value: knob.PPPoE}}
	must(t, l.Settle(ctx, settings))
	if got := labtest.Reach(t, l, 0, 4, 1493, 100, 1492); len(got.Back) != 2 {
		t.Errorf("packets of 100, 1492 and 1493 bytes: %v came back (%s), want the first two", got.Back,
			got.Note)
	}
	if got := looks(near.Agent); !strings.Contains(got, "ppp-wan") {
		t.Errorf("the subscriber has no session:\n%s", got)
	}
	must(t, l.Settle(ctx, nil))
	for i, n := range []host.Agent{near.Agent, far.Agent} {
		if got := looks(n); got != before[i] {
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
			out, err := host.Run(ctx, agent.NewHost("router-a", near.Agent), host.Command{Path: "sh",
				Args: []string{"-c", `pppd plugin /lib/pppd/*/pppoe.so nic-wan ifname ppp-wan noauth \
					nodetach user me password "$0" noipdefault nodefaultroute maxfail 1 & p=$!
				i=0; until ip -4 addr show dev ppp-wan 2>/dev/null | grep -q inet; do
				kill -0 $p 2>/dev/null && [ $i -lt 100 ] || break; i=$((i+1)); sleep 0.1; done
				ip -4 addr show dev ppp-wan; kill $p; wait $p`, said}})
			if _, known := host.ExitCode(err); err != nil && !known {
				t.Fatal(err)
			}
			if got := strings.Contains(string(out), "inet "); got != want {
				t.Errorf("password %q: an address %t, want %t:\n%s", said, got, want, out)
			}
		}
		out, err := host.Run(ctx, agent.NewHost("router-b", far.Agent), host.Command{Path: "sh",
			Args: []string{"-c", `grep -rl "$0" /etc /run /tmp /var 2>/dev/null; cat /proc/[0-9]*/cmdline | tr '\0' '\n' |
			grep -F "$0" | grep -v grep; true`, password[:len(password)-1]}})
		must(t, err)
		own := password[:len(password)-1] + "\n" // the search's
		if text := strings.TrimSpace(strings.ReplaceAll(string(out), own, "")); text != "" {
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

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
