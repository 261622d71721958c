package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/isp"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
)

// ispOptions configure the peer as the provider of the router's WAN.
type ispOptions struct {
	kind, device, address, user, passwordFile string
	force                                     bool
}

func (o *ispOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.kind, "isp", "", "also play the router's provider; the `KIND` of WAN access: "+
		list(knob.Accesses()))
	f.StringVar(&o.device, "isp-port", "", "the `DEVICE` that the router's WAN port is connected to")
	f.StringVar(&o.address, "isp-address", knob.ProviderAddress,
		"the provider's `ADDRESS/BITS`; the router gets an address in that network")
	f.StringVar(&o.user, "isp-user", "", "PPPoE: require the router to log in as `NAME`, by PAP or CHAP")
	f.StringVar(&o.passwordFile, "isp-password-file", "",
		"`FILE` whose first line is the password for --isp-user")
	f.BoolVar(&o.force, "isp-force", false,
		"accept a port that others share, or that this machine's default route uses")
}

// alone returns an error if flags of the provider are set without --isp.
func (o *ispOptions) alone() error {
	if o.kind != "" || *o == (ispOptions{address: knob.ProviderAddress}) {
		return nil
	}
	return app.Usage("add --isp with one of "+list(knob.Accesses()),
		"--isp-port, --isp-address, --isp-user, --isp-password-file, --isp-force without --isp")

}

// ofHost reports whether p.Addr may be the address of a host, rather than a network, broadcast, multicast or
// loopback address.
func ofHost(p netip.Prefix) bool {
	a := p.Addr()
	return !a.IsMulticast() && !a.IsLoopback() && !netip.MustParsePrefix("0.0.0.0/8").Contains(a) &&
		a.AsSlice()[0] < 224 && a != p.Masked().Addr() && p.Contains(a.Next())
}

// access returns the provider that the options describe.
func (o *ispOptions) access() (a knob.Access, password host.Secret, err error) {
	p, parseErr := netip.ParsePrefix(o.address)
	switch {
	case !slices.Contains(knob.Accesses(), o.kind):
		err = app.Usage(check.Choice(o.kind, "kinds", knob.Accesses()), "--isp %q: want one of %s", o.kind,
			list(knob.Accesses()))
	case o.device == "":
		err = app.Usage("name the port that the router's WAN port is plugged into: --isp-port DEVICE",
			"--isp without --isp-port")
	case parseErr != nil || !p.Addr().Is4() || p.Bits() > 30 || !ofHost(p):
		err = app.Usage("such as "+knob.ProviderAddress,
			"--isp-address %q is no IPv4 address of a host with the length of its network", o.address)
	case (o.user != "") != (o.passwordFile != "") || o.user != "" && o.kind != knob.PPPoE:
		err = app.Usage("", "--isp-user and --isp-password-file go together, with --isp pppoe")
	case strings.ContainsFunc(o.user, func(r rune) bool { return r < ' ' || r > '~' }):
		err = app.Usage("", "--isp-user %q: want printable ASCII", o.user)
	case o.user != "":
		if password, err = host.Password(o.passwordFile); err != nil {
			err = app.Usage(check.HintOf(err), "--isp-password-file: %v", err)
		}
	}

	a = knob.Provider(o.kind, o.device)
	a.Addresses = []netip.Prefix{p}
	a.User = o.user
	a.Force = o.force
	return a, password, err
}

// begin starts the provider in a child process, which undoes its changes even if this process is killed.
// begin prints events, and calls failed if the provider cannot continue. own holds the addresses on the
// router's side, IPv4 first. end waits until all changes are undone.
func (o *ispOptions) begin(ctx context.Context, p *program, failed func(error)) (own []netip.Addr,
	end func() error, err error) {
	a, password, err := o.access()
	if err != nil {
		return nil, nil, err
	}

	if os.Geteuid() != 0 {
		return nil, nil, app.Hinted("run it by sudo", "play the provider: that is for root")
	}

	child, err := host.Spawn{Args: []string{agent.ChildRole}}.Start()
	if err != nil {
		return nil, nil, fmt.Errorf("play the provider: %w", err)
	}

	node := host.Connect(child)
	s, err := node.Open(ctx, knob.VerbServe, a)
	if carrier, ok := s.(host.SecretSession); err == nil && ok && !password.Empty() {
		err = carrier.SendSecret(password)
	}

	if err == nil {
		err = host.Await(ctx, s, nil)
	}

	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("play the provider: %w", err), node.Close())
	}

	own = a.Own()
	if has, err := lab.OwnAddresses(); err == nil { // IPv6 may be missing
		own = slices.DeleteFunc(own, func(a netip.Addr) bool { return !slices.Contains(has, a) })
	}

	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			var e isp.Event
			if err := s.Recv(&e); err != nil {
				quiet := ctx.Err() != nil || errors.Is(err, host.ErrUnreachable)
				if !quiet {
					failed(fmt.Errorf("play the provider: %w", err))
				}
				return
			}

			p.note("provider: %s", check.Plain(e.Text))
		}
	}()
	return own, func() error {
		err := errors.Join(s.Finish(), s.Close(), node.Close())
		<-over
		if errors.Is(err, host.ErrUnreachable) {
			return nil
		}

		return err
	}, nil
}
