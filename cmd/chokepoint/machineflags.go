package main

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/lab/ssh"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// addMachineFlags names the machines of a lab of real ones.
func addMachineFlags(f *pflag.FlagSet, m *record.Machines) {
	f.StringVar(&m.Client.At, "client", "", "the client is `MACHINE`: local, or ssh://[USER@]HOST[:PORT]")
	f.StringVar(&m.Router.At, "router", "", "the router between is `MACHINE`; without it the router "+
		"is not observed")
	f.StringVar(&m.Server.At, "server", "", "the server is `MACHINE`")
	f.StringVar(&m.Client.Address, "client-address", "", "send the data from `ADDRESS` of the client "+
		"(default: found)")
	f.StringVar(&m.Server.Address, "server-address", "", "send the data to `ADDRESS` of the server "+
		"(default: found)")
	f.StringVar(&m.Router.LAN, "router-lan", "", "`DEVICE` of the router that faces the client "+
		"(default: found)")
	f.StringVar(&m.Router.WAN, "router-wan", "", "`DEVICE` of the router that faces the server "+
		"(default: found)")
	f.IntVar(&m.Port, "data-port", 0, "first `PORT` of three for the data (default 20100)")
	addSSHFlags(f, m)
}

// addSSHFlags adds the flags of the ssh connections.
func addSSHFlags(f *pflag.FlagSet, m *record.Machines) {
	f.StringVar(&m.SSHConfig, "ssh-config", "", "use `FILE` instead of your ssh configuration")
	f.BoolVar(&m.AcceptNew, acceptNew, false, "trust and remember the host key of "+
		"an unknown machine")
}

// acceptNew is no key of a lab file, because whoever starts the command answers for it.
const acceptNew = "accept-new"

// machineFlags lists the names of those flags.
var machineFlags = [...]string{"client", "router", "server", "client-address", "server-address", "router-lan",
	"router-wan", "data-port", "ssh-config", acceptNew}

// addMachines gives a command that has a lab the flags of machines instead of it.
func addMachines(cmd *cobra.Command, m *record.Machines) {
	addMachineFlags(cmd.Flags(), m)
	for _, name := range []string{"lab", "cpus", "memory", "cpu-model", "image", "kernel", "queues", "attach",
		"peer"} {
		for _, machine := range machineFlags {
			if cmd.Flags().Lookup(name) != nil && (name != "lab" || machine != acceptNew) {
				cmd.MarkFlagsMutuallyExclusive(name, machine)
			}
		}
	}
}

// checkPlace returns an error if no machine can be at that address.
func checkPlace(at string) error {
	if at == record.LocalMachine {
		return nil
	}
	_, err := ssh.Parse(at)
	if err != nil {
		err = check.WithHint(err, check.HintOf(err)+"; or local")
	}
	return err
}

// lastPort is the highest value of the first data port.
const lastPort = 65535 - 2

// checkMachines refuses machines that cannot be meant, in the words of the flags; alone: a router will do.
func checkMachines(m record.Machines, alone bool) error {
	_, err := wrongMachines(m, flagOf)
	alone = alone && m.Router.At != "" && m.Router.At != record.LocalMachine && m.Client == m.Server
	if err == nil && !alone && (m.Client.At == "" || m.Server.At == "") {
		err = app.Usage("name both: --client local "+
			"--server ssh://HOST, and the router between, if it can be reached",
			"a lab of real machines has a client and a server")
	}
	return err
}

// flagOf returns the flag for a key of a lab file, or the key's own name if it has no flag.
func flagOf(key string) string {
	flag := strings.NewReplacer(".", "-", "_", "-").Replace(key)
	if key == "router.driver" {
		return "--driver"
	}
	if slices.Contains(machineFlags[:], flag) {
		return "--" + flag
	}
	return nameOfKey(key)
}

func nameOfKey(key string) string { return key[strings.LastIndexByte(key, '.')+1:] }

// wrongMachines returns what is wrong with m and the key of the lab file; named formats that key.
func wrongMachines(m record.Machines, named func(key string) string) (key string, err error) {
	wrong := func(key, hint, format string, args ...any) (string, error) {
		return key, app.Usage(hint, format, args...)
	}
	all := []struct {
		key string
		of  record.Machine
	}{{"client", m.Client}, {"router", m.Router}, {"server", m.Server}}
	for i, x := range all {
		if x.of.At != "" {
			if err := checkPlace(x.of.At); err != nil {
				return wrong(x.key, check.HintOf(err), "%s: %v", named(x.key), err)
			}
		}
		for _, other := range all[:i] {
			if x.of.At != "" && x.of.At == other.of.At ||
				x.key == "router" && x.of.At == record.LocalMachine && m.Client.At+m.Server.At != "" {
				return wrong(x.key, "name each once; at most one end is local",
					"%s %s: client, router and server are machines of their own", named(x.key), x.of.At)
			}
		}
		if key, err := wrongMachine(x.key, x.of, named); err != nil {
			return key, err
		}
	}
	for _, x := range [...]struct{ key, given string }{{"router.lan", m.Router.LAN},
		{"router.wan", m.Router.WAN}, {"router.driver", m.Router.Driver}} {
		if m.Router.At == "" && x.given != "" {
			return wrong(x.key, "name the router: ssh://HOST", "%s without a router", named(x.key))
		}
	}
	if err := knownDriver(m.Router.Driver); err != nil {
		return "router.driver", err
	}
	switch {
	case m.Server.ISP != "" && !slices.Contains(knob.Accesses(), m.Server.ISP):
		return wrong("server.isp", "", "isp %q: want one of %s", m.Server.ISP,
			list(knob.Accesses()))
	case (m.Server.ISP == "") != (m.Server.ISPPort == ""):
		key = "server.isp_port"
		if m.Server.ISP != "" {
			key = "server.isp"
		}
		return wrong(key, "name the device of the server that the router's WAN port is plugged into",
			"isp and isp_port go together")
	case m.Port < 0 || m.Port > lastPort:
		return wrong("data_port", fmt.Sprintf("a number from 1 to %d", lastPort), "%s %d", named("data_port"),
			m.Port)
	}
	if m.AllowSysctl != nil {
		if _, err := knob.Permit(*m.AllowSysctl); err != nil {
			return wrong("allow_sysctl", check.HintOf(err), "allow_sysctl: %v", err)
		}
	}
	if m.Firmware != nil {
		if err := host.TrustedCommand(*m.Firmware); err != nil {
			return wrong("firmware", cmp.Or(check.HintOf(err), "a program that can be started here; beside "+
				"the lab file it begins with ./"), "firmware: %v", err)
		}
	}
	if m.SSHConfig == "" {
		return "", nil
	}
	if _, err := ssh.ConfigCommands(m.SSHConfig); err != nil {
		return wrong("ssh_config", cmp.Or(check.HintOf(err), "name a file that ssh -F can read"), "%s: %v",
			named("ssh_config"), err)
	}
	return "", nil
}

// wrongMachine is wrongMachines for one machine.
func wrongMachine(name string, m record.Machine, named func(key string) string) (key string, err error) {
	wrong := func(key, hint, format string, args ...any) (string, error) {
		key = name + "." + key
		return key, app.Usage(hint, "%s", named(key)+fmt.Sprintf(format, args...))
	}
	if _, err := netip.ParseAddr(m.Address); m.Address != "" && err != nil {
		return wrong("address", "such as 192.0.2.7 or 2001:db8::7", " %q is no address", m.Address)
	}
	for key, device := range map[string]string{"lan": m.LAN, "wan": m.WAN, "isp_port": m.ISPPort,
		"management": m.Management} {
		if device != "" && !deviceLike(device) {
			return wrong(key, "such as eth0", " %q is no name of a device", check.Plain(device))
		}
	}
	if m.Jump+m.Identity != "" && !strings.HasPrefix(m.At, ssh.Scheme) {
		key = "identity"
		if m.Jump != "" {
			key = "jump"
		}
		return wrong(key, "leave it out, or write ssh://HOST", ": the %s is not reached by ssh", name)
	}
	if m.Jump != "" {
		for hop := range strings.SplitSeq(m.Jump, ",") {
			if _, err := ssh.Parse(ssh.Scheme + hop); err != nil {
				return wrong("jump", "[USER@]HOST[:PORT], several with commas", ": %v", err)
			}
		}
	}
	if m.Identity == "" {
		return "", nil
	}
	f, err := host.OpenTrusted(m.Identity)
	if err != nil {
		return wrong("identity", cmp.Or(check.HintOf(err), "name the file of a private key that you can "+
			"read"), ": %v", err)
	}
	f.Close()
	return "", nil
}

// maxDevice bounds a device's name: RouterOS has long ones.
const maxDevice = 64

// deviceLike reports whether name can be a network device on a supported system. RouterOS has names with
// blanks.
func deviceLike(name string) bool {
	return len(name) <= maxDevice && name[0] != '-' && !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' && r != ' ' || r > '~' || strings.ContainsRune("\"'`;|&$<>\\(){}*?!#", r)
	})
}
