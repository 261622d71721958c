package knob

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// Sysctl is the family of kernel settings: its State is "NAME=value", with the name as sysctl(8) writes it.
func Sysctl() Knob {
	return sysctl{declared{&factor.Declaration{
		Name: "sysctl:", Unit: "as sysctl(8) has it", Doc: "a kernel setting, by its name",
		Target: factor.EveryNode, Without: &factor.Without{Level: "default",
			Words: "of the same with the default"}, Placed: factor.Placed,
	}}}
}

type sysctl struct{ declared }

func (sysctl) Parse(text string) (State, error) {
	name, value, ok := strings.Cut(text, "=")
	name = strings.TrimSpace(name)
	value = strings.Join(strings.Fields(value), " ")
	if !ok || value == "" || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "", refuse("sysctl", text, want("NAME=value, such as net.ipv4.tcp_ecn=1"))
	}
	path, err := kernel.SysctlPath(name)
	if err != nil {
		return "", refuse("sysctl", text, want("a NAME such as net.ipv4.tcp_ecn"))
	}
	// Canonical is the spelling with dots, where no part has one itself.
	if name = strings.TrimPrefix(path, "/proc/sys/"); !strings.Contains(name, ".") {
		name = strings.ReplaceAll(name, "/", ".")
	}
	if !strings.ContainsAny(name, "./") {
		return "", refuse("sysctl", text, want("a NAME such as net.ipv4.tcp_ecn"))
	}
	return State(name + "=" + value), nil
}

func (sysctl) Same(want, got State) bool { return want == got }

func (sysctl) Read(_ context.Context, _ Place, want State) (State, error) {
	name, _, _ := strings.Cut(string(want), "=")
	value, err := kernel.ReadSysctl(name)
	if err != nil {
		return "", absent(err)
	}
	if value == "" {
		return "", fmt.Errorf("read sysctl %s: it is empty, which could not be restored", name)
	}
	return State(name + "=" + value), nil
}

func (sysctl) Apply(_ context.Context, _ Place, s State) error {
	name, value, ok := strings.Cut(string(s), "=")
	if !ok {
		return refuse("sysctl", string(s), want("NAME=value"))
	}
	return absent(kernel.WriteSysctl(name, value))
}

func (sysctl) Check(_ context.Context, _ Place, s State) check.Answer {
	name, _, _ := strings.Cut(string(s), "=")
	if _, err := kernel.ReadSysctl(name); err != nil {
		return answer(err)
	}
	a := answer(kernel.SysctlWritable(name))
	if a.State == check.No && a.Hint != "" {
		a.Hint = "settings of the whole machine are read-only in a lab's namespaces; set it on the machine " +
			"before the run"
	}
	return a
}

// absent makes a setting that does not exist here a conclusive answer.
func absent(err error) error {
	if errors.Is(err, kernel.ErrAbsent) {
		return impossible{err}
	}
	return conclude(err)
}
