package isp

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
)

// pppOptions lists the options of pppd for all sessions. They disable compression, which providers usually do
// not use, and prevent pppd from changing anything but the device of the session.
var pppOptions = []string{"nodetach", "noaccomp", "nopcomp", "noccp", "novj",
	"nodefaultroute", "noproxyarp", "lcp-echo-interval", "20", "lcp-echo-failure", "3", "+ipv6"}

// maxLines is the maximum number of lines to keep from a daemon's output: half of them from its start, and
// half from its end.
const maxLines = 4

// start runs pppd for a session until ctx ends. gone is closed when pppd has exited. last returns the lines
// kept from the output of pppd.
func start(ctx context.Context, p knob.PPPD, args []string) (gone <-chan struct{}, last func() string,
	err error) {
	process, err := host.Local().Start(ctx, host.Command{
		Path: p.Program,
		Args: slices.Concat([]string{"plugin", p.Plugin}, args, pppOptions),
	})
	if err != nil {
		return nil, nil, err
	}

	var mu sync.Mutex
	var words []string
	note := func(line string) {
		mu.Lock()
		defer mu.Unlock()
		words = append(words, check.Plain(line))
		if len(words) > maxLines {
			words = slices.Delete(words, maxLines/2, maxLines/2+1)
		}
	}
	out := host.Lines(process.Stdout(), note)
	errs := host.Lines(process.Stderr(), note)
	over := make(chan struct{})
	go func() {
		defer close(over)
		<-out
		<-errs
		_, _ = process.Wait() // error ignored: the output contains the reason
	}()
	return over, func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(words, "; ")
	}, nil
}

// joinPPPoE starts a PPPoE session. Packets that the device would send to a gateway are diverted to the
// session.
func joinPPPoE(ctx context.Context, a knob.Access, undo *host.Undoing, failed chan<- error) error {
	daemon, i, err := pppoeOn(a.Device)
	if err != nil {
		return err
	}

	dev := knob.SessionDevice(a.Device, 1)
	mtu := strconv.Itoa(i.MTU - pppoeBytes)
	keep, end := context.WithCancel(context.WithoutCancel(ctx))
	gone, last, err := start(keep, daemon, []string{"nic-" + a.Device, "ifname", dev, "noauth", "noipdefault",
		"mtu", mtu, "mru", mtu, "user", "chokepoint"})
	if err != nil {
		end()
		return err
	}

	undo.Add(func() error { return leave(a.Device, i.HardwareAddr, end, gone) })
	if err := await(ctx, dev, gone, netip.Addr.Is4); err != nil {
		return fmt.Errorf("%w: pppd says: %s", err, last())
	}

	if err := divert(a.Device, dev, undo); err != nil {
		return err
	}

	go func() {
		<-gone
		failed <- fmt.Errorf("%w: it says: %s", errGone, last())
	}()
	return nil
}

// pppoeOn returns the programs and the port that PPPoE on a device needs.
func pppoeOn(dev string) (knob.PPPD, *net.Interface, error) {
	daemon, err := knob.FindPPPD()
	if err == nil {
		err = kernel.ProbePPPoE()
	}

	if err != nil {
		return daemon, nil, err
	}

	i, err := macOf(dev)
	return daemon, i, err
}

// divert diverts the routes through a port to the device of a session. It assumes that in each IPv6 network
// of the port, the other end of the link has the first address that is not our own.
func divert(port, session string, undo *host.Undoing) error {
	own, err := kernel.Addresses(port)
	if err != nil {
		return err
	}

	var others []netip.Addr
	for _, p := range own {
		if a, ok := nth(p, 1); ok && p.Addr().Is6() {
			others = append(others, a)
		}
	}

	undo.Add(kernel.EndDivert)
	return kernel.Divert(port, session, others...)
}

// leave ends a subscriber's pppd and its sessions. It sends a PADT itself, because the provider would
// otherwise notice the end only after a minute.
func leave(dev string, mac net.HardwareAddr, end func(), gone <-chan struct{}) error {
	sessions := sessionsOn(dev)
	end()
	<-gone
	if len(sessions) == 0 {
		return nil
	}

	fd, err := openDiscovery(dev)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, s := range sessions {
		// Ignore errors: without a PADT, the provider's session times out.
		_, _ = unix.Write(fd, terminate(mac, s.mac, s.id))
	}

	return nil
}

// sessionsOn returns the sessions of a device that are listed in /proc/net/pppoe (drivers/net/ppp/pppoe.c).
// The fields there are the session ID, the hardware address of the other end, and the device.
func sessionsOn(dev string) (out []subscriber) {
	// Ignore errors: without the list, the other end is not informed.
	text, _ := os.ReadFile("/proc/net/pppoe")
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) != 3 || f[2] != dev {
			continue
		}

		id, err := strconv.ParseUint(f[0], 16, 16)
		mac, macErr := net.ParseMAC(f[1])
		if err == nil && macErr == nil {
			var b [2]byte // because the kernel prints the big-endian number as if it had native byte order
			binary.NativeEndian.PutUint16(b[:], uint16(id))
			out = append(out, subscriber{id: binary.BigEndian.Uint16(b[:]), mac: mac})
		}
	}
	return out
}

// openDiscovery opens a packet socket for PPPoE discovery frames on a device (packet(7)).
func openDiscovery(dev string) (int, error) {
	i, err := macOf(dev)
	if err != nil {
		return -1, err
	}

	const network = etherDiscovery>>8 | etherDiscovery&0xff<<8
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, network)
	if err == nil {
		if err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: network, Ifindex: i.Index}); err != nil {
			unix.Close(fd)
		}
	}

	if err != nil {
		return -1, fmt.Errorf("listen for PPPoE on %s: %w", dev, err)
	}

	return fd, nil
}

// servePPPoE runs an access concentrator. This process handles the discovery stage. A separate pppd handles
// each session.
func (p *provider) servePPPoE(ctx context.Context) (ended func() error, err error) {
	daemon, i, err := pppoeOn(p.Device)
	if err != nil {
		return nil, err
	}

	fd, err := openDiscovery(p.Device)
	if err != nil {
		return nil, err
	}

	c := &concentrator{
		mac:      i.HardwareAddr,
		key:      make([]byte, 32),
		most:     i.MTU - pppoeBytes,
		sessions: map[uint16]*subscriber{},
	}
	rand.Read(c.key) // never returns an error
	running := &sessions{
		provider: p,
		daemon:   daemon,
		fd:       fd,
		hungUp:   make(chan *subscriber, 2*maxSubscribers),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		// withSecrets requires that this goroutine is locked to a thread. The goroutine never unlocks the
		// thread, so that the thread ends with it.
		runtime.LockOSThread()
		if err := p.withSecrets(); err != nil {
			p.fail(err)
			return
		}

		running.serve(ctx, c)
	}()
	return func() error { <-done; return unix.Close(fd) }, nil
}

// sessions manages the pppd processes of a concentrator.
type sessions struct {
	*provider
	daemon knob.PPPD
	fd     int
	hungUp chan *subscriber
	all    sync.WaitGroup
}

const listenMs = 100 // interval in ms at which the loop checks whether ctx has ended

func (r *sessions) serve(ctx context.Context, c *concentrator) {
	buf := make([]byte, 2048)
	for ctx.Err() == nil {
		select {
		case s := <-r.hungUp:
			_, _ = unix.Write(r.fd, c.gone(s))
		default:
		}

		ready := []unix.PollFd{{Fd: int32(r.fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(ready, listenMs); err != nil || n == 0 {
			continue
		}

		n, err := unix.Read(r.fd, buf)
		if err != nil {
			continue
		}

		answer, begins, ends := c.hear(buf[:n])
		if ends != nil {
			ends.end()
		}

		if answer != nil {
			if _, err := unix.Write(r.fd, answer); err != nil {
				continue
			}
		}

		if begins != nil {
			r.begin(begins)
		}
	}

	for _, s := range c.sessions {
		s.end()
		_, _ = unix.Write(r.fd, c.gone(s))
	}

	r.all.Wait()
}

// begin starts pppd for a session. If the provider uses the port's own addresses, begin diverts the routes
// through the port to the first session.
func (r *sessions) begin(s *subscriber) {
	ctx, cancel := context.WithCancel(context.Background())
	s.end = cancel
	remote, ok := nth(r.own, int(s.id))
	err := errors.New("all addresses are taken")
	dev := knob.SessionDevice(r.Device, int(s.id))
	var gone <-chan struct{}
	var last func() string
	if ok {
		mtu := strconv.Itoa(s.payload)
		auth := map[bool]string{true: "noauth", false: "auth"}[r.User == ""]
		gone, last, err = start(ctx, r.daemon, []string{"nic-" + r.Device, "rp_pppoe_sess",
			fmt.Sprintf("%d:%s", s.id, s.mac), "ifname", dev, fmt.Sprintf("%s:%s", r.own.Addr(), remote),
			"mtu", mtu, "mru", mtu, "name", "chokepoint", "ms-dns", r.own.Addr().String(),
			"ipv6", "::1,", auth}) // "::1" is the interface identifier of linkLocal
	}

	if err != nil {
		cancel()
		r.tell("%s gets no session: %v", s.mac, err)
		r.hungUp <- s
		return
	}

	r.all.Go(func() {
		defer cancel()
		var undo host.Undoing
		if await(ctx, dev, gone, netip.Addr.Is4) == nil {
			r.tell("%s has the address %s by PPPoE, MTU %d", s.mac, remote, s.payload)
			if s.id == 1 && len(r.Addresses) == 0 {
				if err := divert(r.Device, dev, &undo); err != nil {
					r.fail(err)
				}
			}
		}

		if r.IPv6.IsValid() {
			err := r.overSession(ctx, dev, int(s.id), gone, &undo)
			if err != nil && !errors.Is(err, errGone) && ctx.Err() == nil {
				r.tell("%s gets no IPv6: %v", s.mac, err)
			}
		}

		<-gone
		var err error
		if undo.Run(&err); err != nil {
			r.fail(err)
		}

		if ctx.Err() == nil {
			r.tell("the session of %s has ended: %s", s.mac, last())
		}

		select {
		case r.hungUp <- s:
		default: // the channel is not read any more, because serve has returned
		}
	})
}

// withSecrets gives this thread, and the pppd processes that it starts, a private /etc/ppp in memory, which
// contains the subscriber's password. pppd reads passwords only from /etc/ppp.
func (p *provider) withSecrets() error {
	if p.User == "" {
		return nil
	}

	const dir = "/etc/ppp"
	steps := []struct {
		what string
		do   func() error
	}{
		{"leave the machine's mounts", func() error { return unix.Unshare(unix.CLONE_NEWNS) }},
		{"keep mounts to ourselves", func() error {
			return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}},
		{"mount " + dir, func() error { return unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=700,size=1m") }},
		{"write the password", func() error {
			return p.password.Use(func(password []byte) error {
				line := fmt.Appendf(nil, "%s * %s *\n", pppWord(p.User), pppWord(string(password)))
				defer clear(line)
				return errors.Join(os.WriteFile(dir+"/chap-secrets", line, 0o600),
					os.WriteFile(dir+"/pap-secrets", line, 0o600), os.WriteFile(dir+"/options", nil, 0o600))
			})
		}},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			return fmt.Errorf("hide the password of the subscriber: %s: %w", s.what, err)
		}
	}

	return nil
}

// pppWord quotes a word for the secrets files of pppd (pppd(8), AUTHENTICATION).
func pppWord(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", "").Replace(text) + `"`
}
