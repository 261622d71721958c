package secrets_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// machinesPlan lays a tunnel between real machines; the router's driver sets a queue.
const machinesPlan = `name: machines
method: {duration: 500ms, warmup: 100ms, cooldown: 0, idle: 200ms, runs: 1}
matrix: {%s}
`

// sshdScript is a machine of a lab, from its mounts on. What sshd says is searched, too.
const sshdScript = `mount -t tmpfs tmpfs /run
mkdir -m 755 /run/sshd
install -m 644 $0/id.pub /run/sshd/authorized
sed "s,^\(root:.*\):[^:]*\$,\1:/bin/sh," /etc/passwd >/run/passwd # no .bashrc of this machine is read at each login
mount --bind /run/passwd /etc/passwd
exec $(command -v sshd) -D -f /dev/null -o HostKey=$0/host -o AuthorizedKeysFile=/run/sshd/authorized \
	-o StrictModes=no -o UsePAM=no -o PasswordAuthentication=no -o PermitRootLogin=yes -o PidFile=none -E $1`

// keep writes files that are nobody else's.
func keep(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// reachMachines plays real machines by the nodes of a lab, and runs on them over ssh.
func (p *place) reachMachines(t *testing.T, ctx context.Context) {
	if _, err := exec.LookPath("sshd"); err != nil {
		fmt.Fprintln(t.Output(), "note: no sshd here: real machines are not reached")
		return
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends what goes on in the lab
	try := func(args ...string) string {
		t.Helper()
		said, err := p.watch(ctx, nil, args...)
		if err != nil {
			t.Fatal(err)
		}

		return said
	}
	on := func(node string, args ...string) []string {
		return append([]string{"lab", "exec", node, "--"}, args...)
	}
	program := func(args ...string) []string { return on("client", append([]string{p.Path}, args...)...) }
	var lab struct{ ID string }
	if err := json.Unmarshal([]byte(try("lab", "up", "--json")), &lab); err != nil {
		t.Fatalf("lab up: %v", err)
	}
	defer try("lab", "down", lab.ID)
	keys := t.TempDir()
	p.makeKeys(t, keys)
	for _, node := range []string{"router", "server"} {
		p.goOn(t, ctx, on(node, "unshare", "-m", "sh", "-ec", sshdScript, keys, p.At("tmp/"+node+".log"))...)
	}

	config := filepath.Join(keys, "config")
	for _, node := range []string{"router", "server"} {
		p.await(t, ctx, on("client", "ssh", "-F", config, node, "true")...)
	}

	// What the lab has for its own tunnels stands in the way of those of real machines.
	try(on("server", "ip", "addr", "del", "198.19.65.2/32", "dev", "wan")...)
	try(on("server", "ip", "route", "del", "198.19.1.0/24")...)
	try(on("router", "ip", "route", "del", "198.19.65.2/32")...)

	plan := p.At("machines.yaml")
	keep(t, p.Dir, map[string]string{"machines.yaml": fmt.Sprintf(machinesPlan,
		"tunnel: [none, wireguard-userspace]")})
	p.inMemory = false
	keep(t, keys, map[string]string{"lab.yaml": "client: local\nrouter: ssh://router\n" +
		"server: ssh://server\nssh_config: config\n"})
	file := filepath.Join(keys, "lab.yaml")
	try(program("run", plan, "--json", "--output", p.At("report.html"), "--lab", file)...)
	p.inUse(t)
	try(program("lab", "conform", "--driver", "linux", "--lab", file, "--output",
		p.At("state/bundle.json"))...)

	for _, args := range [][]string{{"lab", "restore", "--json"}, {"show", "latest"},
		{"show", "--json", "latest"}, {"report", "latest", "--format", "md"},
		{"report", "latest", "--format", "json"}} {
		try(args...)
	}

	p.searchShared()
}

// makeKeys makes the keys of ssh, of which the private one must stand nowhere.
func (p *place) makeKeys(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"id", "host"} {
		out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f",
			filepath.Join(dir, name)).CombinedOutput()
		if err != nil {
			t.Fatalf("ssh-keygen: %v: %s", err, out)
		}
	}

	private, err := os.ReadFile(filepath.Join(dir, "id"))
	public, err2 := os.ReadFile(filepath.Join(dir, "host.pub"))
	lines := strings.Split(string(private), "\n")
	if err = errors.Join(err, err2); err != nil || len(lines) < 5 {
		t.Fatalf("keys of %d lines: %v", len(lines), err)
	}

	p.others = map[string]string{"the private key of ssh": lines[3]}
	key := strings.Join(strings.Fields(string(public))[:2], " ")
	keep(t, dir, map[string]string{"known": "198.18.1.2 " + key + "\n198.18.2.2 " + key + "\n",
		"config": fmt.Sprintf("Host router\n HostName 198.18.1.2\nHost server\n HostName 198.18.2.2\n"+
			"Host *\n User root\n IdentityFile %[1]s/id\n IdentitiesOnly yes\n IdentityAgent none\n"+
			" UserKnownHostsFile %[1]s/known\n GlobalKnownHostsFile /dev/null\n", dir)})
}

// goOn starts what ends with ctx.
func (p *place) goOn(t *testing.T, ctx context.Context, args ...string) {
	t.Helper()
	cmd := p.Command(ctx, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = cmd.Wait() }) // it was killed
}

// await repeats a command until it works.
func (p *place) await(t *testing.T, ctx context.Context, args ...string) {
	t.Helper()
	var err error
	for range 100 {
		if _, err = p.Say(ctx, args...); err == nil {
			return
		}

		time.Sleep(100 * time.Millisecond)
	}

	t.Fatal(err)
}
