package iperf3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Serve is the node side of the engine.
func (Engine) Serve(ctx context.Context, s host.Session) error {
	// The process is killed when Serve returns, for whatever reason.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return traffic.Serve(ctx, s, func(traffic.Request) check.Answer { return installedIperf3(ctx) }, connect)
}

// connect starts iperf3 if it is the server. A client is started only when the load begins.
func connect(ctx context.Context, q traffic.Part) (traffic.Running, error) {
	c := &child{request: q.Request}
	if !q.Listen {
		a := installedIperf3(ctx)
		if a.State == check.No {
			return nil, fmt.Errorf("%s: %w", a.Reason, host.ErrUnsupported)
		}
		return c, nil
	}

	if q.Port == 0 {
		port, release, err := holdPort(q.Addr)
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer release()
		c.request.Port = port
	}

	err := c.start(ctx)
	if err == nil {
		err = c.awaitListening(ctx, c.request.Port)
	}

	if err == nil {
		err = q.Listening(c.request.Port)
	}

	if err != nil {
		c.Close()
		return nil, err
	}

	return c, nil
}

// holdPort finds a free port, and keeps other programs from using it until release is called. iperf3 can
// listen on the port nevertheless, because it sets SO_REUSEADDR and this socket does not listen
// (socket(7)).
func holdPort(addr netip.Addr) (port int, release func(), err error) {
	family, at := traffic.Sockaddr(netip.AddrPortFrom(addr, 0))
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, nil, err
	}

	s := &traffic.Socket{FD: fd}
	err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.Bind(fd, at))
	bound, failed := netip.ParseAddrPort(s.Local())
	if err = errors.Join(err, failed); err != nil {
		s.Close()
		return 0, nil, err
	}

	return int(bound.Port()), s.Close, nil
}

func installedIperf3(ctx context.Context) check.Answer {
	ctx, cancel := context.WithTimeout(ctx, traffic.Patience)
	defer cancel()
	out, err := host.Run(ctx, host.Local(), host.Command{Path: "iperf3", Args: []string{"--version"}})
	if errors.Is(err, host.ErrUnsupported) {
		return check.Not("iperf3 is not installed").Hinted("apt-get install iperf3, or use the native engine")
	}

	if err != nil {
		return check.CouldNotTell("%v", err)
	}

	first, _, _ := strings.Cut(string(out), "\n")
	return check.OKBecause("%s", first)
}

// child represents an iperf3 process.
type child struct {
	request traffic.Request
	process host.Process // nil if the process has not been started
	started int64
	done    chan struct{}
	out     []byte // out and the following fields belong to the reader until done is closed
	stderr  []byte
	usage   host.Usage
	err     error
}

// maxOutput limits the stored output, in bytes.
const maxOutput = 16 << 20

func (c *child) start(ctx context.Context) error {
	p, err := host.Local().Start(ctx, host.Command{Path: "iperf3", Args: iperf3Arguments(c.request)})
	if err != nil {
		return err
	}

	c.process, c.started, c.done = p, traffic.Monotonic(), make(chan struct{})
	talked := make(chan struct{})
	go func() {
		defer close(talked)
		c.stderr, _ = io.ReadAll(io.LimitReader(p.Stderr(), 4096))
		io.Copy(io.Discard, p.Stderr())
	}()
	go func() {
		defer close(c.done)
		c.out, _ = io.ReadAll(io.LimitReader(p.Stdout(), maxOutput))
		io.Copy(io.Discard, p.Stdout())
		<-talked
		c.usage, c.err = p.Wait()
	}()
	return nil
}

// Close kills the process and waits for it.
func (c *child) Close() {
	if c.process != nil {
		c.process.Kill()
		<-c.done
	}
}

// slack is the time that iperf3 may take in addition to the window: to connect, to exchange results, and
// because it rounds up to seconds.
const slack = 8 * time.Second

// Run returns the output of iperf3. Errors that iperf3 reports in its JSON are errors of Run, too. The
// opener starts iperf3 when the load begins.
func (c *child) Run(ctx context.Context, w record.Window, _ func(traffic.Progress) error) ([]any, error) {
	if c.process == nil {
		var stop atomic.Bool
		defer context.AfterFunc(ctx, func() { stop.Store(true) })()
		traffic.SleepUntil(w.Begin, &stop)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}

		if err := c.start(ctx); err != nil {
			return nil, err
		}
	}

	limit := time.Duration(w.Stop-traffic.Monotonic()) + slack
	select {
	case <-c.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(limit):
		return nil, fmt.Errorf("iperf3 did not end within %v", limit)
	}

	out, err := c.outcome()
	return []any{out}, err
}

// outcome returns the output of the process. It must not be called before done is closed.
func (c *child) outcome() (iperf3Output, error) {
	if c.err != nil {
		if _, err := readIperf3(c.out); err != nil && len(c.out) > 0 {
			return iperf3Output{}, err
		}
		return iperf3Output{}, fmt.Errorf("iperf3: %v: %s", c.err, bytes.TrimSpace(c.stderr))
	}
	return iperf3Output{JSON: c.out, Usage: c.usage, Started: c.started}, nil
}

// awaitListening waits until the server listens. It does not connect to the server, because the server
// would take the connection for its only test.
func (c *child) awaitListening(ctx context.Context, port int) error {
	limit := traffic.Monotonic() + int64(traffic.Patience)
	for traffic.Monotonic() < limit {
		for _, file := range []string{"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"} {
			b, err := host.Local().ReadFile(ctx, file)
			if err == nil && listens(b, port) {
				return nil
			}
		}

		select {
		case <-c.done:
			_, err := c.outcome()
			return fmt.Errorf("iperf3 server on port %d ended before its test: %v", port, err)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	return fmt.Errorf("wait for the iperf3 server to listen on port %d: nothing within %v", port,
		traffic.Patience)
}

// listens reports whether /proc/net/tcp lists a socket that listens on the port.
func listens(table []byte, port int) bool {
	const listening = "0A"
	want := fmt.Sprintf(":%04X", port)
	for line := range bytes.Lines(table) {
		f := strings.Fields(string(line))
		if len(f) > 3 && strings.HasSuffix(f[1], want) && f[3] == listening {
			return true
		}
	}

	return false
}
