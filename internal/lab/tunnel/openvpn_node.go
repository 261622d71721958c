package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// openVPNSide is one end of an OpenVPN tunnel. The openvpn process creates the device, and runs until the
// session ends.
type openVPNSide struct {
	openVPN
	request
	me      identity
	process host.Process    // nil if openvpn does not run
	control *net.UnixConn   // connection to the management interface of openvpn; nil if there is none
	over    <-chan struct{} // closed when control has been closed
	said    []<-chan struct{}

	mu    sync.Mutex
	state management
	words string // last line of the output, for errors that occur before openvpn connects
}

func (k openVPN) open(r request) (side, error) {
	if err := unused(r.Device); err != nil {
		return nil, err
	}

	me, err := newIdentity()
	return &openVPNSide{openVPN: k, request: r, me: me}, err
}

// clear waits until the device has disappeared, because openvpn exits with the process that started it.
func (k openVPN) clear(r request, _ connect) error { return gone(r.Device) }

func (e *openVPNSide) public() string { return e.me.fingerprint }

// configure starts openvpn, and returns once the tunnel is up. It overwrites its keys before it returns. The
// copies in openvpn remain until the process exits.
func (e *openVPNSide) configure(ctx context.Context, secret []byte, c connect) (err error) {
	defer e.me.clear()
	if c.Public, err = parseFingerprint(c.Public); err != nil {
		return err
	}

	control, err := e.controlKey(secret)
	if err != nil {
		return err
	}
	defer clear(control)
	config := e.configuration(e.request, c, e.me, control)
	defer clear(config)
	e.state = management{server: !e.Near, allowed: c.Allowed}
	if err := e.start(ctx, config); err != nil {
		return err
	}

	if err := e.wait(ctx); err != nil {
		return err
	}

	if err := errors.Join(kernel.SetMTU(e.Device, e.MTU), setQueue(e.request)); err != nil {
		return err
	}

	return address(e.request)
}

// close kills openvpn. Nothing else needs to be undone, because the device disappears with the process.
func (e *openVPNSide) close() error {
	e.me.clear()
	if e.process == nil {
		return nil
	}

	if e.control != nil {
		e.control.Close()
		<-e.over
	}

	err := e.process.Kill()
	for _, done := range e.said {
		<-done
	}

	_, _ = e.process.Wait() // error ignored: the process was killed
	e.process = nil
	return errors.Join(err, gone(e.Device))
}

// start runs openvpn with a configuration that is passed through a pipe, and waits until openvpn connects its
// management interface to us.
func (e *openVPNSide) start(ctx context.Context, config []byte) error {
	program, err := findOpenVPN()
	if err != nil {
		return err
	}

	in, err := pipeOf(config)
	if err != nil {
		return fmt.Errorf("configure openvpn: %w", err)
	}
	defer in.Close()
	listener, name, err := listenControl()
	if err != nil {
		return fmt.Errorf("listen to openvpn: %w", err)
	}
	defer listener.Close()
	defer name.Close()
	process, err := host.Local().Start(ctx, host.Command{
		Path:  program,
		Args:  []string{"--config", "stdin"},
		Stdin: in,
		Files: []*os.File{name},
	})
	if err != nil {
		return err
	}

	e.process = process
	e.said = []<-chan struct{}{host.Lines(process.Stdout(), e.print), host.Lines(process.Stderr(), e.print)}
	if e.control, err = accept(listener, e.said[0]); err != nil {
		err = fmt.Errorf("start openvpn: %w", err)
		_ = e.close()
		if e.words != "" {
			err = fmt.Errorf("%w: it says: %s", err, e.words)
		}

		return err
	}

	e.say(opening)
	e.over = host.Lines(e.control, e.hear)
	return nil
}

// pipeOf returns the read end of a pipe that contains text. The text is therefore never stored on disk, but
// it must fit into the pipe.
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

func (e *openVPNSide) print(line string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.words = line
}

func (e *openVPNSide) hear(line string) {
	e.mu.Lock()
	answer := e.state.hear(line, time.Now())
	e.mu.Unlock()
	if answer != "" {
		e.say(answer)
	}
}

// say sends a command to openvpn. It is not safe for concurrent use: start calls it first, and later only the
// reader does. It ignores errors, because e.over reports the end of the connection.
func (e *openVPNSide) say(text string) { _, _ = e.control.Write([]byte(text)) }

// now returns a copy of the state.
func (e *openVPNSide) now() management {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state
}

// wait waits until the server listens, or the data channel of the client is up.
func (e *openVPNSide) wait(ctx context.Context) error {
	for deadline := time.Now().Add(openVPNTime); ; {
		t := e.now()
		switch {
		case t.ready && (t.server || t.connected()):
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("connect openvpn: not within %v%s", openVPNTime, t.words())
		}

		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-e.over:
			t = e.now()
			return fmt.Errorf("connect openvpn: it ended%s", t.words())
		case <-time.After(pollEvery):
		}
	}
}

// read returns the counters of the device. It returns an error if the data channel does not use the required
// cipher or is offloaded.
func (e *openVPNSide) read() (status, error) {
	t := e.now()
	select {
	case <-e.over:
		return status{}, fmt.Errorf("openvpn ended%s", t.words())
	default:
	}

	now, err := deviceStatus(e.Device)
	if err != nil {
		return status{}, err
	}

	now.Complaint = t.complaint
	switch {
	case !t.connected():
		return now, nil
	case t.cipher != e.cipher:
		return status{}, fmt.Errorf("openvpn agreed on %s, want %s", t.cipher, e.cipher)
	case t.offloaded:
		return status{}, errors.New("openvpn has offloaded its data channel, which was switched off")
	}

	now.Handshake = max(0, int64(time.Since(t.since)))
	return now, nil
}

// sbins lists directories that may contain openvpn but are not in the PATH of an ordinary user.
var sbins = []string{"/usr/sbin", "/usr/local/sbin", "/sbin"}

// findOpenVPN returns the path of openvpn.
func findOpenVPN() (string, error) {
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), sbins...) {
		file := filepath.Join(dir, "openvpn")
		if i, err := os.Stat(file); err == nil && i.Mode().IsRegular() && i.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("find openvpn: %w: not installed", host.ErrUnsupported)
}

// probe checks whether openvpn has the required version and cipher, and whether TUN devices can be created.
func (k openVPN) probe(ctx context.Context, _ request) check.Answer {
	program, err := findOpenVPN()
	if err != nil {
		return check.Not("openvpn is not installed").Hinted("install the package openvpn, 2.6 or newer")
	}

	said := ""
	for _, option := range []string{"--version", "--show-ciphers"} {
		out, err := host.Run(ctx, host.Local(), host.Command{Path: program, Args: []string{option}})
		if _, known := host.ExitCode(err); !known { // openvpn --version exits with code 1
			return check.CouldNotTell("%v", err)
		}

		said += string(out)
	}

	a := checkVersion(said)
	if a.State != check.Yes {
		return a
	}

	if !strings.Contains(said, k.cipher) {
		return check.Not("this openvpn has no %s", k.cipher).
			Hinted("its cryptographic library lacks it: take another cipher")
	}

	return probeUserspaceDevice()
}

// checkVersion requires OpenVPN 2.6, which is the first version with peer-fingerprint and disable-dco.
func checkVersion(text string) check.Answer {
	for line := range strings.Lines(text) {
		var major, minor int
		n, _ := fmt.Sscanf(line, "OpenVPN %d.%d", &major, &minor)
		switch {
		case n < 2:
		case major < 2 || major == 2 && minor < 6:
			return check.Not("openvpn is of version %d.%d, and 2.6 is needed", major, minor).
				Hinted("install OpenVPN 2.6 or newer")
		default:
			return check.OK()
		}
	}
	return check.CouldNotTell("openvpn does not print its version")
}

// acceptTime is the time limit for openvpn to connect to us. A busy emulated machine needs seconds to start
// openvpn.
const acceptTime = 15 * time.Second

// managementPath is the path by which openvpn refers to the inherited descriptor, which is the first after
// the standard descriptors.
const managementPath = "/proc/self/fd/3"

// accept waits until openvpn connects. It returns an error if openvpn has closed its output, because openvpn
// has then failed.
func accept(listener *net.UnixListener, silent <-chan struct{}) (*net.UnixConn, error) {
	for deadline := time.Now().Add(acceptTime); time.Now().Before(deadline); {
		if err := listener.SetDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			return nil, err
		}

		c, err := listener.AcceptUnix()
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

// listenControl creates the socket to which openvpn connects. Its file is removed before openvpn starts.
// Therefore, only openvpn can connect, because it inherits the returned descriptor of the file.
func listenControl() (*net.UnixListener, *os.File, error) {
	dir, err := os.MkdirTemp("", "chokepoint-openvpn-")
	if err != nil {
		return nil, nil, err
	}
	defer os.Remove(dir)
	file := filepath.Join(dir, "management")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: file, Net: "unix"})
	if err != nil {
		return nil, nil, err
	}

	name, err := openName(file)
	if gone := os.Remove(file); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, gone)
	}

	if err != nil {
		l.Close()
		return nil, nil, err
	}

	return l, name, nil
}

// management is the state that openvpn has reported. Its method hear processes a line, and returns the
// command to send in reply, or "" if there is none.
type management struct {
	server  bool
	allowed []netip.Prefix // networks behind the client

	ready     bool      // initialised: the server listens, or the client is connected
	cipher    string    // cipher of the data channel, or "" before the channel is up
	since     time.Time // time at which the data channel came up
	offloaded bool      // whether data-channel offload is active
	complaint string    // last warning or error
}

// Our first commands subscribe to events, and then make openvpn continue.
const opening = "state on\nlog on\nhold release\n"

// connected reports whether the data channel is up.
func (t *management) connected() bool { return t.ready && t.cipher != "" }

// words returns the last warning or error of openvpn, in a form to append to an error.
func (t *management) words() string {
	if t.complaint == "" {
		return ""
	}
	return ": it says: " + t.complaint
}

func (t *management) hear(line string, now time.Time) (answer string) {
	kind, rest, _ := strings.Cut(line, ":")
	switch {
	case kind == ">STATE":
		fields := strings.Split(rest, ",")
		t.ready = len(fields) > 1 && fields[1] == "CONNECTED"
		if !t.ready {
			t.cipher = ""
		}
	case kind == ">LOG":
		t.hearLog(rest, now)
	case kind == ">CLIENT":
		return t.hearClient(rest)
	case kind == ">FATAL":
		t.complaint = rest
	case kind == ">HOLD": // openvpn sends this again after a restart
		return "hold release\n"
	case strings.HasPrefix(line, "CLIENT_LIST\t"):
		fields := strings.Split(line, "\t")
		t.found(fields[len(fields)-1], now)
	case strings.HasPrefix(line, "GLOBAL_STATS\tdco_enabled\t"):
		t.offloaded = !strings.HasSuffix(line, "\t0")
	}
	return ""
}

// hearLog processes a log line of the form "time,flags,text".
func (t *management) hearLog(rest string, now time.Time) {
	_, rest, _ = strings.Cut(rest, ",")
	flags, text, _ := strings.Cut(rest, ",")
	if _, after, ok := strings.Cut(text, "Data Channel: cipher '"); ok && !t.server {
		cipher, _, _ := strings.Cut(after, "'")
		t.found(cipher, now)
	}

	if strings.ContainsAny(flags, "FNW") {
		t.complaint = text
	}
}

// found records the cipher of the data channel, and the time at which it was first reported.
func (t *management) found(cipher string, now time.Time) {
	if t.cipher != cipher {
		t.cipher, t.since = cipher, now
	}
}

// hearClient processes an event about the client of the server. openvpn has already verified the certificate
// of the client.
func (t *management) hearClient(rest string) (answer string) {
	fields := strings.Split(rest, ",")
	switch {
	case fields[0] == "CONNECT" && len(fields) == 3:
		return "client-auth " + fields[1] + " " + fields[2] + "\n" + clientRoutes(t.allowed) + "END\n"
	case fields[0] == "REAUTH" && len(fields) == 3:
		return "client-auth-nt " + fields[1] + " " + fields[2] + "\n"
	case fields[0] == "ESTABLISHED":
		return "status 3\n" // the reply contains the cipher
	case fields[0] == "DISCONNECT":
		t.cipher = ""
	}
	return ""
}
