package main

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/serve"
)

const serveAddress = "127.0.0.1:8080"

type serveOptions struct {
	listen string
	hosts  []string
	remote bool
}

func newServeCommand(p *program) *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Show the stored runs in a browser",
		Long: `Show the stored runs in a browser on this machine: a list to search, the report of each
run, comparisons, histories and devices. The same is available as JSON below /api/v1/,
and the newest run of each plan on each device for Prometheus at /metrics. Nothing is
changed. Ctrl-C ends it.

There is no password and no encryption: whoever reaches the address reads all runs.
Therefore it listens on this machine only, unless --allow-remote permits another
address. Browsers must use the address as the name of the server, or a name that --host
adds.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runServe(cmd.Context(), o, p) },
	}
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", serveAddress, "listen on this `ADDRESS:PORT`; port 0 is any free one")
	f.StringArrayVar(&o.hosts, "host", nil, "browsers may also use this `NAME`; may be repeated")
	f.BoolVar(&o.remote, "allow-remote", false, "allow an address that other machines can reach")
	return cmd
}

func runServe(ctx context.Context, o serveOptions, p *program) error {
	at, err := o.check()
	if err != nil {
		return err
	}

	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, at.network, o.listen)
	if err != nil {
		hint := "--listen chooses another address"
		if errors.Is(err, unix.EADDRINUSE) {
			hint = "another program listens there; --listen 127.0.0.1:0 takes a free port"
		}
		return app.Hinted(hint, "listen at %s: %v", o.listen, check.Underlying(err))
	}

	urls, err := at.urls(ln.Addr())
	if err == nil && !o.remote {
		err = o.onlyHere(ln.Addr())
	}

	if err == nil {
		err = p.print(urls)
	}

	if err != nil {
		return errors.Join(err, ln.Close())
	}

	if !at.local {
		p.note("caution: whoever reaches %s can read all runs, without a password or encryption", o.listen)
	}

	return serve.New(&p.App, append(o.hosts, at.host)...).Serve(ctx, ln)
}

// listenAddress is the place where a server listens.
type listenAddress struct {
	network string
	host    string // "": all addresses of the machine
	local   bool   // only this machine can reach it
}

// urls returns the address of the first page, one a line if there are several.
func (at listenAddress) urls(bound net.Addr) (text string, err error) {
	hosts := []string{at.host}
	if at.host == "" {
		own, err := lab.OwnAddresses()
		if err != nil {
			return "", err
		}

		hosts = each(own, netip.Addr.String)
	}

	for _, host := range hosts {
		port := strconv.Itoa(bound.(*net.TCPAddr).Port)
		text += (&url.URL{Scheme: "http", Host: net.JoinHostPort(host, port), Path: "/"}).String() + "\n"
	}

	return text, nil
}

// check returns where to listen.
func (o serveOptions) check() (at listenAddress, err error) {
	host, port, err := net.SplitHostPort(o.listen)
	n, portErr := strconv.Atoi(port)
	if err != nil || portErr != nil || n < 0 || n > 65535 {
		return at, app.Usage("write it as "+serveAddress, "--listen %q is no address with a port", o.listen)
	}

	for _, name := range o.hosts {
		_, err := netip.ParseAddr(name)
		if err != nil && strings.ContainsAny(name, "/: ") {
			return at, app.Usage("give the name alone, such as runs.example.net",
				"--host %q is no name of a machine", name)
		}
	}

	ip, err := netip.ParseAddr(host)
	at = listenAddress{"tcp", host, host == "localhost" || err == nil && ip.IsLoopback()}
	if ip.Is4() {
		at.network = "tcp4" // 0.0.0.0 would stand for all addresses of IPv6, too
	}

	if ip.IsUnspecified() {
		at.host = ""
	}

	if !at.local && !o.remote {
		return at, o.reachable()
	}

	return at, nil
}

// onlyHere returns an error if other machines can reach the address: localhost may have any.
func (o serveOptions) onlyHere(bound net.Addr) error {
	if !bound.(*net.TCPAddr).IP.IsLoopback() {
		return o.reachable()
	}
	return nil
}

func (o serveOptions) reachable() error {
	return app.Usage("add --allow-remote if everyone who reaches it may read all runs",
		"--listen %s is an address that other machines can reach", o.listen)
}
