package remote_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
)

// bed is a lab of real machines, played by namespaces: a controller, and a client, a router and a server
// that it reaches by ssh over a network of its own. Between them are switches, so that a machine that is
// gone takes no device of another with it.
type bed struct {
	rig.Program
	prefix   string // of the names of its namespaces
	keys     string // folder
	machines map[string]*machine
}

// machine is one: namespaces of network, processes and mounts, with sshd as their first process. What lies in
// /run, /tmp, /var/tmp, /dev/shm and /root is its own, in memory.
type machine struct {
	name, space, controller, keys string
	system                        string // as uname -s says it, "" = what it is
	ports                         []port
	gateway                       string
	forwards                      bool
	outer                         *exec.Cmd // with which sshd ends
	pid                           int       // sshd's, or the first's of a root of its own

	root, work string // see openWrtMachines
	guest      bool
}

// port is a device, on a switch.
type port struct{ device, on, address, hardware string }

const managed = "mgmt0" // the device by which a machine is reached

func machines() []*machine {
	return []*machine{
		{
			name:    "client",
			gateway: "192.168.7.1",
			ports: []port{
				{managed, "mgmt", "10.99.0.2/24", "02:00:00:00:00:02"},
				{"enp1s0", "lan", "192.168.7.2/24", "02:00:00:00:01:02"}},
		},
		{
			name:     "router",
			forwards: true,
			ports: []port{
				{managed, "mgmt", "10.99.0.3/24", "02:00:00:00:00:03"},
				{"eth0", "wan", "203.0.113.1/24", "02:00:00:00:02:01"},
				{"eth1", "lan", "192.168.7.1/24", "02:00:00:00:01:01"}},
		},
		{
			name:    "server",
			gateway: "203.0.113.1",
			ports: []port{
				{managed, "mgmt", "10.99.0.4/24", "02:00:00:00:00:04"},
				{"eno1", "wan", "203.0.113.2/24", "02:00:00:00:02:02"}},
		},
	}
}

// say runs a command of this machine's, to its end.
func say(input string, words ...string) (string, error) {
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stdin = strings.NewReader(input)
	var wrong bytes.Buffer
	cmd.Stderr = &wrong
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(words[:min(len(words), 5)], " "), err, wrong.String())
	}

	return string(out), err
}

// makeKeys makes what every bed of such machines shares: all have one key, but for a root of its own, and the
// same addresses.
func makeKeys(dir string, of []*machine) error {
	err := os.MkdirAll(dir, 0o700)
	for _, name := range []string{"id", "host"} {
		if err == nil {
			_, err = say("", "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, name))
		}
	}

	if err != nil {
		return err
	}

	var known, config strings.Builder
	for _, m := range of {
		public, err := os.ReadFile(filepath.Join(cmp.Or(m.root, dir), "host.pub"))
		if err != nil {
			return err
		}

		for _, p := range m.ports {
			address, _, _ := strings.Cut(p.address, "/")
			if name, ok := map[string]string{"mgmt": m.name, "oob": m.name + outOfBand}[p.on]; ok {
				fmt.Fprintf(&known, "%s %s\n", address, strings.Join(strings.Fields(string(public))[:2], " "))
				fmt.Fprintf(&config, "Host %s\n HostName %s\n", name, address)
			}
		}
	}

	fmt.Fprintf(&config, "Host *\n User root\n IdentityFile %[1]s/id\n IdentitiesOnly yes\n"+
		" IdentityAgent none\n UserKnownHostsFile %[1]s/known\n GlobalKnownHostsFile /dev/null\n", dir)
	return errors.Join(os.WriteFile(filepath.Join(dir, "known"), []byte(known.String()), 0o600),
		os.WriteFile(filepath.Join(dir, "config"), []byte(config.String()), 0o600))
}

// newBed makes a bed, which goes with the test. The machines named last say that they are FreeBSD.
func newBed(t *testing.T, dir, keys string, number int, program rig.Program, of []*machine,
	freeBSD ...string) (*bed, error) {
	own, err := rig.Folders(filepath.Join(dir, fmt.Sprintf("bed%d", number)), os.Geteuid())
	own.Path = program.Path
	b := &bed{
		Program:  own,
		prefix:   fmt.Sprintf("cpbed%d-%d-", os.Getpid(), number),
		keys:     keys,
		machines: map[string]*machine{},
	}
	if err != nil {
		return nil, err
	}

	t.Cleanup(func() {
		for _, m := range b.machines {
			if err := m.halt(); err != nil {
				t.Error(err)
			}
		}

		if _, err := say("", "ip", "netns", "del", b.controller()); err != nil {
			t.Error(err)
		}
	})
	script := "netns add " + b.controller() + "\n"
	if _, err := say(script, "ip", "-batch", "-"); err != nil {
		return nil, err
	}

	script = "link set lo up\n"
	for _, name := range []string{"mgmt", "oob", "lan", "wan"} {
		script += "link add " + name + " type bridge\nlink set " + name + " up\n"
	}

	script += "addr add 10.99.0.1/24 dev mgmt\naddr add 10.98.0.1/24 dev oob\n"
	if _, err := say(script, "ip", "-n", b.controller(), "-batch", "-"); err != nil {
		return nil, err
	}

	for _, m := range of {
		m.controller, m.space, m.keys = b.controller(), b.prefix+m.name, keys
		if slices.Contains(freeBSD, m.name) {
			m.system = "FreeBSD"
		}

		b.machines[m.name] = m
		if err := m.boot(); err != nil {
			return nil, err
		}
	}

	return b, nil
}

func (b *bed) controller() string { return b.prefix + "controller" }

// command is one of the program's, on the controller.
func (b *bed) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := b.Command(ctx, args...)
	ip, err := exec.LookPath("ip")
	if err != nil {
		ip = "ip" // its start says so
	}

	cmd.Args = slices.Concat([]string{"ip", "netns", "exec", b.controller(), cmd.Path}, args)
	cmd.Path = ip
	return cmd
}

// shown runs a plan by the agent and returns what show says of it, which -keep keeps as a file. codes are
// exit codes that are no failure of the run.
func (b *bed) shown(ctx context.Context, t *testing.T, within time.Duration, plan, name string,
	codes ...int) string {
	t.Helper()
	locked(t, func() {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		cmd := b.command(ctx, slices.Concat([]string{"run", plan, "--quiet"}, b.aboard("agent"))...)
		said, err := cmd.CombinedOutput()
		if err != nil && !slices.Contains(codes, cmd.ProcessState.ExitCode()) {
			t.Fatalf("run: %v: %s", err, said)
		}
	})
	said, err := b.say("show", "--json", "latest")
	if err == nil && *keep != "" {
		err = errors.Join(os.MkdirAll(*keep, 0o755),
			os.WriteFile(filepath.Join(*keep, name), []byte(said), 0o644))
	}

	if err != nil {
		t.Fatal(err)
	}

	return said
}

// saysWithin bounds how long a command of the program may take that is no run.
const saysWithin = 2 * time.Minute

func (b *bed) say(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), saysWithin)
	defer cancel()
	cmd := b.command(ctx, args...)
	var wrong strings.Builder
	cmd.Stderr = &wrong
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("chokepoint %s: %w: %s", strings.Join(args, " "), err, wrong.String())
	}

	return string(out), err
}

// aboard are the options of a run on the bed.
func (b *bed) aboard(driver string) []string {
	args := []string{"--client", "ssh://client", "--router", "ssh://router", "--server", "ssh://server",
		"--ssh-config", filepath.Join(b.keys, "config")}
	if driver != "agent" {
		args = append(args, "--driver", driver)
	}
	return args
}

// sshdScript is a machine from its mounts on; $1 is what uname says of its system, if that is not the
// kernel's own word.
const sshdScript = `mount -t tmpfs tmpfs /run
mkdir -p -m 755 /run/sshd
cp "$0/host" /run/sshd/host
cp "$0/id.pub" /run/sshd/authorized
path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
if [ -n "$1" ]; then
	mkdir /run/sshd/bin
	printf '#!/bin/sh\ncase $1 in -s) echo %s;; -m) echo amd64;; esac\n' "$1" >/run/sshd/bin/uname
	chmod 755 /run/sshd/bin/uname
	path=/run/sshd/bin:$path
fi
for t in /tmp /var/tmp /dev/shm /root; do mount -t tmpfs -o mode=1777 tmpfs $t; done
exec /usr/sbin/sshd -D -f /dev/null -o HostKey=/run/sshd/host -o AuthorizedKeysFile=/run/sshd/authorized \
	-o StrictModes=no -o UsePAM=no -o PasswordAuthentication=no -o PermitRootLogin=yes -o PidFile=none \
	-o SetEnv=PATH=$path -o MaxStartups=100 -E /run/sshd/log`

// boot makes the machine as it comes up: its devices, what is configured on them, and sshd.
func (m *machine) boot() error {
	if m.root != "" {
		return m.bootOpenWrt()
	}

	inside := "link set lo up\n"
	outside := ""
	for _, p := range m.ports {
		far := m.name + "-" + p.on
		outside += fmt.Sprintf("link add %[1]s type veth peer name %[2]s address %[3]s netns %[4]s\n"+
			"link set %[1]s master %[5]s up\n", far, p.device, p.hardware, m.space, p.on)
		inside += fmt.Sprintf("addr add %s dev %s\nlink set %s up\n", p.address, p.device, p.device)
	}

	if m.gateway != "" {
		inside += "route add default via " + m.gateway + "\n"
	}

	_, err := say("", "ip", "netns", "add", m.space)
	if err == nil {
		_, err = say(outside, "ip", "-n", m.controller, "-batch", "-")
	}

	if err == nil {
		_, err = say(inside, "ip", "-n", m.space, "-batch", "-")
	}

	if err == nil && m.forwards {
		_, err = say("", "ip", "netns", "exec", m.space, "sysctl", "-qw", "net.ipv4.ip_forward=1")
	}

	if err != nil {
		return err
	}

	m.outer = exec.Command("ip", "netns", "exec", m.space, "unshare", "--mount", "--pid", "--fork",
		"--kill-child", "--mount-proc", "sh", "-ec", sshdScript, m.keys, m.system)
	if err := m.outer.Start(); err != nil {
		return err
	}

	return m.await()
}

// await waits until sshd answers.
func (m *machine) await() error {
	address, _, _ := strings.Cut(m.ports[0].address, "/")
	var err error
	for range 100 {
		time.Sleep(50 * time.Millisecond)
		_, err = say("", "ip", "netns", "exec", m.controller, "ssh", "-F", filepath.Join(m.keys, "config"),
			"-o", "ConnectTimeout=2", m.name, "true")
		if err == nil {
			break
		}
	}

	if err != nil {
		return fmt.Errorf("%s at %s never answered: %w", m.name, address, err)
	}

	if m.guest {
		m.pid = m.outer.Process.Pid
		return nil
	}

	outer := strconv.Itoa(m.outer.Process.Pid)
	children, err := os.ReadFile("/proc/" + outer + "/task/" + outer + "/children")
	if err == nil {
		m.pid, err = strconv.Atoi(strings.TrimSpace(string(children)))
	}

	return err
}

// settled waits until the kernel has made sure that the machine's addresses are nobody else's.
func (m *machine) settled() (lines []string, err error) {
	for range 100 {
		if lines, err = m.state(); err != nil || !strings.Contains(strings.Join(lines, "\n"), "tentative") {
			break
		}

		time.Sleep(100 * time.Millisecond)
	}
	return lines, err
}

// halt ends everything on the machine at once, and forgets what its kernel knew: without power.
func (m *machine) halt() error {
	if m.outer != nil {
		_ = m.outer.Process.Kill()
		_ = m.outer.Wait() // by a signal
		m.outer = nil
	}

	gone := func() bool { // or waits to be reaped
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", m.pid))
		return err != nil || len(line) == 0
	}
	for range 200 {
		if gone() && m.guest {
			return nil
		}

		if gone() {
			_, err := say("", "ip", "netns", "del", m.space)
			return err
		}

		time.Sleep(20 * time.Millisecond)
	}

	return fmt.Errorf("the processes of %s do not end", m.space)
}

// process is one on a machine.
type process struct {
	pid        int
	name, line string
}

func (p process) sshd() bool { return strings.HasPrefix(p.name, "sshd") }

// kill says whether there was one.
func (p process) kill() bool { return p.pid > 1 && syscall.Kill(p.pid, syscall.SIGKILL) == nil }

// processes returns those on the machine but its first.
func (m *machine) processes() (all []process) {
	space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", m.pid))
	entries, err2 := os.ReadDir("/proc")
	if errors.Join(err, err2) != nil {
		return []process{{name: "none can be listed"}}
	}

	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == m.pid {
			continue
		}

		if is, err := os.Readlink("/proc/" + e.Name() + "/ns/pid"); err != nil || is != space {
			continue
		}

		name, err := os.ReadFile("/proc/" + e.Name() + "/comm")
		line, err2 := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if errors.Join(err, err2) == nil && len(line) > 0 {
			all = append(all, process{pid, strings.TrimSpace(string(name)),
				strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))})
		}
	}

	return all
}

// lookScript tells all that a run could have changed.
const lookScript = `ip -o -d link; ip -o addr; ip rule; ip -6 rule
ip route show table all; ip -6 route show table all
tc qdisc show; nft list ruleset
for d in eth0 eth1; do ethtool -k $d; done
sysctl -a --pattern '^net\.(ipv[46]\.(conf|ip_forward|tcp_)|core\.)' 2>/dev/null; true`

// passing are parts of it that are new at each boot, or time that runs.
var passing = regexp.MustCompile(`@if\d+|link-netnsid \d+| expires \d+sec|\s+$`)

// state returns what the machine is: its configuration, line by line.
func (m *machine) state() ([]string, error) {
	out, err := say("", "ip", "netns", "exec", m.space, "sh", "-c", lookScript)
	if err != nil {
		return nil, err
	}

	var lines []string
	for line := range strings.Lines(out) {
		lines = append(lines, passing.ReplaceAllString(strings.TrimRight(line, "\n"), ""))
	}

	return lines, nil
}

// traces returns what a run may have left there: processes, and files. Those of sshd are not a run's.
func (m *machine) traces() (all []string) {
	for _, p := range m.processes() {
		if !p.sshd() {
			all = append(all, fmt.Sprintf("process %s: %.80s", p.name, p.line))
		}
	}

	for _, dir := range []string{"/run", "/tmp", "/var/tmp", "/dev/shm"} {
		top := fmt.Sprintf("/proc/%d/root", m.pid)
		found, _ := filepath.Glob(top + dir + "/chokepoint-*") // the pattern is well-formed
		for _, f := range found {
			all = append(all, "file "+strings.TrimPrefix(f, top))
		}
	}
	return all
}

// difference lists what came and what went.
func difference(before, now []string, but string) (out []string) {
	differ := func(sign string, from, in []string) {
		for _, line := range from {
			if !slices.Contains(in, line) && (but == "" || !strings.Contains(line, but)) {
				out = append(out, sign+line)
			}
		}
	}
	differ("+ ", now, before)
	differ("- ", before, now)
	return out
}
