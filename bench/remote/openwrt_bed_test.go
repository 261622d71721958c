package remote_test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// outOfBand ends the name of a machine where it is reached by another device than the program's.
const outOfBand = "-oob"

// openWrtMachines returns those of a bed whose router has a root file system like OpenWrt's, in a folder that
// openwrt/build has made: in namespaces of this machine, or in a guest with a kernel of its own. Its own
// files configure its devices. We look at it by another network than the program does.
func openWrtMachines(root, work string, guest bool) []*machine {
	all := machines()
	i := slices.IndexFunc(all, func(m *machine) bool { return m.name == "router" })
	all[i] = &machine{
		name:  "router",
		root:  root,
		work:  work,
		guest: guest,
		ports: []port{
			{"eth0", "wan", "203.0.113.1/24", "02:00:00:00:02:01"},
			{"eth1", "lan", "192.168.7.1/24", "02:00:00:00:01:01"},
			{managed, "mgmt", "10.99.0.3/24", "02:00:00:00:00:03"},
			{"oob0", "oob", "10.98.0.3/24", "02:00:00:00:03:03"}},
	}
	return all
}

// namespaceScript is such a machine in namespaces: its root is a copy in memory.
const namespaceScript = `mount -t tmpfs -o size=128m,mode=755 tmpfs "$2"
cp -aT "$0/root" "$2"
(cd "$2/root" && cp "$1/id.pub" .ssh/authorized_keys)
mount -t proc proc "$2/proc"
mount -t sysfs sysfs "$2/sys"
mount -t tmpfs -o size=16m,mode=1777 tmpfs "$2/tmp"
mount -t tmpfs -o mode=755 tmpfs "$2/dev"
mkdir "$2/dev/pts"
for d in null zero random urandom tty; do : >"$2/dev/$d"; mount --bind "/dev/$d" "$2/dev/$d"; done
exec chroot "$2" /sbin/init`

// keysScript adds the key that root may log in with to a guest's initrd.
const keysScript = `rm -rf "$2/own"
mkdir -p "$2/own/root"
(cd "$2/own/root" && mkdir .ssh && chmod 700 . .ssh && cp "$1/id.pub" .ssh/authorized_keys)
cp "$0/initrd" "$2/initrd"
cd "$2/own" && find . | cpio -o -H newc -R 0:0 --quiet | gzip >>"$2/initrd"`

func (m *machine) bootOpenWrt() error {
	if m.guest {
		return m.bootGuest()
	}

	_, err := say("", "ip", "netns", "add", m.space)
	for _, p := range m.ports {
		if err == nil {
			_, err = say(fmt.Sprintf("link add %[1]s type veth peer name %[2]s address %[3]s netns %[4]s\n"+
				"link set %[1]s master %[5]s up\n", m.name+"-"+p.on, p.device, p.hardware, m.space, p.on),
				"ip", "-n", m.controller, "-batch", "-")
		}
	}

	if err != nil {
		return err
	}

	m.outer = exec.Command("ip", "netns", "exec", m.space, "unshare", "--mount", "--pid", "--fork",
		"--kill-child", "sh", "-ec", namespaceScript, m.root, m.keys, m.work)
	return m.started()
}

// bootGuest boots it as a guest, on the kernel and the emulated machine of lab vm's guests.
func (m *machine) bootGuest() error {
	if _, err := say("", "sh", "-ec", keysScript, m.root, m.keys, m.work); err != nil {
		return err
	}

	args := []string{"netns", "exec", m.controller, "qemu-system-x86_64", "-nodefaults", "-no-user-config",
		"-display", "none", "-M", "q35", "-cpu", "qemu64", "-accel", "tcg", "-smp", "1", "-m", "256",
		"-kernel", filepath.Join(m.root, "kernel"), "-initrd", filepath.Join(m.work, "initrd"), "-append",
		"console=ttyS0 quiet loglevel=4 panic=-1 nokaslr mitigations=off cryptomgr.notests tsc=reliable " +
			"no_timer_check rdinit=/sbin/init",
		"-serial", "file:" + filepath.Join(m.work, "console"),
		"-qmp", "unix:" + filepath.Join(m.work, "qmp") + ",server=on,wait=off"}
	taps := ""
	for i, p := range m.ports {
		tap := m.name + "-" + p.on
		taps += fmt.Sprintf("tuntap add dev %[1]s mode tap vnet_hdr\nlink set %[1]s master %[2]s up\n", tap,
			p.on)
		args = append(args, "-netdev", fmt.Sprintf("tap,id=n%d,ifname=%s,script=no,downscript=no", i, tap),
			"-device", fmt.Sprintf("virtio-net-pci,netdev=n%d,mac=%s,romfile=", i, p.hardware))
	}

	if _, err := say(taps, "ip", "-n", m.controller, "-batch", "-"); err != nil {
		return err
	}

	m.outer = exec.Command("ip", args...)
	return m.started()
}

// started starts the machine's first process and waits until ssh answers.
func (m *machine) started() error {
	log, err := os.Create(filepath.Join(m.work, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	m.outer.Stdout, m.outer.Stderr = log, log
	if err := m.outer.Start(); err != nil {
		return err
	}

	if err := m.await(); err != nil {
		return fmt.Errorf("%w: %s%s", err, read(log.Name()), read(filepath.Join(m.work, "console")))
	}

	return nil
}

// monitor has QEMU do something: a command of its machine protocol.
func (m *machine) monitor(command string) error {
	c, err := net.DialTimeout("unix", filepath.Join(m.work, "qmp"), 5*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}

	answers := bufio.NewScanner(c)
	for _, each := range []string{"qmp_capabilities", command} {
		if _, err := fmt.Fprintf(c, "{\"execute\": %q}\n", each); err != nil {
			return err
		}

		for answered := false; !answered; {
			if !answers.Scan() {
				return fmt.Errorf("%s: QEMU does not answer: %w", each, answers.Err())
			}

			var a struct {
				Return json.RawMessage
				Error  *struct{ Desc string }
			}
			if err := json.Unmarshal(answers.Bytes(), &a); err != nil {
				return err
			}

			if a.Error != nil {
				return fmt.Errorf("%s: %s", each, a.Error.Desc)
			}

			answered = a.Return != nil // else an event, or what it says first
		}
	}

	return nil
}

// shell runs a script on the machine, by the network that the program does not use.
func (m *machine) shell(script string) (string, error) {
	return say(script, "ip", "netns", "exec", m.controller, "timeout", "60", "ssh", "-F",
		filepath.Join(m.keys, "config"), "-o", "ConnectTimeout=5", "-o", "ServerAliveInterval=5",
		m.name+outOfBand, "sh -s")
}

// openWrtLook tells all that a run could have changed, with what BusyBox has. A trace is a process or a file
// of the program's.
const openWrtLook = `ip addr; ip route; ip -6 route; ip rule; tc qdisc show; nft -s list ruleset
uci changes; md5sum /etc/config/*
for f in /sys/class/net/*/mtu /sys/class/net/*/tx_queue_len /sys/class/net/*/queues/rx-*/rps_cpus; do
echo "$f $(cat "$f")"; done
sysctl -a 2>/dev/null | grep -v tcp_fastopen_key |
grep -E '^net\.(ipv[46]\.(conf|ip_forward|ip_default_ttl|tcp_)|core\.|netfilter.nf_conntrack_max)'
for f in /run/chokepoint-* /tmp/chokepoint-* /dev/shm/chokepoint-*; do [ ! -e "$f" ] || echo "trace: file ${f%-*}"; done
for p in /proc/[0-9]*; do case "$(tr '\0' ' ' <"$p/cmdline" 2>/dev/null)" in
*chokepoint-watch*) echo "trace: sampler";; *chokepoint-guard*) echo "trace: guard";; esac; done
echo "end of it"`

// handle is of a queue: the kernel's own has another number than one that was put back.
var handle = regexp.MustCompile(`^(qdisc \S+) [0-9a-f]+:`)

// look returns what the machine is, line by line, when it has settled.
func (m *machine) look() (lines []string, err error) {
	for range 20 {
		said, err := m.shell(openWrtLook)
		if err != nil {
			return nil, err
		}

		if !strings.HasSuffix(strings.TrimSpace(said), "end of it") {
			return nil, fmt.Errorf("%s says but half of what it is", m.name)
		}

		if strings.Contains(said, "tentative") {
			time.Sleep(500 * time.Millisecond)
			continue
		}

		lines = nil
		for line := range strings.Lines(said) {
			line = passing.ReplaceAllString(strings.TrimRight(line, "\n"), "")
			lines = append(lines, handle.ReplaceAllString(line, "$1"))
		}

		return lines, nil
	}
	return nil, fmt.Errorf("the addresses of %s stay tentative", cmp.Or(m.name, "a machine"))
}
