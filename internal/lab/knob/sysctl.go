package knob

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// Sysctl is a family of knobs for kernel settings. Its states have the form "NAME=value", where NAME is as in
// sysctl(8).
func Sysctl() Knob {
	return sysctl{&kernelKnob[State]{
		declared: declared{factor.Declaration{
			Name:    "sysctl:",
			Unit:    "value as in sysctl(8)",
			Doc:     "kernel setting of this name",
			Target:  factor.EveryNode,
			Without: without("default", "with the default"),
			Placed:  factor.Placed,
		}},
		spelling: verbatim(parseSysctl),
		readFor:  readSysctl,
		apply: func(p Place, s State) error {
			name, value, _ := strings.Cut(s, "=")
			if err := allowSysctl(p, name); err != nil {
				return err
			}
			return absent(kernel.WriteSysctl(name, value))
		},
		check: func(p Place, s State) error {
			name, _, _ := strings.Cut(s, "=")
			_, err := readSysctl(p, s)
			if err == nil {
				err = writable(name, check.HintOf(ofMachine(name, p.Node)))
			}
			return err
		},
	}}
}

func parseSysctl(text string) (State, error) {
	name, value, ok := strings.Cut(text, "=")
	name = strings.TrimSpace(name)
	value = strings.Join(strings.Fields(value), " ")
	if !ok || value == "" || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "", want("NAME=value, such as net.ipv4.tcp_ecn=1")
	}

	path, err := kernel.SysctlPath(name)
	name = dotted(path)
	if err != nil || !strings.ContainsAny(name, "./") {
		return "", want("a NAME such as net.ipv4.tcp_ecn")
	}

	return name + "=" + value, nil
}

// sysctl restricts the settings that may be changed.
type sysctl struct{ *kernelKnob[State] }

// Allowed implements Limited.
func (sysctl) Allowed(p Place, s State) error {
	name, _, _ := strings.Cut(s, "=")
	return allowSysctl(p, name)
}

// allowSysctl returns an error if a setting may not be changed at a place. No change is allowed on the
// machine that hosts a lab, and other nodes allow only what Place.Sysctls permits. This protects machines
// that do not belong to the lab, because plans may come from other people but run as root.
func allowSysctl(p Place, name string) error {
	if p.Lab != "" || p.Node == factor.Host {
		return ofMachine(name, p.Node)
	}
	return p.Sysctls.Sysctl(name, p.Node)
}

func readSysctl(p Place, want State) (State, error) {
	name, _, _ := strings.Cut(want, "=")
	if err := allowSysctl(p, name); err != nil {
		return "", err
	}

	value, err := kernel.ReadSysctl(name)
	if err != nil {
		return "", absent(err)
	}

	now := name + "=" + value
	if _, err := parseSysctl(now); err != nil {
		return "", fmt.Errorf("read sysctl %s: its value %q could not be restored", name, value)
	}

	return now, nil
}

// writable returns an error if a kernel setting cannot be written. If only the permission is missing, the
// error has the given hint.
func writable(name, hint string) error {
	err := kernel.SysctlWritable(name)
	if errors.Is(err, fs.ErrPermission) {
		return check.WithHint(err, hint)
	}
	return err
}

// absent wraps the error for a missing setting as impossible, and passes other errors to conclude.
func absent(err error) error {
	if errors.Is(err, kernel.ErrAbsent) {
		return impossible{err}
	}
	return conclude(err)
}
