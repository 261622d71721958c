package registry_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/lab/tunnel"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

const faultMark = "CHOKEPOINT_TEST_FAULT"

// faults are planted, at least one for each suite; want is what the suite must say of it.
var faults = []struct {
	name string
	run  func(t *testing.T)
	want string
}{
	{"host that forgets", func(t *testing.T) {
		hostSuite(t, forgetful{labtest.NewHost("fake", map[string]string{"/dir/have": "had"}, nil)},
			"/dir")
	}, "read what was written"},
	{"host without exit codes", func(t *testing.T) {
		cheerful := labtest.Script(func(context.Context, labtest.Call) int { return 0 })
		hostSuite(t, labtest.NewHost("fake", map[string]string{"/dir/have": "had"},
			map[string]labtest.Script{"ls": cheerful}), "/dir")
	}, "got exit code 0"},
	{"router that cannot be restored", func(t *testing.T) {
		labtest.DriverSuite(t, sticky{}, labtest.NewRouter("router", []string{"lan"}, nil),
			[]record.Setting{{Knob: "firewall", Node: "router", Value: "10"}})
	}, "canonical forms after restoring"},
	{"tunnel that stays", func(t *testing.T) {
		tunnelSuite(t, labtest.Up(t, "direct", registry.LabParts()),
			odd{userspace(), func(p tunnel.Path) tunnel.Path { return eternal{p} }})
	}, "after down"},
	{"tunnel that counts nothing", func(t *testing.T) {
		tunnelSuite(t, labtest.Up(t, "direct", registry.LabParts()),
			odd{userspace(), func(p tunnel.Path) tunnel.Path { return uncounted{p} }})
	}, "counters moved by 0 sent"},
	{"knob that is not put back", func(t *testing.T) { fakeKnob(t, "nat", node.Knobs()) },
		"restored: got \"masquerade\""},
	{"knob that parses its own text anew", func(t *testing.T) {
		fakeKnob(t, "", []knob.Knob{unstable{knobNamed("nat")}})
	}, "parse canonical"},
	{"engine that loses count", func(t *testing.T) {
		l, f := fakeLab(t, "")
		engineSuite(t, l, miscount{f.Engine}, labtest.Loads()["udp 20M"])
	}, "want sent = received + lost"},
	{"engine that hides its end", func(t *testing.T) {
		l, f := fakeLab(t, "")
		engineSuite(t, l, smooth{f.Engine}, labtest.Loads()["tcp up"])
	}, "cancelled: got <nil>"},
	{"prober that leaves out probes", func(t *testing.T) {
		l, _ := fakeLab(t, "")
		proberSuite(t, l, hasty{})
	}, "slots skipped"},
	{"probe with an undeclared column", func(t *testing.T) {
		l, _ := fakeLab(t, "")
		probeSuite(t, l, labtest.Undeclared())
	}, "got stem no_such_stem"},
}

// TestSuitesCanFail runs each fault in a process of its own, where the suite must fail, and for the right
// reason.
func TestSuitesCanFail(t *testing.T) {
	name := os.Getenv(faultMark)
	if name != "" {
		for _, f := range faults {
			if f.name == name {
				f.run(t)
			}
		}
		return
	}

	t.Parallel()
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			cmd := exec.Command("/proc/self/exe", "-test.run=^TestSuitesCanFail$", "-test.timeout=30s")
			cmd.Env = append(os.Environ(), faultMark+"="+f.name)
			out, err := cmd.CombinedOutput()
			if strings.Contains(string(out), "--- SKIP") || strings.Contains(string(out), "skip: ") {
				t.Skip("skip: this kernel refuses user namespaces to ordinary users")
			}

			code, _ := host.ExitCode(err)
			if code != 1 || !strings.Contains(string(out), f.want) {
				t.Errorf("got exit code %d and\n%s\nwant 1 and %q", code, out, f.want)
			}
		})
	}
}

func fakeLab(t *testing.T, stuck string) (*lab.Lab, *labtest.Lab) {
	t.Helper()
	shape, err := lab.TopologyNamed("forward")
	must(t, err)
	f := &labtest.Lab{Topology: shape, Stuck: stuck}
	if strings.HasPrefix(os.Getenv(faultMark), "probe ") {
		f.Probes = append(f.Probes, labtest.Undeclared())
	}

	l, err := f.Up()
	must(t, err)
	t.Cleanup(func() { l.Close(context.Background()) })
	return l, f
}

func fakeKnob(t *testing.T, stuck string, knobs []knob.Knob) {
	t.Helper()
	l, f := fakeLab(t, stuck)
	for _, k := range knobs {
		if k.Name() == "nat" {
			knobSuite(t, l, func() *lab.Lab {
				other, err := f.Attach()
				must(t, err)
				return other
			}, k, record.Setting{Knob: "nat", Node: "router", Value: "masquerade"})
		}
	}
}

func knobNamed(name string) knob.Knob {
	for _, k := range node.Knobs() {
		if k.Name() == name {
			return k
		}
	}
	return nil
}

func userspace() tunnel.Tunnel { return tunnel.WireGuardUserspace() }

type forgetful struct{ host.Host }

func (forgetful) WriteFile(context.Context, string, []byte) error { return nil }

type sticky struct{ labtest.RouterDriver }

func (s sticky) Apply(ctx context.Context, h host.Host, set record.Setting) error {
	if set.Value == "off" {
		return nil
	}
	return s.RouterDriver.Apply(ctx, h, set)
}

// odd is a tunnel whose path is not what it should be.
type odd struct {
	tunnel.Tunnel
	wrap func(tunnel.Path) tunnel.Path
}

func (o odd) Up(ctx context.Context, near, far tunnel.End, s tunnel.Spec) (tunnel.Path, error) {
	p, err := o.Tunnel.Up(ctx, near, far, s)
	if err != nil {
		return nil, err
	}
	return o.wrap(p), nil
}

type eternal struct{ tunnel.Path }

func (eternal) Down(context.Context) error { return nil }

type uncounted struct{ tunnel.Path }

func (uncounted) Counters(context.Context, bool) (tunnel.Counters, error) {
	return tunnel.Counters{}, nil
}

type unstable struct{ knob.Knob }

func (u unstable) Parse(text string) (knob.State, error) {
	if _, err := u.Knob.Parse(strings.TrimRight(text, "'")); err != nil {
		return "", err
	}
	return knob.State(text + "'"), nil
}

func (unstable) Same(want, got knob.State) bool { return true }

type miscount struct{ labtest.Engine }

func (m miscount) Offer(ctx context.Context, near, far traffic.End, load record.Load,
	c traffic.Conductor) (*record.Traffic, error) {
	got, err := m.Engine.Offer(ctx, near, far, load, c)
	if err == nil {
		got.Flows[0].Packets.Lost++
	}
	return got, err
}

type smooth struct{ labtest.Engine }

func (m smooth) Offer(ctx context.Context, near, far traffic.End, load record.Load,
	c traffic.Conductor) (*record.Traffic, error) {
	got, err := m.Engine.Offer(ctx, near, far, load, c)
	if ctx.Err() != nil {
		return got, nil
	}
	return got, err
}

type hasty struct{ labtest.Prober }

func (h hasty) Probe(ctx context.Context, near, far traffic.End, load record.Load,
	c traffic.Conductor) (*record.Latency, error) {
	load.Interval *= 2
	return h.Prober.Probe(ctx, near, far, load, c)
}
