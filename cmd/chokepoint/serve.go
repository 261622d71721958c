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
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/serve"
)

const serveAddress = "127.0.0.1:8080"

type serveOptions struct {
	listen    string
	hosts     []string
	remote    bool
	tokenFile string
	https     bool
}

func newServeCommand(p *program) *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Show the stored runs in a browser",
		Long: `Show the stored runs in a browser on this machine: a list to search, the report of each
run, comparisons, histories, devices, and testbeds with their live progress and alarms.
The same is available as JSON below /api/v1/, and the newest run of each plan on each
device for Prometheus at /metrics. Ctrl-C ends it.

Nothing is changed, unless --token-file names a token: who has it may start plans of
testbeds and cancel their jobs.

Reading needs no password, and there is no encryption: whoever reaches the address reads
all runs. Therefore it listens on this machine only, unless --allow-remote permits
another address. Browsers must use the address as the name of the server, or a name that
--host adds.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runServe(cmd.Context(), o, p) },
	}
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", serveAddress, "listen on this `ADDRESS:PORT`; port 0 is any free one")
	f.StringArrayVar(&o.hosts, "host", nil, "browsers may also use this `NAME`; may be repeated")
	f.BoolVar(&o.remote, "allow-remote", false, "allow an address that other machines can reach")
	f.StringVar(&o.tokenFile, "token-file", "",
		"whoever sends the first line of this `FILE` may start and cancel jobs of testbeds")
	f.BoolVar(&o.https, "https", false, "browsers reach it through a proxy that speaks HTTPS")
	return cmd
}

func runServe(ctx context.Context, o serveOptions, p *program) error {
	at, err := o.check()
	if err != nil {
		return err
	}

	token, err := o.token()
	if err != nil {
		return err
	}

	ln, err := at.listen(ctx)
	if err != nil {
		return err
	}

	urls, err := at.urls(ln.Addr())
	if err == nil && !o.remote {
		err = at.onlyHere(ln.Addr())
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

	if !at.local && !token.Empty() && !o.https {
		p.note("caution: the token crosses the network without encryption; put a proxy with HTTPS in " +
			"front, and add --https")
	}

	return serve.New(&p.App, serve.Options{
		Hosts: append(o.hosts, at.host),
		Token: token,
		HTTPS: o.https,
	}).Serve(ctx, ln)
}

// token returns the token, if a file was named.
func (o serveOptions) token() (token host.Secret, err error) {
	if o.tokenFile == "" {
		if o.https {
			err = app.Usage("add --token-file; without a token it makes no difference",
				"--https without a token")
		}
		return token, err
	}

	if token, err = host.Password(o.tokenFile); err != nil {
		return token, app.Usage(check.HintOf(err), "--token-file: %v", err)
	}

	err = token.Use(func(b []byte) error {
		if len(b) < serve.MinToken {
			return app.Usage("openssl rand -hex 24 prints a good one",
				"--token-file: the token in %s is shorter than %d bytes", o.tokenFile, serve.MinToken)
		}
		return nil
	})
	return token, err
}

// listenAddress is the place where a server listens.
type listenAddress struct {
	flag    string // such as --listen 127.0.0.1:8080
	hint    string // hint of the error if other machines can reach the address
	network string
	address string
	host    string // "" means all addresses of the machine
	local   bool   // only this machine can reach the address
}

// urls returns the addresses of the first page, one per line.
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
	if at, err = parseListen("listen", o.listen, serveAddress); err != nil {
		return at, err
	}

	for _, name := range o.hosts {
		_, err := netip.ParseAddr(name)
		if err != nil && strings.ContainsAny(name, "/: ") {
			return at, app.Usage("give the name alone, such as runs.example.net",
				"--host %q is no name of a machine", name)
		}
	}

	at.hint = "add --allow-remote if everyone who reaches it may read all runs"
	if !at.local && !o.remote {
		return at, at.reachable()
	}

	return at, nil
}

// parseListen parses the value of a flag as an address to listen on.
func parseListen(flag, value, example string) (at listenAddress, err error) {
	name, port, err := net.SplitHostPort(value)
	n, portErr := strconv.Atoi(port)
	if err != nil || portErr != nil || n < 0 || n > 65535 {
		return at, app.Usage("write it as "+example, "--%s %q is no address with a port", flag, value)
	}

	ip, err := netip.ParseAddr(name)
	at = listenAddress{
		flag:    "--" + flag + " " + value,
		network: "tcp",
		address: value,
		host:    name,
		local:   name == "localhost" || err == nil && ip.IsLoopback(),
	}
	if ip.Is4() {
		at.network = "tcp4" // with "tcp", 0.0.0.0 would also accept IPv6
	}

	if ip.IsUnspecified() {
		at.host = ""
	}

	return at, nil
}

// listen opens the address.
func (at listenAddress) listen(ctx context.Context) (net.Listener, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, at.network, at.address)
	if err != nil {
		flag, _, _ := strings.Cut(at.flag, " ")
		hint := flag + " chooses another address"
		if errors.Is(err, unix.EADDRINUSE) {
			hint = "another program listens there; " + flag + " 127.0.0.1:0 takes a free port"
		}
		return nil, app.Hinted(hint, "listen at %s: %v", at.address, check.Underlying(err))
	}

	return ln, nil
}

// onlyHere returns an error if other machines can reach the address. It checks the bound address, because the
// name localhost may resolve to any address.
func (at listenAddress) onlyHere(bound net.Addr) error {
	if !bound.(*net.TCPAddr).IP.IsLoopback() {
		return at.reachable()
	}
	return nil
}

func (at listenAddress) reachable() error {
	return app.Usage(at.hint, "%s is an address that other machines can reach", at.flag)
}
