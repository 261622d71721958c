package kernel

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
)

// reportDetails enables the extended error messages of the kernel. It sets a global variable of the library,
// and therefore does so only once.
var reportDetails = sync.OnceFunc(func() { nl.EnableErrorMessageReporting = true })

// dumps is the maximum number of attempts at a dump. The kernel interrupts a dump if objects change during
// the dump (NLM_F_DUMP_INTR, EINTR).
const dumps = 5

func dump[T any](list func() (T, error)) (T, error) {
	reportDetails()
	var got T
	var err error
	for range dumps {
		if got, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) && !errors.Is(err, syscall.EINTR) {
			return got, err
		}
	}

	return got, err
}

// dumpMessages sends a dump request that contains data. It returns the kernel's answers of the given type, or
// all if the type is 0.
func dumpMessages(protocol, question int, answer uint16, data ...nl.NetlinkRequestData) ([][]byte, error) {
	return dump(func() ([][]byte, error) {
		req := nl.NewNetlinkRequest(question, syscall.NLM_F_DUMP)
		for _, d := range data {
			req.AddData(d)
		}

		return req.Execute(protocol, answer)
	})
}

// pick returns the first listed item for which the function meant returns true. If there is none, it returns
// the zero value.
func pick[T any](list func() ([]T, error), meant func(T) bool) (found T, err error) {
	all, err := dump(list)
	i := slices.IndexFunc(all, meant)
	if err == nil && i >= 0 {
		found = all[i]
	}

	return found, err
}

func find(dev string) (netlink.Link, error) {
	l, err := dump(func() (netlink.Link, error) { return netlink.LinkByName(dev) })
	_, missing := errors.AsType[netlink.LinkNotFoundError](err)
	if missing {
		return nil, fmt.Errorf("device %s %w", dev, ErrAbsent)
	}

	return l, err
}

// replaced removes our previous state, adds the wanted state and reads it back. If that fails, replaced
// removes the state again, so the result is complete or empty. There is one exception: if want is empty but a
// state is read back, replaced returns an error and keeps that state. Such a state belongs to another
// process, such as the agent of a killed controller, which may still be restoring a setting while its
// successor changes the setting.
func replaced[T any](want T, same func(a, b T) bool, remove, add func() error, read func() (T, error)) error {
	err := inOrder(remove, add, func() error {
		got, err := read()
		if err == nil && !same(got, want) {
			err = fmt.Errorf("kernel has %+v", got)
		}
		return err
	})
	var nothing T
	if err != nil && !same(want, nothing) {
		err = errors.Join(err, remove())
	}

	return err
}

func equal[T comparable](a, b T) bool { return a == b }
