package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/lab/labgrid"
	"github.com/chokepoint-lab/chokepoint/internal/lab/ssh"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/meter"
)

// ReadLabFile reads the machines from a lab file.
func ReadLabFile(name string) (record.Machines, error) {
	data, err := host.ReadTrusted(name)
	if err != nil {
		return record.Machines{}, Usage(cmp.Or(check.HintOf(err), "chokepoint lab init writes one"),
			"read lab file %s: %v", name, check.Underlying(err))
	}

	m, err := plan.ReadMachines(name, data, meter.Parse,
		func(m *record.Machines) (key string, err error) {
			for _, path := range PathsOf(m) {
				if strings.HasPrefix(*path, "~/") {
					*path = os.Getenv("HOME") + (*path)[1:]
				}

				if !filepath.IsAbs(*path) { // paths in a lab file are relative to the file
					if *path, err = filepath.Abs(filepath.Join(filepath.Dir(name), *path)); err != nil {
						return "", err
					}
				}
			}

			return WrongMachines(*m, KeyName)
		})
	return m, Mark(ErrUsage, err)
}

// WithMachines brings up a lab of real machines and calls f with it. held is the labgrid place that the
// machines belong to, or nil.
func (a *App) WithMachines(ctx context.Context, m record.Machines,
	f func(l *lab.Lab, held *labgrid.Held) error) error {
	if err := a.ShowCommands(m, nil); err != nil {
		return err
	}

	id := "check-" + NewID()
	return a.WithJournal(id, func(j *journal.Journal) error {
		held, err := a.takePlace(ctx, id, &m, j)
		if err != nil {
			return err
		}

		l, err := a.Remote(id, m, j).Up(ctx)
		if err == nil {
			err = errors.Join(f(l, held), Dirty(l.Close(context.WithoutCancel(ctx))))
		}

		_, unreleased := a.release(ctx, held)
		return errors.Join(err, unreleased)
	})
}

// CheckPlace returns an error if the address of a machine is invalid.
func CheckPlace(at string) error {
	if at == record.LocalMachine {
		return nil
	}

	_, err := ssh.Parse(at)
	if err != nil {
		err = check.WithHint(err, check.HintOf(err)+"; or local")
	}

	return err
}

// lastPort is the largest valid number for the first of the three data ports.
const lastPort = 65535 - 2

// KeyName returns the last component of a key in a lab file.
func KeyName(key string) string { return key[strings.LastIndexByte(key, '.')+1:] }

// WrongMachines returns an error if machines are invalid, and the key of the invalid value in the lab file.
// named formats that key for the error.
func WrongMachines(m record.Machines, named func(key string) string) (key string, err error) {
	if m.Place != nil {
		if key, err := wrongPlace(*m.Place, named); err != nil {
			return key, err
		}

		// The place's tags may name the machines that the lab file does not name.
		for name, of := range map[string]*record.Machine{"client": &m.Client, "router": &m.Router,
			"server": &m.Server} {
			of.At = cmp.Or(of.At, ssh.Scheme+"cp."+name)
		}
	}

	all := []struct {
		key string
		of  record.Machine
	}{{"client", m.Client}, {"router", m.Router}, {"server", m.Server}}
	for i, x := range all {
		at := x.of.At
		if err := CheckPlace(at); at != "" && err != nil {
			return x.key, Usage(check.HintOf(err), "%s: %v", named(x.key), err)
		}

		for _, other := range all[:i] {
			if at != "" && at == other.of.At ||
				x.key == "router" && at == record.LocalMachine && m.Client.At+m.Server.At != "" {
				return x.key, Usage("name each once; at most one end is local",
					"%s %s: client, router and server are machines of their own", named(x.key), at)
			}
		}

		if key, err := wrongMachine(x.key, x.of, named); err != nil {
			return key, err
		}
	}

	for _, x := range [...]struct{ key, given string }{{"router.lan", m.Router.LAN},
		{"router.wan", m.Router.WAN}, {"router.driver", m.Router.Driver}} {
		if m.Router.At == "" && x.given != "" {
			return x.key, Usage("name the router: ssh://HOST", "%s without a router", named(x.key))
		}
	}

	if err := KnownDriver(m.Router.Driver); err != nil {
		return "router.driver", err
	}

	switch {
	case m.Server.ISP != "" && !slices.Contains(knob.Accesses(), m.Server.ISP):
		return "server.isp", Usage("", "isp %q: want one of %s", m.Server.ISP,
			strings.Join(knob.Accesses(), ", "))
	case (m.Server.ISP == "") != (m.Server.ISPPort == ""):
		key = "server.isp_port"
		if m.Server.ISP != "" {
			key = "server.isp"
		}
		return key, Usage("name the device of the server that the router's WAN port is plugged into",
			"isp and isp_port go together")
	case m.Port < 0 || m.Port > lastPort:
		return "data_port", Usage(fmt.Sprintf("a number from 1 to %d", lastPort), "%s %d", named("data_port"),
			m.Port)
	}

	if m.AllowSysctl != nil {
		if _, err := knob.Permit(*m.AllowSysctl); err != nil {
			return "allow_sysctl", Usage(check.HintOf(err), "allow_sysctl: %v", err)
		}
	}

	if m.Firmware != nil {
		if err := host.TrustedCommand(*m.Firmware); err != nil {
			return "firmware", Usage(cmp.Or(check.HintOf(err), "a program that can be started here; beside "+
				"the lab file it begins with ./"), "firmware: %v", err)
		}
	}

	if m.Flash != nil && m.Place == nil {
		return "firmware.labgrid", Usage("name the place, or use command",
			"firmware: labgrid without a place")
	}

	if m.SSHConfig == "" {
		return "", nil
	}

	if _, err := ssh.ConfigCommands(m.SSHConfig); err != nil {
		return "ssh_config", Usage(cmp.Or(check.HintOf(err), "name a file that ssh -F can read"), "%s: %v",
			named("ssh_config"), err)
	}

	return "", nil
}

// wrongMachine implements WrongMachines for one machine.
func wrongMachine(name string, m record.Machine, named func(key string) string) (key string, err error) {
	wrong := func(key, hint, format string, args ...any) (string, error) {
		key = name + "." + key
		return key, Usage(hint, "%s", named(key)+fmt.Sprintf(format, args...))
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
		return wrong("identity", cmp.Or(check.HintOf(err),
			"name the file of a private key that you can read"), ": %v", err)
	}

	f.Close()
	return "", nil
}

// maxDevice is the maximum length of a device's name. RouterOS allows long names.
const maxDevice = 64

// deviceLike reports whether name could be the name of a network device on a supported system. RouterOS
// allows spaces in names.
func deviceLike(name string) bool {
	return len(name) <= maxDevice && name[0] != '-' && !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' && r != ' ' || r > '~' || strings.ContainsRune("\"'`;|&$<>\\(){}*?!#", r)
	})
}

// Drivers returns the names of the drivers.
func Drivers() (names []string) {
	for _, d := range driver.All() {
		names = append(names, d.Name())
	}
	return names
}

// KnownDriver returns an error if no driver has the given name. The empty name is valid.
func KnownDriver(name string) error {
	names := Drivers()
	if name == "" || slices.Contains(names, name) {
		return nil
	}

	return Usage(check.Choice(name, "drivers", names), "driver %q is not known", name)
}
