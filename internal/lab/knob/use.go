package knob

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// All returns all knobs in display order.
func All() []Knob {
	return []Knob{CPUCount(), LinkMTU(), Queue(), TxQueueLen(), Offload(), WAN(), NAT(), VLAN(), Firewall(),
		IPForward(), Sysctl(), CPUs(), IRQAffinity(), Flowtable(), MSSClamp(), ConntrackMax(), Shape(),
		Policer(), NAPIThreaded(), GROFlushTimeout(), IdlePolicies(), IdleTunnels(), FlowExport(), Governor(),
		CPUQuota(), FaultPlant()}
}

// answer converts the error of an attempt to an answer: yes, no or unknown.
func answer(err error) check.Answer {
	switch {
	case err == nil:
		return check.OK()
	case errors.Is(err, kernel.ErrUnsupported), errors.Is(err, kernel.ErrAbsent),
		errors.Is(err, host.ErrUnsupported):
		return check.Not("%v", err).Hinted("%s", check.HintOf(err))
	case errors.Is(err, fs.ErrPermission):
		return check.Not("%v", err).Hinted("%s", cmp.Or(check.HintOf(err),
			"run as root: this setting is not for unprivileged users"))
	}
	return check.CouldNotTell("%v", err)
}

// impossible wraps an error to report that the kernel does not support a state. The controller receives it as
// host.ErrUnsupported.
type impossible struct{ error }

func (e impossible) Unwrap() []error { return []error{e.error, host.ErrUnsupported} }

// cannot returns an error that gives the reason why a state is impossible.
func cannot(format string, args ...any) error { return impossible{fmt.Errorf(format, args...)} }

func conclude(err error) error {
	if errors.Is(err, kernel.ErrUnsupported) {
		return impossible{err}
	}
	return err
}

// itsOwn returns an error with a hint if a setting of the whole machine is requested on a node that shares
// its kernel.
func itsOwn(name string, p Place, hint string) error {
	if p.OwnKernel {
		return nil
	}
	return check.WithHint(cannot("set %s: %s is part of this machine, which all of the lab shares", name,
		p.Node), hint)
}
