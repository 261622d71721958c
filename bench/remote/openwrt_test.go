package remote_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/lab/ssh"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
)

var openWrt = flag.String("openwrt", "", "a folder that openwrt/build has made")

// TestOpenWrt drives routers with a root file system like OpenWrt's over dropbear: in namespaces, where the
// kernel is this machine's, and in a guest with Debian's. Everything that a run may ask of them is tried;
// each setting of the driver is made and undone; then the contact is lost in the middle of a run.
func TestOpenWrt(t *testing.T) {
	if *openWrt == "" {
		t.Skip("skip: no root file system like OpenWrt's: -openwrt names the folder of one")
	}

	work := t.TempDir()
	program, err := rig.NewProgram(work, *binary, os.Geteuid())
	if err != nil {
		t.Fatal(err)
	}

	for _, tt := range []struct {
		name  string
		guest bool
		// what must work, beside what works on both
		works, settings, cuts []string
	}{
		{"namespaces", false, []string{"setting cpus=0"}, []string{"cpus.eth0=0", "cpus.br-lan=off"},
			[]string{cutLink, cutSession, cutFullLink}},
		{"guest", true, []string{"setting flowtable=on", "setting conntrack_max=5000", "setting queue=cake",
			"setting queue=fq_codel", "setting cpus=0", "setting napi_threaded=on"},
			[]string{"flowtable=on", "napi_threaded.br-lan=on", "flowtable=off"},
			[]string{cutLink, cutPause, cutReset, cutFull, cutFullLink}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(work, tt.name)
			keys := filepath.Join(dir, "keys")
			own := filepath.Join(dir, "router")
			of := openWrtMachines(*openWrt, own, tt.guest)
			if err := errors.Join(makeKeys(keys, of), os.Mkdir(own, 0o700)); err != nil {
				t.Fatal(err)
			}

			b, err := newBed(t, dir, keys, 1, program, of)
			if err != nil {
				t.Fatal(err)
			}

			r := b.machines["router"]
			said, err := r.shell("uname -r; dropbear -V 2>&1; sh --help 2>&1 | head -n 1")
			if err != nil {
				t.Fatal(err)
			}

			fmt.Fprintf(t.Output(), "note: %s\n", strings.Join(strings.Fields(said), " "))
			said, err = r.shell("command -v stat timeout setsid nohup od nproc ethtool scp; true")
			if said != "" || err != nil {
				t.Errorf("there is %q (%v), which OpenWrt lacks", said, err)
			}

			t.Run("conform", func(t *testing.T) { conforms(t, b, tt.works) })
			t.Run("settings", func(t *testing.T) { driverSettings(t, b, tt.settings) })
			for _, cut := range tt.cuts {
				t.Run(cut, func(t *testing.T) { cutting(t, b, cut, tt.guest) })
			}
		})
	}
}

// asBefore wants a router to be as it was, but for the sampler of a run that lost it, which ends by itself.
func asBefore(t *testing.T, r *machine, before []string) {
	t.Helper()
	now, err := r.look()
	for range 20 {
		if err == nil && len(changed(before, now)) == 0 {
			return
		}

		time.Sleep(500 * time.Millisecond)
		now, err = r.look()
	}

	t.Errorf("the router is not as before: %v, %s", err, strings.Join(changed(before, now), "; "))
}

// changed lists what came and what went, but for such a sampler.
func changed(before, now []string) []string {
	return slices.DeleteFunc(difference(before, now, ""), func(line string) bool {
		return strings.HasPrefix(line, "+ trace: ") && strings.Contains(line, "watch") ||
			line == "+ trace: sampler"
	})
}

// always works on every router with OpenWrt's usual programs, tc and nft.
const always = "setting queue=pfifo\nsetting queue=bfifo limit 256k\nsetting queue=tbf rate 300M\n" +
	"setting txqueuelen=500\nsetting nat=masquerade\nsetting firewall=100\nsetting firewall=100 stateful\n" +
	"setting mss_clamp=pmtu\nsetting ip_forward=ipv4\nsetting link_mtu=9000\n" +
	"setting sysctl:net.ipv4.tcp_rmem=4096 131072 6291456\ncounters of its ports\nsamples 3s"

// conforms tries everything that a run may ask of the router.
func conforms(t *testing.T, b *bed, works []string) {
	r := b.machines["router"]
	before, err := r.look()
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	cmd := b.command(ctx, slices.Concat([]string{"lab", "conform", "--json", "--output",
		b.At("tmp/bundle.json")}, b.aboard("openwrt"))...)
	var talk strings.Builder
	cmd.Stderr = &talk
	began := time.Now()
	said, err := cmd.Output()
	if err != nil {
		t.Errorf("lab conform: %v", err)
	}

	out := t.Output()
	found := map[string]check.State{}
	fmt.Fprintf(out, "note: %.0f s: %s\n| tried | answer | why |\n|---|---|---|\n",
		time.Since(began).Seconds(), strings.TrimSpace(talk.String()))
	for line := range strings.Lines(string(said)) {
		var c struct {
			Area, Name string
			Answer     check.Answer
		}
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatalf("%q: %v", line, err)
		}

		fmt.Fprintf(out, "| %s `%s` | %s | %s |\n", c.Area, c.Name, c.Answer.State, c.Answer.Reason)
		found[c.Area+" "+c.Name] = c.Answer.State
		if c.Answer.State == check.Unknown {
			t.Errorf("%s %s: %s", c.Area, c.Name, c.Answer.Reason)
		}
	}

	for _, what := range append(strings.Split(always, "\n"), works...) {
		if found[what] != check.Yes {
			t.Errorf("%s: got %s, want yes", what, found[what])
		}
	}

	asBefore(t, r, before)
}

// ownSettings holds what the driver makes on every such router.
const ownSettings = `link_mtu.br-lan=1400
link_mtu.eth0=1300
txqueuelen.eth0=77
ip_forward=ipv4
sysctl:net.ipv4.ip_default_ttl=net.ipv4.ip_default_ttl=33
queue.eth0=pfifo limit 50
queue.br-lan=tbf rate 300M burst 128k limit 256k
queue.eth0=sqm
firewall=10
firewall=20 in a set stateful
firewall=off
mss_clamp=pmtu
mss_clamp=1360
mss_clamp=off
nat.eth0=off
nat.eth0=masquerade
`

// driverSettings is the conformance of the driver itself over the connection, with settings of its own.
func driverSettings(t *testing.T, b *bed, more []string) {
	r := b.machines["router"]
	before, err := r.look()
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	config := filepath.Join(dir, "config")
	text := fmt.Sprintf("Host *\n ProxyCommand ip netns exec %s busybox nc %%h %%p\n%s", b.controller(),
		read(filepath.Join(b.keys, "config")))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	c, err := ssh.Dial(t.Context(), ssh.Destination{Host: "router"}, ssh.Options{
		Dir:    dir,
		Name:   "router",
		Config: config,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := r.shell("/usr/lib/sqm/run.sh start eth0"); err != nil {
		t.Fatal(err)
	}

	settings := labtest.SettingsOf(ownSettings + strings.Join(more, "\n"))
	labtest.DriverSuite(t, driver.OpenWrt{}, c.Shell(), settings, "br-lan", "eth0")
	if _, err := r.shell("/usr/lib/sqm/run.sh stop eth0"); err != nil {
		t.Fatal(err)
	}

	asBefore(t, r, before)
}

// The ways in which the contact is lost.
const (
	cutLink     = "link down"
	cutSession  = "sessions killed"
	cutPause    = "guest paused"
	cutReset    = "guest reset"
	cutFull     = "disk full"
	cutFullLink = "disk full, then link down"
)

// cutPlan sets something for longer than a cut takes to be noticed; a guest, whose kernel has flow tables,
// also what goes through uci.
const cutPlan = `name: cuts
method: {duration: 70s, warmup: 200ms, cooldown: 100ms, idle: 200ms, runs: 1, seed: 1}
matrix:
  direction: [up]
  ip: [4]
  pacing: [2M]
  queue@router.wan: [tbf rate 20M burst 32k limit 100k]
  link_mtu@router: [1400]
  firewall: [20 stateful]
measure: {verify: false}
`

// cutting loses the contact in the middle of a run, and wants the router back as it was.
func cutting(t *testing.T, b *bed, kind string, guest bool) {
	r := b.machines["router"]
	before, err := r.look()
	plan := cutPlan
	set := []string{"tbf", "mtu 1400", "chokepoint_firewall"}
	if guest {
		plan = strings.Replace(plan, "measure:", "  flowtable: [\"on\"]\nmeasure:", 1)
		set = append(set, "flow add @ft", "flow_offloading='1'")
	}

	if err := errors.Join(err, os.WriteFile(b.At("cuts.yaml"), []byte(plan), 0o600)); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), runsWithin)
	defer cancel()
	run := b.command(ctx, slices.Concat([]string{"run", b.At("cuts.yaml"), "--json"}, b.aboard("openwrt"))...)
	talk, err := os.Create(b.At("tmp/talk"))
	if err != nil {
		t.Fatal(err)
	}
	defer talk.Close()
	run.Stdout, run.Stderr = talk, talk
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}

	over := make(chan error, 1)
	go func() { over <- run.Wait() }()
	if err := awaitSet(r, before, set, over); err != nil {
		_ = run.Process.Kill()
		t.Fatalf("%v: %s", err, lastLine(string(read(talk.Name()))))
	}

	lost := time.Now()
	if err := r.cut(kind); err != nil {
		t.Fatal(err)
	}

	limit := time.Now().Add(agent.Silence + 2*margin)
	if kind == cutFull || kind == cutSession { // the contact holds or comes back: the run goes on to its end
		limit = time.Now().Add(3 * time.Minute)
	}

	but := "mgmt0" // whose carrier is down
	now, err := r.look()
	for err != nil || len(slices.DeleteFunc(changed(before, now), func(l string) bool {
		return strings.Contains(l, but)
	})) > 0 {
		if time.Now().After(limit) {
			t.Errorf("%s: after %.1f s the router is not as before: %v, %s", kind, time.Since(lost).Seconds(),
				err, strings.Join(changed(before, now), "; "))
			break
		}

		time.Sleep(500 * time.Millisecond)
		now, err = r.look()
	}

	reverted := time.Since(lost).Seconds()
	if err := r.heal(kind); err != nil {
		t.Fatal(err)
	}

	err = <-over
	said, restoreErr := b.say("lab", "restore")
	if restoreErr != nil {
		t.Errorf("lab restore: %v: %s", restoreErr, said)
	}

	asBefore(t, r, before)
	fmt.Fprintf(t.Output(), "note: %s: reverted after %.1f s; the run: %s; lab restore: %s\n", kind, reverted,
		exitOf(err), strings.TrimSpace(said))
	// Its sampler, which would go on, ends by this.
	if _, err := r.shell("rm -rf /dev/shm/chokepoint-watch-*; sleep 3"); err != nil {
		t.Error(err)
	}
}

// exitOf tells how a run ended.
func exitOf(err error) string {
	if err == nil {
		return "success"
	}
	return err.Error()
}

// lastLine is the last that the run said to its user, beside its events.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for _, l := range slices.Backward(lines) {
		if !strings.HasPrefix(l, "{") {
			return l
		}
	}
	return ""
}

// awaitSet waits until all that the plan wants is set on the router, and a moment longer, into the trial.
func awaitSet(r *machine, before, set []string, over chan error) error {
	var missing []string
	for range 180 {
		select {
		case err := <-over:
			return fmt.Errorf("the run ended (%v) before %q was set", err, missing)
		case <-time.After(time.Second):
		}

		now, err := r.look()
		if err != nil {
			return err
		}

		text := strings.Join(difference(before, now, ""), "\n")
		missing = slices.DeleteFunc(slices.Clone(set), func(mark string) bool {
			return strings.Contains(text, mark)
		})
		if len(missing) == 0 {
			time.Sleep(5 * time.Second)
			return nil
		}
	}
	return fmt.Errorf("%q is not set", missing)
}

// fillScript leaves no byte where OpenWrt writes what is not its configuration.
const fillScript = `dd if=/dev/zero of=/tmp/full bs=64k 2>/dev/null
dd if=/dev/zero of=/tmp/full2 bs=1k 2>/dev/null; df /tmp | grep -q 100% || { df /tmp; exit 1; }`

// cut loses the contact.
func (m *machine) cut(kind string) error {
	link := func() error {
		_, err := say("", "ip", "-n", m.controller, "link", "set", m.name+"-mgmt", "down")
		return err
	}
	switch kind {
	case cutLink:
		return link()
	case cutFull, cutFullLink:
		said, err := m.shell(fillScript)
		if err == nil && kind == cutFullLink {
			err = link()
		}

		if err != nil {
			err = fmt.Errorf("%w: %s", err, said)
		}

		return err
	case cutSession:
		_, err := m.shell(`for p in $(pidof dropbear); do [ $p = $PPID ] ||
[ "$(cut -d' ' -f4 /proc/$p/stat)" = 1 ] || kill -9 $p; done`) // but for ours and the one that listens
		return err
	case cutPause:
		if err := m.monitor("stop"); err != nil {
			return err
		}

		time.Sleep(time.Minute)
		return m.monitor("cont")
	case cutReset:
		if err := m.monitor("system_reset"); err != nil {
			return err
		}
		return m.await()
	}
	return fmt.Errorf("%s is unknown", kind)
}

// heal removes what cut has done and does not pass by itself.
func (m *machine) heal(kind string) error {
	switch kind {
	case cutLink, cutFullLink:
		if _, err := say("", "ip", "-n", m.controller, "link", "set", m.name+"-mgmt", "up"); err != nil {
			return err
		}

		if err := m.await(); err != nil {
			return err
		}
	}

	_, err := m.shell("rm -f /tmp/full /tmp/full2")
	return err
}
