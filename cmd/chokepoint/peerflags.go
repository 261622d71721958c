package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/pair"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
)

// codeVariable is the environment variable that may hold a peer's code.
const codeVariable = "CHOKEPOINT_PEER_CODE"

// otherEnd says with which machine a run is made.
type otherEnd struct {
	peer     string // as given
	codeFile string
}

// addFlags says in a sentence what the command does with the peer.
func (o *otherEnd) addFlags(f *pflag.FlagSet, does string) {
	f.StringVar(&o.peer, "peer", "", does+": a name or an address,\nwith :PORT unless it is the usual one; "+
		"or iperf3://HOST, a third-party iperf3 server")
	f.StringVar(&o.codeFile, "peer-code-file", "", "read the code that the peer shows from this `FILE`; "+
		"else it is taken from\nthe environment's "+codeVariable+", or asked for")
}

// check judges the flags alone.
func (o otherEnd) check() error {
	if o.peer == "" {
		if o.codeFile != "" {
			return &usageError{"--peer-code-file without --peer", "name the other machine: --peer HOST"}
		}
		return nil
	}
	if o.codeFile != "" && o.thirdParty() {
		return &usageError{"--peer-code-file with a peer that is an iperf3 server", "iperf3 has no code"}
	}
	_, err := o.address()
	return err
}

// iperf3Scheme marks a third-party peer: an iperf3 -s, which listens on iperf3Port unless another is given.
const (
	iperf3Scheme = "iperf3://"
	iperf3Port   = 5201
)

func (o otherEnd) thirdParty() bool { return strings.HasPrefix(o.peer, iperf3Scheme) }

// vocabulary is what a plan may speak of.
func (o otherEnd) vocabulary() plan.Vocabulary {
	if o.peer == "" {
		return registry.Vocabulary()
	}
	address, _ := o.address() // check says what is wrong with it
	name, _, _ := net.SplitHostPort(address)
	a, err := netip.ParseAddr(name)
	return registry.PeerVocabulary(o.thirdParty(), err == nil && !a.Unmap().Is4())
}

// limits takes out of a design what cannot be known or had of two machines and what lies between: whether
// addresses are translated there is found out and not set, and a third-party server, as note says, serves
// less.
func (o otherEnd) limits(d *record.Design) (note string) {
	d.DropDefaultNAT(func(record.Factors) bool { return true })
	if !o.thirdParty() {
		return ""
	}
	d.Measure.LatencyIdle, d.Measure.LatencyLoaded = "off", false
	d.Measure.Verify, d.Measure.VerifyAll = false, false
	return "an iperf3 server answers no latency probe and checks no content: neither is measured"
}

// address is the peer's, with its port.
func (o otherEnd) address() (string, error) {
	text, usual := o.peer, strconv.Itoa(peerPort)
	if o.thirdParty() {
		text, usual = strings.TrimPrefix(text, iperf3Scheme), strconv.Itoa(iperf3Port)
	}
	if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return net.JoinHostPort(a.String(), usual), nil
	}
	name, port, err := net.SplitHostPort(text)
	if err != nil {
		name, port = text, usual
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || name == "" ||
		strings.ContainsAny(name, "/ \t\n@") {
		return "", &usageError{fmt.Sprintf("--peer %q is no machine", o.peer),
			"write a name or an address, such as 192.0.2.7, 192.0.2.7:20100 or [2001:db8::7]:20100"}
	}
	return net.JoinHostPort(name, port), nil
}

// of is the other end with which a stored run goes on: the one that it had, unless it is named anew.
func (o otherEnd) of(run record.Run) (otherEnd, error) {
	with := record.WithPeer(run.Lab)
	switch {
	case !with && (o.peer != "" || o.codeFile != ""):
		return o, &usageError{fmt.Sprintf("resume run %s with a peer: it was made without one", run.ID),
			"leave --peer and --peer-code-file out"}
	case with && o.peer == "" && run.Peer == "":
		return o, &usageError{fmt.Sprintf("resume run %s: it does not say with which peer it was made",
			run.ID), "name that machine: --peer HOST"}
	}
	o.peer = cmp.Or(o.peer, run.Peer)
	return o, o.check()
}

// lab is how the lab with the other machine is made.
func (o otherEnd) lab(ctx context.Context, run string, p *program) (func(context.Context) (*lab.Lab, error),
	error) {
	address, err := o.address()
	if err != nil {
		return nil, err
	}
	if o.thirdParty() {
		return lab.ThirdParty{ID: run, Address: address, Parts: registry.LabParts()}.Up, nil
	}
	code, err := o.code(ctx, address, p)
	if err != nil {
		return nil, err
	}
	return lab.Pair{ID: run, Address: address, Code: code, Parts: registry.LabParts()}.Up, nil
}

// code takes the code from the file, the environment or the terminal. No error holds what was given.
func (o otherEnd) code(ctx context.Context, address string, p *program) (host.Secret, error) {
	given, inEnvironment := os.LookupEnv(codeVariable)
	if err := os.Unsetenv(codeVariable); err != nil { // what we start has no use for it
		return host.Secret{}, err
	}
	from := codeVariable
	switch {
	case o.codeFile != "":
		text, err := readNamed(o.codeFile, maxSecret)
		if err != nil {
			return host.Secret{}, &usageError{fmt.Sprintf("read the peer's code from %s: %v", o.codeFile,
				err), "chokepoint peer --code-file writes such a file"}
		}
		given, _, _ = strings.Cut(string(text), "\n")
		from = o.codeFile
	case inEnvironment:
	default:
		var err error
		if given, err = askCode(ctx, address, p); err != nil {
			return host.Secret{}, err
		}
		from = "the terminal"
	}
	code, err := pair.ParseCode(given)
	if err != nil {
		return host.Secret{}, &usageError{fmt.Sprintf("the peer's code, from %s: %v", from, err),
			"chokepoint peer shows it, 28 letters and digits in groups of four"}
	}
	return code, nil
}

// askCode asks on the terminal, which does not show the answer.
func askCode(ctx context.Context, address string, p *program) (string, error) {
	in, ok := p.In.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return "", &usageError{"the peer's code is missing, and no one is there to be asked for it",
			"give --peer-code-file FILE, or set " + codeVariable + " in the environment"}
	}
	fmt.Fprintf(p.Err, "Code that the peer at %s shows: ", address)
	before, err := term.GetState(int(in.Fd()))
	if err != nil {
		return "", fmt.Errorf("read the peer's code: %v", underlying(err))
	}
	text, err := within(ctx, func() ([]byte, error) { return term.ReadPassword(int(in.Fd())) })
	fmt.Fprintln(p.Err)
	switch {
	case ctx.Err() != nil:
		return "", errors.Join(context.Cause(ctx), term.Restore(int(in.Fd()), before))
	case err != nil:
		return "", fmt.Errorf("read the peer's code: %v", underlying(err))
	}
	return string(text), nil
}

// within waits for a human no longer than ctx. What reads may wait for ever, and the program ends without it.
func within[T any](ctx context.Context, read func() (T, error)) (text T, err error) {
	answered := make(chan struct{})
	var got T
	var gotErr error
	go func() {
		defer close(answered)
		got, gotErr = read()
	}()
	select {
	case <-answered:
		return got, gotErr
	case <-ctx.Done():
		return text, context.Cause(ctx)
	}
}
