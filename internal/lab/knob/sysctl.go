package knob

import (
	"context"
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
	return &sysctl{declared{factor.Declaration{
		Name:    "sysctl:",
		Unit:    "value as in sysctl(8)",
		Doc:     "kernel setting of this name",
		Target:  factor.EveryNode,
		Without: without("default", "with the default"),
		Placed:  factor.Placed,
	}}}
}

type sysctl struct{ declared }

func (*sysctl) Parse(text string) (State, error) {
	name, value, ok := strings.Cut(text, "=")
	name = strings.TrimSpace(name)
	value = strings.Join(strings.Fields(value), " ")
	if !ok || value == "" || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "", refuse("sysctl", text, want("NAME=value, such as net.ipv4.tcp_ecn=1"))
	}

	path, err := kernel.SysctlPath(name)
	name = dotted(path)
	if err != nil || !strings.ContainsAny(name, "./") {
		return "", refuse("sysctl", text, want("a NAME such as net.ipv4.tcp_ecn"))
	}

	return name + "=" + value, nil
}

func (*sysctl) Same(want, got State) bool { return want == got }

// Allowed returns an error if a setting may not be changed at a place. No change is allowed on the machine
// that hosts a lab, and other nodes allow only what Place.Sysctls permits. This protects machines that do not
// belong to the lab, because plans may come from other people but run as root.
func (*sysctl) Allowed(p Place, s State) error {
	name, _, _ := strings.Cut(s, "=")
	if p.Lab != "" || p.Node == factor.Host {
		return ofMachine(name, p.Node)
	}
	return p.Sysctls.Sysctl(name, p.Node)
}

func (k *sysctl) Read(_ context.Context, p Place, want State) (State, error) {
	if err := k.Allowed(p, want); err != nil {
		return "", err
	}

	name, _, _ := strings.Cut(want, "=")
	value, err := kernel.ReadSysctl(name)
	if err != nil {
		return "", absent(err)
	}

	if value == "" {
		return "", fmt.Errorf("read sysctl %s: it is empty, which could not be restored", name)
	}

	return name + "=" + value, nil
}

func (k *sysctl) Apply(_ context.Context, p Place, s State) error {
	if err := k.Allowed(p, s); err != nil {
		return err
	}

	name, value, ok := strings.Cut(s, "=")
	if !ok {
		return refuse("sysctl", s, want("NAME=value"))
	}

	return absent(kernel.WriteSysctl(name, value))
}

func (k *sysctl) Check(_ context.Context, p Place, s State) check.Answer {
	name, _, _ := strings.Cut(s, "=")
	err := k.Allowed(p, s)
	if err == nil {
		_, err = kernel.ReadSysctl(name)
	}

	if err == nil {
		err = writable(name, check.HintOf(ofMachine(name, p.Node)))
	}

	return answer(err)
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
