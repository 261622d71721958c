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

// reportDetails makes the library request the kernel's own error messages. It is a switch of the library, set
// once and never changed.
var reportDetails = sync.OnceFunc(func() { nl.EnableErrorMessageReporting = true })

// dumps bounds how often a listing is repeated when the kernel reports a change meanwhile (NLM_F_DUMP_INTR,
// EINTR).
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

// pick returns the listed item that meant selects; the zero value if there is none.
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

// replaced removes our previous state, adds the wanted one, and reads it back: the new state is complete, or
// absent. If nothing is wanted, whatever is read back belongs to another process, and stays: the agent of a
// killed controller may still restore a setting while the next one sets it anew.
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
