package main

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/lab/rest"
	"github.com/chokepoint-lab/chokepoint/internal/lab/ssh"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
)

// addMachineFlags names the machines of a lab of real ones.
func addMachineFlags(f *pflag.FlagSet, m *record.Machines) {
	f.StringVar(&m.Client.At, "client", "", "the client is `MACHINE`: local, or ssh://[USER@]HOST[:PORT]")
	f.StringVar(&m.Router.At, "router", "", "the router between is `MACHINE`, or https://USER@HOST[:PORT] "+
		"with RouterOS and the password in "+host.RouterPassword+"; without one it is not looked into")
	f.StringVar(&m.Server.At, "server", "", "the server is `MACHINE`")
	f.StringVar(&m.Client.Address, "client-address", "", "the data comes from `ADDRESS` of the client "+
		"(default: found)")
	f.StringVar(&m.Server.Address, "server-address", "", "the data goes to `ADDRESS` of the server "+
		"(default: found)")
	f.StringVar(&m.Router.LAN, "router-lan", "", "`DEVICE` of the router that faces the client "+
		"(default: found)")
	f.StringVar(&m.Router.WAN, "router-wan", "", "`DEVICE` of the router that faces the server "+
		"(default: found)")
	f.IntVar(&m.Port, "data-port", 0, "first `PORT` of three for the data (default 20100)")
	addSSHFlags(f, m)
	addCertificateFlag(f, m)
}

// addCertificateFlag says which certificate a router has that is reached by https.
func addCertificateFlag(f *pflag.FlagSet, m *record.Machines) {
	f.StringVar(&m.Router.Certificate, "router-certificate", "", "the router's certificate of https has the "+
		"fingerprint SHA256:`DIGITS` (default: its issuer is trusted)")
}

// addSSHFlags say how machines are reached over ssh.
func addSSHFlags(f *pflag.FlagSet, m *record.Machines) {
	f.StringVar(&m.SSHConfig, "ssh-config", "", "`FILE` instead of your configuration of ssh")
	f.BoolVar(&m.AcceptNew, "accept-new", false, "trust and remember the host key of "+
		"a machine that is not known")
}

// machineFlags are the names of those.
var machineFlags = [...]string{"client", "router", "server", "client-address", "server-address", "router-lan",
	"router-wan", "router-certificate", "data-port", "ssh-config", "accept-new"}

// addMachines gives a command that has a lab the flags of machines instead of it.
func addMachines(cmd *cobra.Command, m *record.Machines) {
	addMachineFlags(cmd.Flags(), m)
	for _, name := range []string{"lab", "cpus", "memory", "cpu-model", "image", "kernel", "queues", "attach",
		"peer"} {
		for _, machine := range machineFlags {
			cmd.MarkFlagsMutuallyExclusive(name, machine)
		}
	}
}

// judgeMachine says what is wrong with where a machine is.
func judgeMachine(at string) error {
	if at == record.LocalMachine {
		return nil
	}
	if rest.Addressed(at) {
		_, err := rest.Parse(at)
		return err
	}
	_, err := ssh.Parse(at)
	if err != nil {
		err = check.WithHint(err, check.HintOf(err)+"; or local")
	}
	return err
}

// checkREST refuses what a router that is reached by https, or http, cannot have, and one whose password is
// not told.
func checkREST(m record.Machine) error {
	if !rest.Addressed(m.At) {
		if m.Certificate+m.PasswordFile != "" {
			return &usageError{"a certificate, or a password_file, of a router that is not reached by https",
				"write https://USER@HOST"}
		}
		return nil
	}
	_, err := rest.Password(m.PasswordFile)
	if err == nil && m.Certificate != "" {
		_, err = rest.ParseCertificate(m.Certificate)
	}
	_, secure := strings.CutPrefix(m.At, rest.Secure+":")
	switch {
	case err != nil:
		return &usageError{err.Error(), check.HintOf(err)}
	case m.Certificate != "" && !secure:
		return &usageError{"a certificate of a router that is reached by http", "write https://USER@HOST"}
	case m.Driver != "" && m.Driver != driver.RouterOS{}.Name():
		return &usageError{fmt.Sprintf("driver %s of a router that is reached by https", m.Driver),
			"leave it out, or write ssh://HOST"}
	}
	return nil
}

// lastPort is the highest of those that the first data port may be.
const lastPort = 65535 - 2

// checkMachines refuses machines that cannot be meant.
func checkMachines(m record.Machines) error {
	for flag, of := range map[string]record.Machine{"--client": m.Client, "--router": m.Router,
		"--server": m.Server} {
		if err := judgeMachine(of.At); of.At != "" && err != nil {
			return &usageError{fmt.Sprintf("%s: %v", flag, err), check.HintOf(err)}
		}
	}
	if _, known := driver.Named(m.Router.Driver); m.Router.Driver != "" && !known {
		return unknownDriver(m.Router.Driver)
	}
	for flag, text := range map[string]string{"--client-address": m.Client.Address,
		"--server-address": m.Server.Address} {
		if _, err := netip.ParseAddr(text); text != "" && err != nil {
			return &usageError{fmt.Sprintf("%s %q is no address", flag, text),
				"such as 192.0.2.7 or 2001:db8::7"}
		}
	}
	switch {
	case rest.Addressed(m.Client.At) || rest.Addressed(m.Server.At):
		return &usageError{"only a router is reached by https", "write local or ssh://[USER@]HOST[:PORT]"}
	case m.Client.At == "" || m.Server.At == "":
		return &usageError{"a lab of real machines has a client and a server",
			"name both: --client local --server ssh://HOST, and the router between, if it can be reached"}
	case m.Router.At == record.LocalMachine || m.Client.At == m.Server.At || m.Router.At == m.Client.At ||
		m.Router.At == m.Server.At:
		return &usageError{"client, router and server are machines of their own", "name each once; at most " +
			"one end is local"}
	case m.Router.At == "" && m.Router.LAN+m.Router.WAN != "":
		return &usageError{"--router-lan or --router-wan without --router",
			"name the router: --router ssh://HOST"}
	case m.Server.ISP != "" && !slices.Contains(knob.Accesses(), m.Server.ISP):
		return &usageError{fmt.Sprintf("isp %q: want one of %s", m.Server.ISP,
			strings.Join(knob.Accesses(), ", ")), ""}
	case (m.Server.ISP == "") != (m.Server.ISPPort == ""):
		return &usageError{"isp and isp_port go together",
			"name the device of the server that the router's WAN port is plugged into"}
	case m.Port < 0 || m.Port > lastPort:
		return &usageError{fmt.Sprintf("--data-port %d", m.Port),
			fmt.Sprintf("a number from 1 to %d", lastPort)}
	}
	if err := checkREST(m.Router); err != nil {
		return err
	}
	return checkSSHConfig(m.SSHConfig)
}

func checkSSHConfig(file string) error {
	if _, err := os.Stat(file); file != "" && err != nil {
		return &usageError{fmt.Sprintf("--ssh-config: %v", err), "name a file that ssh -F can read"}
	}
	return nil
}

// absoluteMachines makes the paths absolute, because a run may be resumed from another folder.
func absoluteMachines(m *record.Machines) error {
	paths := []*string{&m.SSHConfig, &m.Router.PasswordFile}
	if m.Firmware != nil && strings.ContainsRune((*m.Firmware)[0], '/') {
		paths = append(paths, &(*m.Firmware)[0])
	}
	for _, path := range paths {
		if *path == "" {
			continue
		}
		var err error
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	return nil
}

// remote is the lab of a run's machines.
func (x *execution) remote() lab.Remote {
	return lab.Remote{ID: x.run.ID + "-machines", Machines: *x.run.Machines, Dir: labsDir(x.p.dirs),
		Journal: x.journal, Parts: registry.LabParts(), Program: x.p.agentProgram}
}
