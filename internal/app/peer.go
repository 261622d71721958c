package app

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/pair"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/userfile"
)

// Peer is the other machine of a run. The zero value means that there is none.
type Peer struct {
	At       string // HOST[:PORT], or iperf3://HOST[:PORT] for a third-party server
	CodeFile string // file with the peer's pairing code; if "", App.AskCode asks for it
}

const (
	// PeerPort is the default port of chokepoint peer.
	PeerPort = 20100
	// CodeVariable is the environment variable that may hold a peer's code.
	CodeVariable = "CHOKEPOINT_PEER_CODE"
	// MaxSecret is the largest size, in bytes, of a file whose first line is a password or code.
	MaxSecret = 4 << 10

	iperf3Scheme = "iperf3://"
	iperf3Port   = 5201
)

// Check returns an error if the peer is invalid.
func (p Peer) Check() error {
	if p.At == "" {
		if p.CodeFile != "" {
			return Usage("name the other machine: --peer HOST", "--peer-code-file without --peer")
		}
		return nil
	}

	if p.CodeFile != "" && p.ThirdParty() {
		return Usage("iperf3 has no code", "--peer-code-file with a peer that is an iperf3 server")
	}

	_, err := p.address()
	return err
}

// ThirdParty reports whether the peer is an iperf3 server.
func (p Peer) ThirdParty() bool { return strings.HasPrefix(p.At, iperf3Scheme) }

// Vocabulary returns the factors and levels that a plan with this peer may contain.
func (p Peer) Vocabulary() plan.Vocabulary {
	if p.At == "" {
		return registry.Vocabulary()
	}

	address, _ := p.address() // the error is ignored, because Check reports it
	name, _, _ := net.SplitHostPort(address)
	a, err := netip.ParseAddr(name)
	return registry.PeerVocabulary(p.ThirdParty(), err == nil && !a.Unmap().Is4())
}

// limit removes from a design the settings that are impossible with two machines and an unknown path. Address
// translation on the path is detected instead of set. An iperf3 server supports even less; note describes
// what it lacks.
func (p Peer) limit(d *record.Design) (note string) {
	d.DropDefaultNAT(func(record.Factors) bool { return true })
	if !p.ThirdParty() {
		return ""
	}

	d.Measure.LatencyIdle, d.Measure.LatencyLoaded = "off", false
	d.Measure.Verify, d.Measure.VerifyAll = false, false
	return "an iperf3 server answers no latency probe and checks no content: neither is measured"
}

// address returns the peer's address with its port.
func (p Peer) address() (string, error) {
	text := p.At
	usual := strconv.Itoa(PeerPort)
	if p.ThirdParty() {
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
		return "", Usage(
			"write a name or an address, such as 192.0.2.7, 192.0.2.7:20100 or [2001:db8::7]:20100",
			"--peer %q is not a machine", p.At)
	}

	return net.JoinHostPort(name, port), nil
}

// of returns the peer with which to continue a stored run. If p has no address, the returned peer has the
// address of the run's peer.
func (p Peer) of(run record.Run) (Peer, error) {
	with := record.WithPeer(run.Lab)
	switch {
	case !with && (p.At != "" || p.CodeFile != ""):
		return p, Usage("leave --peer and --peer-code-file out",
			"resume run %s with a peer: it was made without one", run.ID)
	case with && p.At == "" && run.Peer == "":
		return p, Usage("name that machine: --peer HOST",
			"resume run %s: it does not say with which peer it was made", run.ID)
	}

	p.At = cmp.Or(p.At, run.Peer)
	return p, p.Check()
}

// pair returns a function that connects to the peer and creates a lab of the two machines.
func (a *App) pair(ctx context.Context, p Peer, run string) (func(context.Context) (*lab.Lab, error), error) {
	address, err := p.address()
	if err != nil {
		return nil, err
	}

	if p.ThirdParty() {
		return lab.ThirdParty{ID: run, Address: address, Parts: registry.LabParts()}.Up, nil
	}

	code, err := a.code(ctx, p.CodeFile, address)
	if err != nil {
		return nil, err
	}

	return lab.Pair{ID: run, Address: address, Code: code, Parts: registry.LabParts()}.Up, nil
}

// code returns the peer's pairing code from the file, the environment or the user. Errors never contain the
// code.
func (a *App) code(ctx context.Context, file, address string) (host.Secret, error) {
	given, inEnvironment := os.LookupEnv(CodeVariable)
	if err := os.Unsetenv(CodeVariable); err != nil { // child processes do not need the code
		return host.Secret{}, err
	}

	from := CodeVariable
	switch {
	case file != "":
		text, err := userfile.Read(file, MaxSecret)
		if err != nil {
			return host.Secret{}, Usage("chokepoint peer --code-file writes such a file",
				"read the peer's code from %s: %v", file, err)
		}

		given, _, _ = strings.Cut(string(text), "\n")
		from = file
	case inEnvironment:
	case a.AskCode == nil:
		return host.Secret{}, Usage("give --peer-code-file FILE, or set "+CodeVariable+" in the environment",
			"the peer's code is missing, and no one is there to be asked for it")
	default:
		var err error
		if given, err = a.AskCode(ctx, address); err != nil {
			return host.Secret{}, err
		}

		from = "the terminal"
	}

	code, err := pair.ParseCode(given)
	if err != nil {
		return host.Secret{}, Usage("chokepoint peer shows it, 28 letters and digits in groups of four",
			"the peer's code, from %s: %v", from, err)
	}

	return code, nil
}
