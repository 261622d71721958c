package knob

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// inNamespace runs f on a thread of its own in fresh network and mount namespaces with two virtual links;
// all of it ends with f.
func inNamespace(t *testing.T, f func(t *testing.T, p Place)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skip: needs root to make a network namespace")
	}

	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread is thrown away
		must(t, unix.Unshare(unix.CLONE_NEWNET|unix.CLONE_NEWNS))
		must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		must(t, unix.Mount("sysfs", "/sys", "sysfs", 0, ""))
		for _, names := range [][2]string{{"lan", "lan-peer"}, {"wan", "wan-peer"}} {
			must(t, kernel.AddVeth(kernel.VethEnd{Name: names[0]}, kernel.VethEnd{Name: names[1]}, 2))
			must(t, kernel.Up(names[0]))
			must(t, kernel.Up(names[1]))
		}

		f(t, Place{
			Node:    "router",
			Ports:   []string{"lan", "wan"},
			WAN:     "wan",
			Inside:  []string{"198.18.0.2", "2001:2::2"},
			Outside: []string{"198.18.1.1", "2001:2:0:1::1"},
		})
	}()
	<-done
}

// statesOf are states of each knob; those without "?" must work on any kernel that runs these tests as root.
func statesOf() map[string][]string {
	return map[string][]string{
		"link_mtu":   {"1400", "9000", "lan: 1300; wan: 2000"},
		"txqueuelen": {"10", "5000"},
		"queue": {
			"pfifo limit 50", "bfifo limit 64k", "pfifo_fast", "noqueue",
			"tbf rate 300M burst 128k limit 256k", "tbf rate 10G", "htb rate 300M",
			"mq",
			"lan: pfifo limit 5; wan: noqueue",
			"?fq_codel", "?cake bandwidth 300M nat", "?fq", "?codel",
			"?sfq",
			"?netem delay 10ms loss 1%",
		},
		"offload": {"wire", "super", "gro=on tso=off", "wire"},
		"nat":     {"masquerade", "forward", "off"},
		"vlan":    {"?7", "off"},
		"firewall": {"0", "250", "10 stateful", "250 in a set",
			"250 in a map stateful log", "off"},
		"ip_forward": {"on", "ipv4", "ipv6", "off"},
		"sysctl:":    {"net.ipv4.tcp_ecn=1", "net.ipv4.tcp_rmem=4096 65536 1048576"},
		"flowtable":  {"?on", "?hardware", "off"}, // veth has no hardware
		"mss_clamp":  {"pmtu", "1360", "off"},
		"governor":   {"?performance"}, // of a machine with a clock to set
		// Whether a namespace may set it depends on the kernel's version.
		"conntrack_max": {"?5000"},
		"shape":         {"?50M", "over pfifo limit 50", "off"},
		"policer":       {"?50M", "off"},
		"napi_threaded": {"?on"},

		"gro_flush_timeout": {"20us", "1500ns", "off"},

		"idle_policies": {"50", "0"},
		"cpu_count":     {"?1"}, // of a guest only
		"irq_affinity":  {"?0"}, // veth has no interrupts
		"idle_tunnels":  {"?3", "0"},
		"flow_export":   {"off", "?softflowd"}, // the program is in the guest's image
		"cpu_quota":     {"off", "?25%"},       // see TestCPUQuotaHoldsThreads
		"fault":         {"none", "link_rate=50M+rules=10", "?loss=1%"},
		"cpus":          {"0", "masks 1 2", "off"},
	}
}

// TestKnobsApplyWhatTheyReadAndRestore is the conformance of every knob: what is applied is read back, and
// what was read first restores the place.
func TestKnobsApplyWhatTheyReadAndRestore(t *testing.T) {
	ctx := context.Background()
	for _, k := range All() {
		list := statesOf()[k.Name()]
		if len(list) == 0 && k.Name() != WAN().Name() { // of a provider nothing is read back
			t.Errorf("knob %s has no levels to test", k.Name())
		}

		for _, level := range list {
			text, may := strings.CutPrefix(level, "?")
			t.Run(k.Name()+"/"+text, func(t *testing.T) {
				if m, err := os.ReadFile("/proc/self/uid_map"); k.Name() == "cpus" && err == nil &&
					!strings.Contains(string(m), "4294967295") {
					t.Skip("skip: packet steering cannot be set in a user namespace")
				}

				if k.Name() == "cpus" && runtime.NumCPU() < 2 {
					t.Skip("skip: needs two CPUs")
				}

				inNamespace(t, func(t *testing.T, p Place) {
					want, err := k.Parse(text)
					must(t, err)
					a := k.Check(ctx, p, want)
					if a.State != check.Yes {
						if !may {
							t.Errorf("check says %v: %s, want yes", a.State, a.Reason)
						}

						t.Logf("%v: %s", a.State, a.Reason)
						return
					}

					testLevel(t, ctx, k, p, want)
				})
			})
		}
	}
}

func testLevel(t *testing.T, ctx context.Context, k Knob, p Place, want State) {
	t.Helper()
	before, err := k.Read(ctx, p, want)
	must(t, err)
	if again, err := k.Parse(string(before)); err != nil || again != before {
		t.Errorf("what was read, %q, parses to %q (%v)", before, again, err)
	}

	must(t, k.Apply(ctx, p, want))
	got, err := k.Read(ctx, p, want)
	must(t, err)
	if !k.Same(want, got) {
		t.Errorf("read back %q, want %q", got, want)
	}

	must(t, k.Apply(ctx, p, want)) // once more does no harm
	must(t, k.Apply(ctx, p, before))
	after, err := k.Read(ctx, p, want)
	must(t, err)
	if after != before {
		t.Errorf("restored to %q, want %q", after, before)
	}
}

func TestKnobsCheckWhatTheKernelLacks(t *testing.T) {
	inNamespace(t, func(t *testing.T, p Place) {
		ctx := context.Background()
		for k, s := range map[Knob]State{
			Sysctl():  "net.ipv4.no_such_setting=1",
			Offload(): "no-such-offload=on",
		} {
			a := k.Check(ctx, p, s)
			if a.State != check.No || a.Reason == "" {
				t.Errorf("%s %s: check says %v (%q), want no with a reason", k.Name(), s, a.State, a.Reason)
			}
		}

		p.Ports = []string{"absent"}
		if a := LinkMTU().Check(ctx, p, "1400"); a.State != check.No {
			t.Errorf("check on a device that is not there says %v, want no", a.State)
		}

		if err := LinkMTU().Apply(ctx, p, "1400"); !errors.Is(err, kernel.ErrAbsent) {
			t.Errorf("applying to it gives %v, want ErrAbsent", err)
		}
	})
}
