package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// addMachineFlags names the machines of a lab of real ones.
func addMachineFlags(f *pflag.FlagSet, m *record.Machines) {
	f.StringVar(&m.Client.At, "client", "", "the client is `MACHINE`: local, or ssh://[USER@]HOST[:PORT]")
	f.StringVar(&m.Router.At, "router", "", "the router between client and server is `MACHINE`; if not "+
		"given, the router is not observed")
	f.StringVar(&m.Server.At, "server", "", "the server is `MACHINE`")
	f.StringVar(&m.Client.Address, "client-address", "", "send the data from this `ADDRESS` of the "+
		"client (default: found automatically)")
	f.StringVar(&m.Server.Address, "server-address", "", "send the data to this `ADDRESS` of the server "+
		"(default: found automatically)")
	f.StringVar(&m.Router.LAN, "router-lan", "", "network `DEVICE` of the router that faces the client "+
		"(default: found automatically)")
	f.StringVar(&m.Router.WAN, "router-wan", "", "network `DEVICE` of the router that faces the server "+
		"(default: found automatically)")
	f.IntVar(&m.Port, "data-port", 0, "first `PORT` of three consecutive ones for the data (default 20100)")
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
	for _, name := range []string{"lab", "cpus", "memory", "cpu-model", "image", "kernel", "kernel-package",
		"queues", "attach", "peer"} {
		for _, machine := range machineFlags {
			if cmd.Flags().Lookup(name) != nil && (name != "lab" || machine != acceptNew) {
				cmd.MarkFlagsMutuallyExclusive(name, machine)
			}
		}
	}
}

// checkMachines refuses machines that cannot be meant, in the words of the flags; alone: a router will do.
func checkMachines(m record.Machines, alone bool) error {
	_, err := app.WrongMachines(m, flagOf)
	alone = alone && m.Router.At != "" && m.Client == m.Server
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

	return app.KeyName(key)
}
