package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// addMachineFlags adds the flags that name the machines of a real lab.
func addMachineFlags(f *pflag.FlagSet, m *record.Machines) {
	f.StringVar(&m.Client.At, "client", "", "the client is `MACHINE`: local, or ssh://[USER@]HOST[:PORT]")
	f.StringVar(&m.Router.At, "router", "",
		"the router between client and server is `MACHINE`; if not given, the router is not observed")
	f.StringVar(&m.Server.At, "server", "", "the server is `MACHINE`")
	f.StringVar(&m.Client.Address, "client-address", "",
		"send the data from this `ADDRESS` of the client (default: found automatically)")
	f.StringVar(&m.Server.Address, "server-address", "",
		"send the data to this `ADDRESS` of the server (default: found automatically)")
	f.StringVar(&m.Router.LAN, "router-lan", "",
		"network `DEVICE` of the router that faces the client (default: found automatically)")
	f.StringVar(&m.Router.WAN, "router-wan", "",
		"network `DEVICE` of the router that faces the server (default: found automatically)")
	f.IntVar(&m.Port, "data-port", 0, "first `PORT` of three consecutive ones for the data (default 20100)")
	addSSHFlags(f, m)
}

// addSSHFlags adds the flags of the ssh connections.
func addSSHFlags(f *pflag.FlagSet, m *record.Machines) {
	f.StringVar(&m.SSHConfig, "ssh-config", "", "use `FILE` instead of your ssh configuration")
	f.BoolVar(&m.AcceptNew, acceptNew, false,
		"trust and remember the host key of an unknown machine")
}

// acceptNew is not allowed in a lab file, because only the user who starts the command can take
// responsibility for it.
const acceptNew = "accept-new"

// machineFlags lists the names of the flags that addMachineFlags adds.
var machineFlags = strings.Fields("client router server client-address server-address router-lan " +
	"router-wan data-port ssh-config " + acceptNew)

// addMachines adds the machine flags to a command that also accepts a lab. A command line cannot use both.
func addMachines(cmd *cobra.Command, m *record.Machines) {
	addMachineFlags(cmd.Flags(), m)
	for _, name := range slices.Concat(newLabFlags, []string{"attach", "peer"}) {
		for _, machine := range machineFlags {
			if cmd.Flags().Lookup(name) != nil && (name != "lab" || machine != acceptNew) {
				cmd.MarkFlagsMutuallyExclusive(name, machine)
			}
		}
	}
}

// checkMachines returns an error that names the flags if the machines are not valid. If alone is set, a
// router without a client and a server is enough.
func checkMachines(m record.Machines, alone bool) error {
	_, err := app.WrongMachines(m, flagOf)
	alone = alone && m.Router.At != "" && m.Client == m.Server
	if err == nil && !alone && m.Place == nil && (m.Client.At == "" || m.Server.At == "") {
		err = app.Usage(
			"name both: --client local --server ssh://HOST, and the router between, if it can be reached",
			"a lab of real machines has a client and a server")
	}

	return err
}

// flagOf returns the flag for a key of a lab file, or the key itself if there is no flag.
func flagOf(key string) string {
	flag := strings.NewReplacer(".", "-", "_", "-").Replace(key)
	if key == "router.driver" {
		return "--driver"
	}

	if slices.Contains(machineFlags, flag) {
		return "--" + flag
	}

	return app.KeyName(key)
}
