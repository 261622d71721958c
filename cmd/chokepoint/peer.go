package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/pair"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// By default, the data ports of a peer come right after app.PeerPort, so that a firewall needs only one rule.
const (
	peerData     = "20101-20103"
	peerPatience = time.Hour
)

type peerOptions struct {
	port     int
	data     string
	patience time.Duration
	codeFile string
	bind     string
	once     bool
	log      bool
	isp      ispOptions
}

func newPeerCommand(p *program) *cobra.Command {
	var o peerOptions
	cmd := &cobra.Command{
		Use:   "peer",
		Short: "Serve as the far end of a run on another machine",
		Long: `Serve as the far end of a run on another machine: chokepoint run --peer measures what
lies between the two. peer prints this machine's addresses and a code. The code is new
each time, and run asks for it. Runs are served one at a time. They may request traffic,
a description of this machine, and its load. They cannot execute, write or change
anything here. Ctrl-C ends peer.

A firewall must permit TCP to the port, and TCP and UDP to the data ports.

With --isp, peer also plays the router's internet provider on a port of this machine. A
router with factory settings gets its address by DHCP or PPPoE, and also an IPv6 prefix.
With --isp static, you configure the router's address by hand. Connect nothing else to
that port.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runPeer(cmd.Context(), o, p) },
	}
	f := cmd.Flags()
	f.IntVar(&o.port, "port", app.PeerPort, "listen on this TCP port `N`")
	f.StringVar(&o.data, "data-ports", peerData, "use these ports `A-B` for data, TCP and UDP; three or more")
	f.DurationVar(&o.patience, "for", peerPatience, "end if no run connects for this time `D`")
	f.Lookup("for").DefValue = unit.Duration(peerPatience)
	f.StringVar(&o.codeFile, "code-file", "",
		"write the code to this new `FILE`, readable only by you, instead of printing it")
	f.StringVar(&o.bind, "bind", "", "listen only on this `ADDRESS` (default: all addresses of the machine)")
	f.BoolVar(&o.once, "once", false, "end after the first run")
	f.BoolVar(&o.log, "kernel-log", false, "include this machine's kernel log in the runs")
	o.isp.flags(f)
	return cmd
}

func runPeer(ctx context.Context, o peerOptions, p *program) (err error) {
	ports, err := o.check()
	if err != nil {
		return err
	}

	if err := o.isp.alone(); err != nil {
		return err
	}

	asked := ctx
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var at []netip.Addr // addresses to listen on; the first is also used for control
	if o.isp.kind != "" {
		var end func() error
		if at, end, err = o.isp.begin(ctx, p, fail); err != nil { // listen only on the router's side
			return err
		}
		defer app.Closing(&err, end)
	}

	if o.bind != "" {
		bind, err := netip.ParseAddr(o.bind)
		if err != nil || bind.IsUnspecified() {
			return app.Usage("give one of those that chokepoint peer prints",
				"--bind %q is no address of a machine", o.bind)
		}

		at = []netip.Addr{bind.Unmap()}
	}

	if len(at) > 0 {
		o.bind = at[0].String()
	}

	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", net.JoinHostPort(o.bind, strconv.Itoa(o.port)))
	if err != nil {
		hint := "another peer may be listening there; --port chooses another one"
		if errors.Is(err, unix.EADDRNOTAVAIL) {
			hint = "give --bind one of this machine's addresses; without it chokepoint peer prints them"
		}
		return app.Hinted(hint, "listen at %s: %v", net.JoinHostPort(o.bind, strconv.Itoa(o.port)),
			check.Underlying(err))
	}

	code := pair.NewCode()
	if err := o.show(ctx, code, at, p); err != nil {
		return errors.Join(err, ln.Close())
	}

	served := registry.Peer{Ports: ports, Version: app.RunVersion(), KernelLog: o.log, Bind: at}
	refused := refusals{note: p.note}
	listener := pair.Listener{Code: code, Idle: o.patience, Once: o.once, Tell: refused.report}
	err = listener.Serve(ctx, ln, served.Serve)
	if asked.Err() == nil && ctx.Err() != nil { // the provider failed
		return context.Cause(ctx)
	}

	if errors.Is(err, pair.ErrIdle) {
		p.note("no run has connected for %s", o.patience)
		return nil
	}

	return err
}

func (o peerOptions) check() (ports [2]int, err error) {
	first, last, _ := strings.Cut(o.data, "-")
	a, errA := strconv.Atoi(first)
	b, errB := strconv.Atoi(last)
	switch {
	case errA != nil || errB != nil || a < 1 || b > 65535 || b-a+1 < lab.MinDataPorts:
		return ports, app.Usage("write it as "+peerData, "--data-ports %q is no range of %d ports or more",
			o.data, lab.MinDataPorts)
	case o.port < 1 || o.port > 65535:
		return ports, app.Usage("a number from 1 to 65535", "--port %d is no port", o.port)
	case o.port >= a && o.port <= b:
		return ports, app.Usage("choose another for one of them", "--port %d is one of the data ports",
			o.port)
	case o.patience <= 0:
		return ports, app.Usage("give it with a unit, such as 90m", "--for %s is not a time to wait",
			o.patience)
	}

	return [2]int{a, b}, nil
}

// show prints the address and how to connect to this machine.
func (o peerOptions) show(ctx context.Context, code host.Secret, own []netip.Addr, p *program) error {
	if len(own) == 0 {
		var err error
		if own, err = lab.OwnAddresses(); err != nil {
			return err
		}
	}

	var b builder
	b.printf(
		"listening for a run on TCP port %d; data on ports %s, TCP and UDP\n\naddresses of this machine\n",
		o.port, o.data)
	for _, a := range own {
		b.printf("  %s\n", a)
	}

	secret := "code\n  " + pair.Text(code) + "\n"
	if o.codeFile != "" {
		if err := writeCode(o.codeFile, code); err != nil {
			return err
		}

		secret = "code\n  in " + o.codeFile + "\n"
	}

	b.WriteString("\n" + secret + "\non the other machine\n  chokepoint run --peer " + o.target(own) + "\n")
	return p.print(b.String())
}

// target returns the address at which the other machine most likely reaches this machine.
func (o peerOptions) target(own []netip.Addr) string {
	at := "HOST"
	if len(own) > 0 {
		at = own[0].String()
	}

	if o.port == app.PeerPort {
		return at
	}

	return net.JoinHostPort(at, strconv.Itoa(o.port))
}

// writeCode creates a file for the pairing code. It never overwrites a file, because that file may be another
// user's, or readable by others.
func writeCode(file string, code host.Secret) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write the code to %s: %v", file, check.Underlying(err))
	}

	_, err = f.WriteString(pair.Text(code) + "\n")
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write the code to %s: %v", file, check.Underlying(err))
	}

	return nil
}

// refusals prints the connections of a peer. It prints at most one refused connection per address in ten
// seconds, and at most one per second in total.
type refusals struct {
	note func(format string, args ...any)

	mu     sync.Mutex
	last   time.Time
	by     map[netip.Addr]time.Time
	hidden int
}

const (
	reportEach  = 10 * time.Second
	reportAny   = time.Second
	maxReported = 1000 // maximum number of addresses remembered
)

func (r *refusals) report(from netip.AddrPort, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !strings.HasPrefix(what, "refused") {
		r.note("%s: %s", from, what)
		return
	}

	now := time.Now()
	if now.Sub(r.last) < reportAny || now.Sub(r.by[from.Addr()]) < reportEach {
		r.hidden++
		return
	}

	if r.by == nil || len(r.by) >= maxReported {
		r.by = map[netip.Addr]time.Time{}
	}

	r.last, r.by[from.Addr()] = now, now
	if r.hidden > 0 {
		what += fmt.Sprintf(" (and %s before that are not shown)", unit.Count(r.hidden, "refusal"))
		r.hidden = 0
	}

	r.note("%s: %s", from, what)
}
