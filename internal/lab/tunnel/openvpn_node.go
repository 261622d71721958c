package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// Serve holds one end: openvpn, which makes the device, lives as long as the session.
func (k openVPN) Serve(ctx context.Context, s host.Session) (err error) {
	var r request
	if err := s.Recv(&r); err != nil {
		return ended(err)
	}
	if r.Probe {
		return s.Send(offer{Answer: k.probe(ctx)})
	}
	if err := unused(r.Device); err != nil {
		return conclude(err)
	}
	p, err := k.meet(ctx, s, r)
	if err != nil {
		return ended(err)
	}
	defer func() { err = errors.Join(err, p.end(), gone(r.Device)) }()
	if err := p.wait(ctx); err != nil {
		return conclude(err)
	}
	if err := kernel.SetMTU(r.Device, r.MTU); err != nil {
		return conclude(err)
	}
	if err := address(r); err != nil {
		return conclude(err)
	}
	return ended(report(ctx, s, func() (status, error) { return p.read(r.Device) }))
}

// meet makes this end's certificate, tells its fingerprint, hears of the other end and the secret, and
// starts openvpn. Keys are overwritten before it returns; what openvpn keeps lives as long as its process.
func (k openVPN) meet(ctx context.Context, s host.Session, r request) (*openVPNProcess, error) {
	me, err := newIdentity()
	if err != nil {
		return nil, err
	}
	defer me.clear()
	if err := s.Send(offer{Public: me.fingerprint, Answer: check.OK()}); err != nil {
		return nil, err
	}
	var secret [presharedSize]byte
	defer clear(secret[:])
	if err := receivePreshared(s, secret[:]); err != nil {
		return nil, err
	}
	var c connect
	if err := s.Recv(&c); err != nil {
		return nil, err
	}
	if c.Public, err = parseFingerprint(c.Public); err != nil {
		return nil, err
	}
	control, err := k.controlKey(secret[:])
	if err != nil {
		return nil, err
	}
	defer clear(control)
	config := k.configuration(r, c, me, control)
	defer clear(config)
	return k.start(ctx, config, conversation{server: !r.Near, allowed: c.Allowed})
}

// openVPNProcess is a running openvpn and what it says.
type openVPNProcess struct {
	kind       openVPN
	process    host.Process
	management *net.UnixConn
	over       <-chan struct{} // the management interface has hung up
	said       []<-chan struct{}

	mu    sync.Mutex
	talk  conversation
	words string // last line of its output: before it speaks to us, it prints
}

// start runs openvpn with a configuration that it reads from a pipe, and waits until it speaks to us.
func (k openVPN) start(ctx context.Context, config []byte, t conversation) (*openVPNProcess, error) {
	program, err := findOpenVPN()
	if err != nil {
		return nil, err
	}
	in, err := pipeOf(config)
	if err != nil {
		return nil, fmt.Errorf("configure openvpn: %w", err)
	}
	defer in.Close()
	m, err := listenManagement()
	if err != nil {
		return nil, fmt.Errorf("listen to openvpn: %w", err)
	}
	defer m.close()
	p := &openVPNProcess{kind: k, talk: t}
	p.process, err = host.Local().Start(ctx, host.Command{
		Path: program, Args: []string{"--config", "stdin"}, Stdin: in, Files: []*os.File{m.name},
	})
	if err != nil {
		return nil, err
	}
	p.said = []<-chan struct{}{host.Lines(p.process.Stdout(), p.print), host.Lines(p.process.Stderr(),
		p.print)}
	if p.management, err = m.accept(p.said[0]); err != nil {
		err = fmt.Errorf("start openvpn: %w", err)
		_ = p.end()
		if p.words != "" {
			err = fmt.Errorf("%w: it says: %s", err, p.words)
		}
		return nil, err
	}
	p.say(opening)
	p.over = host.Lines(p.management, p.hear)
	return p, nil
}

// pipeOf is a file that holds a text, and no disk does: the text fits the pipe.
func pipeOf(text []byte) (*os.File, error) {
	if len(text) > configSize {
		return nil, fmt.Errorf("%d bytes, want at most %d", len(text), configSize)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	_, err = w.Write(text)
	if err = errors.Join(err, w.Close()); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (p *openVPNProcess) print(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.words = line
}

func (p *openVPNProcess) hear(line string) {
	p.mu.Lock()
	answer := p.talk.hear(line, time.Now())
	p.mu.Unlock()
	if answer != "" {
		p.say(answer)
	}
}

// say is called by one at a time: first by start, then by what hears. A program that is gone is noticed by
// its hanging up.
func (p *openVPNProcess) say(text string) { _, _ = p.management.Write([]byte(text)) }

// now is what is known of the tunnel.
func (p *openVPNProcess) now() conversation {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.talk
}

// wait returns when the server listens, or the client has a data channel.
func (p *openVPNProcess) wait(ctx context.Context) error {
	for deadline := time.Now().Add(openVPNTime); ; {
		t := p.now()
		switch {
		case t.ready && (t.server || t.connected()):
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("connect openvpn: not within %v%s", openVPNTime, t.words())
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.over:
			t = p.now()
			return fmt.Errorf("connect openvpn: it ended%s", t.words())
		case <-time.After(look):
		}
	}
}

// read gives the device's counters, and that the data channel is what was asked for.
func (p *openVPNProcess) read(dev string) (status, error) {
	t := p.now()
	select {
	case <-p.over:
		return status{}, fmt.Errorf("openvpn ended%s", t.words())
	default:
	}
	c, err := kernel.Counters(dev)
	if err != nil {
		return status{}, err
	}
	mtu, err := kernel.MTU(dev)
	if err != nil {
		return status{}, err
	}
	now := status{
		Sent: c.TxBytes, Received: c.RxBytes, SentPackets: c.TxPackets, ReceivedPackets: c.RxPackets,
		Handshake: -1, MTU: mtu, Complaint: t.complaint,
	}
	switch {
	case !t.connected():
		return now, nil
	case t.cipher != p.kind.cipher:
		return status{}, fmt.Errorf("openvpn agreed on %s, want %s", t.cipher, p.kind.cipher)
	case t.offloaded:
		return status{}, errors.New("openvpn has offloaded its data channel, which was switched off")
	}
	now.Handshake = max(0, int64(time.Since(t.since)))
	return now, nil
}

// end kills openvpn, whose device goes with it: it has nothing to undo.
func (p *openVPNProcess) end() error {
	if p.management != nil {
		p.management.Close()
		<-p.over
	}
	err := p.process.Kill()
	for _, done := range p.said {
		<-done
	}
	_, _ = p.process.Wait() // killed
	return err
}

// sbins are where openvpn is, and where an ordinary user does not look.
var sbins = [...]string{"/usr/sbin", "/usr/local/sbin", "/sbin"}

// findOpenVPN returns the path of the program.
func findOpenVPN() (string, error) {
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), sbins[:]...) {
		file := filepath.Join(dir, "openvpn")
		if i, err := os.Stat(file); err == nil && i.Mode().IsRegular() && i.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("find openvpn: %w: not installed", host.ErrUnsupported)
}

// probe looks for a version that can do it, the cipher, and TUN devices.
func (k openVPN) probe(ctx context.Context) check.Answer {
	program, err := findOpenVPN()
	if err != nil {
		return check.Not("openvpn is not installed").Hinted("install the package openvpn, 2.6 or newer")
	}
	// It ends with 1 after it has told its version.
	out, err := host.Run(ctx, host.Local(), host.Command{Path: program, Args: []string{"--version"}})
	if _, known := host.ExitCode(err); !known {
		return check.CouldNotTell("%v", err)
	}
	if a := judgeVersion(string(out)); a.State != check.Yes {
		return a
	}
	out, err = host.Run(ctx, host.Local(), host.Command{Path: program, Args: []string{"--show-ciphers"}})
	if _, known := host.ExitCode(err); !known {
		return check.CouldNotTell("%v", err)
	}
	if !strings.Contains(string(out), k.cipher) {
		return check.Not("this openvpn has no %s",
			k.cipher).Hinted("its cryptographic library lacks it: take another cipher")
	}
	return probeUserspaceDevice()
}

// judgeVersion wants 2.6, whose certificates can be trusted by fingerprint on both sides and whose offload
// can be switched off.
func judgeVersion(text string) check.Answer {
	var major, minor int
	told := false
	for line := range strings.Lines(text) {
		if n, _ := fmt.Sscanf(line, "OpenVPN %d.%d", &major, &minor); n == 2 {
			told = true
			break
		}
	}
	if !told {
		return check.CouldNotTell("openvpn does not tell its version")
	}
	if major < 2 || major == 2 && minor < 6 {
		return check.Not("openvpn is of version %d.%d, and 2.6 is needed", major,
			minor).Hinted("install OpenVPN 2.6 or newer")
	}
	return check.OK()
}

// acceptTime is how long openvpn may take to speak to us: a busy emulated machine needs seconds to start
// it.
const acceptTime = 15 * time.Second

// management is a socket that openvpn connects to, by a name that only its process has: the file is gone
// before openvpn starts.
type management struct {
	listener *net.UnixListener
	name     *os.File
}

// managementPath is the name under which openvpn finds the socket: its first descriptor beyond the usual
// three.
const managementPath = "/proc/self/fd/3"

func (m *management) close() {
	m.listener.Close()
	m.name.Close()
}

// accept waits for openvpn; one that has closed its output will not come.
func (m *management) accept(silent <-chan struct{}) (*net.UnixConn, error) {
	for deadline := time.Now().Add(acceptTime); time.Now().Before(deadline); {
		if err := m.listener.SetDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			return nil, err
		}
		c, err := m.listener.AcceptUnix()
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return c, err
		}
		select {
		case <-silent:
			return nil, errors.New("it ended")
		default:
		}
	}
	return nil, fmt.Errorf("it said nothing within %v", acceptTime)
}

// listenManagement makes the socket.
func listenManagement() (*management, error) {
	dir, err := os.MkdirTemp("", "chokepoint-openvpn-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(dir)
	file := filepath.Join(dir, "management")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: file, Net: "unix"})
	if err != nil {
		return nil, err
	}
	name, err := openName(file)
	if err := errors.Join(err, removeName(file)); err != nil {
		l.Close()
		return nil, err
	}
	return &management{l, name}, nil
}

func removeName(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
