package isp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
)

// serve is the handler of knob.VerbServe, which runs the provider.
func serve(ctx context.Context, s host.Session, a knob.Access) (err error) {
	var password host.Secret
	if a.User != "" {
		if password, err = s.(host.SecretSession).RecvSecret(); err != nil {
			return host.Quiet(err)
		}
		defer password.Use(func(b []byte) error { clear(b); return nil })
	}

	if err := a.Check(); err != nil {
		return err
	}

	shared, err := kernel.Shared(a.Device)
	if err != nil {
		return err
	}

	if shared != "" && !a.Force {
		return check.WithHint(fmt.Errorf("serve on %s: %s, so that what is served there may reach others",
			a.Device, shared), "name a port with nothing but the router on it, and part of no bridge or bond")
	}

	var undo host.Undoing
	defer func() { undo.Run(&err) }()
	was, err := kernel.IsUp(a.Device)
	if err == nil && !was {
		undo.Add(func() error { return kernel.Down(a.Device) })
		err = kernel.Up(a.Device)
	}

	if err != nil {
		return err
	}

	has, err := addAddresses(a.Device, a.Addresses, &undo)
	if err != nil {
		return err
	}

	if len(a.Addresses) > 0 { // so that other networks of the port are ignored
		has = a.Addresses
	}

	own := slices.IndexFunc(has, func(p netip.Prefix) bool { return p.Addr().Is4() })
	if own < 0 {
		return fmt.Errorf("serve on %s: it has no IPv4 address", a.Device)
	}

	p := &provider{
		Access:   a,
		own:      has[own],
		password: password,
		failed:   make(chan error, 1),
		say:      make(chan string, 16),
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if a.IPv6.IsValid() {
		err := p.serveIPv6(ctx, &undo)
		switch {
		case errors.Is(err, host.ErrUnsupported):
			p.tell("IPv4 only: %v", err)
			p.IPv6 = netip.Prefix{}
		case err != nil:
			return err
		}
	}

	ended, err := p.start(ctx)
	if err != nil {
		return err
	}

	undo.Add(func() error { stop(); return ended() })
	if err := s.Send(Event{}); err != nil {
		return host.Quiet(err)
	}

	told := make(chan struct{})
	go func() {
		defer close(told)
		for {
			select {
			case text := <-p.say:
				if s.Send(Event{text}) != nil {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	err = held(ctx, s, p.failed)
	stop()
	<-told
	return err
}

// addAddresses adds the wanted addresses that a device does not have yet. It returns the addresses that the
// device had before.
func addAddresses(dev string, wanted []netip.Prefix, undo *host.Undoing) (has []netip.Prefix, err error) {
	has, err = kernel.Addresses(dev)
	for _, p := range wanted {
		if err == nil && !slices.Contains(has, p) {
			undo.Add(func() error { return kernel.DelAddress(dev, p) })
			err = kernel.AddAddress(dev, p)
		}
	}
	return has, err
}

// provider serves subscribers on one port.
type provider struct {
	knob.Access
	own      netip.Prefix
	password host.Secret
	failed   chan error
	say      chan string
}

// tell sends an event to the controller. It drops the event if the channel is full, because reporting must
// not delay the service.
func (p *provider) tell(format string, args ...any) {
	select {
	case p.say <- fmt.Sprintf(format, args...):
	default:
	}
}

func (p *provider) fail(err error) {
	select {
	case p.failed <- err:
	default:
	}
}

// start serves DHCP or PPPoE until ctx ends or ended is called. ended waits until the service has ended.
func (p *provider) start(ctx context.Context) (ended func() error, err error) {
	switch p.Kind {
	case knob.DHCP:
		return p.serveDHCP()
	case knob.PPPoE:
		return p.servePPPoE(ctx)
	}
	return func() error { return nil }, nil
}

// joinTime is the time limit for obtaining an address from an emulated provider.
const joinTime = 30 * time.Second

// join is the handler of knob.VerbJoin, which runs the subscriber.
func join(ctx context.Context, s host.Session, a knob.Access) (err error) {
	if err := a.Check(); err != nil {
		return err
	}

	var undo host.Undoing
	defer func() { undo.Run(&err) }()
	failed := make(chan error, 1)
	switch a.Kind {
	case knob.DHCP:
		err = joinDHCP(ctx, a, &undo, failed)
	case knob.PPPoE:
		err = joinPPPoE(ctx, a, &undo, failed)
	}

	if err != nil {
		return fmt.Errorf("join the provider on %s by %s: %w", a.Device, a.Kind, err)
	}

	if err := s.Send(Event{}); err != nil {
		return host.Quiet(err)
	}

	return held(ctx, s, failed)
}

var errGone = errors.New("pppd has ended")

// await waits until the device has an address for which the function such returns true. It returns an error
// if pppd exits first.
func await(ctx context.Context, dev string, gone <-chan struct{}, such func(netip.Addr) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, joinTime, fmt.Errorf("no address within %s", joinTime))
	defer cancel()
	for {
		if i, err := net.InterfaceByName(dev); err == nil {
			has, _ := i.Addrs() // error ignored: the device may not exist yet or any more
			if slices.ContainsFunc(has, func(a net.Addr) bool {
				p, err := netip.ParsePrefix(a.String())
				return err == nil && such(p.Addr())
			}) {
				return nil
			}
		}

		select {
		case <-gone:
			return errGone
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func macOf(dev string) (*net.Interface, error) {
	i, err := net.InterfaceByName(dev)
	if err == nil && len(i.HardwareAddr) != 6 {
		err = errors.New("it is no Ethernet device")
	}

	if err != nil {
		err = fmt.Errorf("find %s: %w", dev, err)
	}

	return i, err
}
