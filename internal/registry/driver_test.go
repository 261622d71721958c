package registry_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
)

// agentlessSettings are what every system that runs in a lab's router can be told by its driver, as
// "knob.port=value"; those of guestSettings need a kernel of its own, and programs that not every machine
// has.
const (
	agentlessSettings = `
link_mtu=1400
link_mtu.wan=1300
txqueuelen.lan=77
ip_forward=ipv4
sysctl:net.ipv4.ip_default_ttl=net.ipv4.ip_default_ttl=33
queue.wan=pfifo limit 50
queue=bfifo limit 90000
queue.lan=tbf rate 300M burst 128k limit 256k`
	guestSettings = `
firewall=10
firewall=20 in a set stateful
firewall=5 in a map
firewall=off
mss_clamp=1360
mss_clamp=pmtu
mss_clamp=off
nat=masquerade
conntrack_max=1000
offload=wire
offload.wan=super
napi_threaded=on
queue.wan=fq_codel limit 2000 flows 1024 quantum 1514 target 4ms interval 80ms memory_limit 32m ecn
queue=noqueue`
)

// agentless brings up a lab whose router is driven.
func agentless(t *testing.T, d driver.Driver, guest *vm.Guest) (*lab.Lab, *lab.Node) {
	t.Helper()
	l, _ := labtest.UpLocal(t, lab.Local{
		Dir:    t.TempDir(),
		Guest:  guest,
		Driver: d.Name(),
		Parts:  registry.LabParts(),
	}, "forward")
	n, err := l.Node(labtest.Context(t), "router")
	must(t, err)
	f := n.Describe()
	if n.HasAgent() || f.Driven != d.Name() || f.OwnKernel != (guest != nil) {
		t.Errorf("router: got %+v, want it driven by %s", f, d.Name())
	}

	return l, n
}

// drivers returns those for what the labs' routers run, which is this machine's system.
func drivers(t *testing.T) []driver.Driver {
	return slices.DeleteFunc(driver.All(), func(d driver.Driver) bool {
		return d.Check(labtest.Context(t), host.Local()).State == check.No
	})
}

// TestDriversInNamespaces: a router that is a namespace with a plain shell is driven, and a setting of the
// lab is made, read back and undone.
func TestDriversInNamespaces(t *testing.T) {
	apart.Needs(t, "ip", "tc", "nft")
	t.Parallel()
	for _, d := range drivers(t) {
		t.Run(d.Name(), func(t *testing.T) {
			l, n := agentless(t, d, nil)
			labtest.DriverSuite(t, d, n.Host, labtest.SettingsOf(agentlessSettings), "lan", "wan")
			settleAgentless(t, l, labtest.SettingsOf(agentlessSettings)[:1])
			labtest.WantReach(t, l, 0, 4, 0, 1400, 1401) // after the MTU is put back
		})
	}
}

// TestDriversInGuests: the same of a virtual machine, whose own kernel has more settings.
func TestDriversInGuests(t *testing.T) {
	guest := labtest.Guest(t)
	for _, d := range drivers(t) {
		t.Run(d.Name(), func(t *testing.T) {
			l, n := agentless(t, d, guest)
			labtest.DriverSuite(t, d, n.Host, labtest.SettingsOf(agentlessSettings+guestSettings), "lan",
				"wan")
			settleAgentless(t, l, labtest.SettingsOf(agentlessSettings+guestSettings))
			labtest.WantReach(t, l, 0, 4, 1501, 100, 1500)
		})
	}
}

// settleAgentless makes settings hold through the lab one after the other, and has them undone.
func settleAgentless(t *testing.T, l *lab.Lab, settings []record.Setting) {
	t.Helper()
	ctx := labtest.Context(t)
	n, err := l.Node(ctx, "router")
	must(t, err)
	for _, s := range settings {
		ctx := labtest.Context(t)
		if knob, ok := strings.CutPrefix(s.Knob, "sysctl:"); ok {
			s.Value = strings.TrimPrefix(s.Value, knob+"=")
		}

		a := l.CheckSetting(ctx, s)
		if a.State != check.Yes {
			t.Errorf("check %s: got %v (%s), want yes", s.Knob, a.State, a.Reason)
		}

		before, err := n.Driver.Read(ctx, n.Host, s)
		must(t, err)
		for _, want := range [][]record.Setting{{s}, nil} {
			if err := l.Reconcile(ctx, want); err != nil {
				t.Errorf("settle %v: %v", want, err)
			}
		}

		if after, err := n.Driver.Read(ctx, n.Host, s); err != nil || after != before {
			t.Errorf("%s after it was put back: got %q, %v, want %q", s.Knob, after, err, before)
		}
	}

	if a := l.CheckTunnel(ctx, lab.TunnelSpec{Kind: "wireguard"}); a.State != check.No {
		t.Errorf("a tunnel that ends on an agentless router: got %v, want no", a)
	}
}
