// Package latency measures round-trip times with probes sent on a schedule. It does not compute
// percentiles.
package latency

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Echo measures latency with UDP probes, on an idle path or during a load. The opener sends the probes,
// and the listener echoes them. On Linux, the node side uses the kernel's time stamps. On other systems,
// ServePortable is the node side.
type Echo struct{}

// Name returns "echo".
func (Echo) Name() string { return "echo" }

// echoHeader is the size of a probe's header in bytes. It consists of a datagram's header and the
// residence time in the echo process (8 bytes; in ns, negative if unknown).
const echoHeader = traffic.DatagramHeader + 8

// echoPayload is the default payload in bytes. It results in IPv4 packets of 64 bytes.
const echoPayload = 36

// maxProbes limits the number of probes in a trial to those of a day at intervals of 10 ms. partProbes is
// the number of probes per message.
const (
	maxProbes  = 10_000_000
	partProbes = 50_000
)

// complete checks the load of a probe and sets defaults. The load may come from another user's controller.
func complete(load *record.Load) error {
	if load.PacketSize == 0 {
		load.PacketSize = traffic.PacketOverhead(load.IP) + echoPayload
	}

	switch smallest := traffic.PacketOverhead(load.IP) + echoHeader; {
	case load.Protocol != "echo":
		return fmt.Errorf("probe latency: protocol %q: want echo", load.Protocol)
	case load.IP != 4 && load.IP != 6:
		return fmt.Errorf("probe latency: IP version %d: want 4 or 6", load.IP)
	case load.PacketSize < smallest:
		return fmt.Errorf("probe latency: %d-byte IPv%d packets have no room for a probe: the smallest are "+
			"%d bytes", load.PacketSize, load.IP, smallest)
	case load.Interval <= 0:
		return fmt.Errorf("probe latency: probe interval %v: want more than 0", load.Interval)
	case load.Spacing != "" && load.Spacing != record.Isochronous && load.Spacing != record.Exponential:
		return fmt.Errorf("probe latency: spacing %q: want %s or %s", load.Spacing, record.Isochronous,
			record.Exponential)
	}
	return nil
}

// Probe runs the probe until the end of the timeline.
func (e Echo) Probe(ctx context.Context, near, far traffic.End, load record.Load,
	c traffic.Conductor) (*record.Latency, error) {
	return runProbe(ctx, e.Name(), near, far, load, c)
}

// runProbe is the controller side of all probes.
func runProbe(ctx context.Context, name string, near, far traffic.End, load record.Load,
	c traffic.Conductor) (*record.Latency, error) {
	if err := complete(&load); err != nil {
		return nil, err
	}

	raw, err := traffic.Conduct(ctx, name, load, c, near, far)
	if err != nil {
		return nil, err
	}

	ends := [2]traffic.End{near, far}
	sides := [2]string{"near", "far"}
	opener, listener := 0, 1
	if load.Opener == "far" {
		opener, listener = 1, 0
	}

	l := &record.Latency{}
	for _, part := range raw[opener] {
		var p record.Latency
		if err := json.Unmarshal(part, &p); err != nil {
			return nil, fmt.Errorf("read the result of the probe on %s: %w", ends[opener].Node, err)
		}

		l = joinParts(l, &p)
	}

	var answered echoReport
	if len(raw[listener]) > 0 { // because a router's kernel sends no report
		if err := json.Unmarshal(raw[listener][0], &answered); err != nil {
			return nil, fmt.Errorf("read the result of the echo: %w", err)
		}
	}

	l.Probe = name
	for i := range l.SentAt {
		l.SentAt[i] -= ends[opener].Offset
	}

	usage := l.Ends[sides[opener]]
	usage.Node = ends[opener].Node
	l.Ends = map[string]record.EndUsage{sides[opener]: usage}
	if answered.Scheduling == "" { // the kernel answered, not a process
		return l, nil
	}

	l.Details["echoed"] = strconv.FormatInt(answered.Echoed, 10)
	l.Details["echo.scheduling"] = answered.Scheduling
	answered.Usage.Node = ends[listener].Node
	l.Ends[sides[listener]] = answered.Usage
	return l, nil
}

// serveEcho is the node side of the echo. The listener echoes on a socket that open derives from the
// socket that received the prober's hello. The opener runs probe.
func serveEcho(ctx context.Context, s host.Session, open openEcho,
	probe func(context.Context, traffic.Request) (traffic.Running, error)) error {
	return traffic.Serve(ctx, s, canProbe, func(ctx context.Context, q traffic.Part) (traffic.Running,
		error) {
		if err := complete(&q.Load); err != nil {
			return nil, err
		}

		// Threads that only sleep must not keep goroutines from running.
		traffic.MakeRoom(4)
		if !q.Listen {
			return probe(ctx, q.Request)
		}

		e := &echoer{tag: traffic.TagHash(traffic.TagProbe, q.Load.Tag)}
		var err error
		e.hellos, err = traffic.AnswerHellos(ctx, q, 1,
			func(_ int, from netip.AddrPort, at *net.UDPConn) (_ *net.UDPConn, err error) {
				e.socket, err = open(at, from, q.Load.PacketSize)
				return nil, err
			})
		if err != nil {
			e.Close()
			return nil, err
		}

		return e, nil
	})
}

type openEcho func(at *net.UDPConn, prober netip.AddrPort, size int) (echoSocket, error)

// echoSocket is a socket on which the echo serves one prober.
type echoSocket interface {
	// settle prepares the calling goroutine to receive. It returns the goroutine's thread id and scheduling
	// class.
	settle() (tid int, scheduling string)
	// receive waits a few milliseconds for a datagram from the prober. It returns nil if none arrived.
	// arrived is the kernel's time stamp, or 0 if it is unknown.
	receive() (b []byte, arrived int64)
	reply(b []byte) error
	Close()
}

// echoer echoes the probes of the prober whose hello arrived first, with their residence time.
type echoer struct {
	hellos *traffic.HelloServer
	socket echoSocket
	tag    uint32 // tag of the probes
	stop   atomic.Bool
	echoed int64
}

// Run answers probes until the end of the timeline.
func (e *echoer) Run(ctx context.Context, w record.Window, _ func(traffic.Progress) error) ([]any, error) {
	defer context.AfterFunc(ctx, func() { e.stop.Store(true) })()
	e.hellos.Stop()
	tids := make([]atomic.Int64, 1)
	measured := make(chan struct{})
	done := make(chan struct{})
	scheduling := ""
	go func() {
		defer close(done)
		var tid int
		tid, scheduling = e.socket.settle()
		tids[0].Store(int64(tid))
		e.serve()
		<-measured // keep the thread until its CPU time has been read
	}()
	traffic.SleepUntil(w.Start, &e.stop)
	begin := traffic.TakeMark(tids)
	traffic.SleepUntil(w.End, &e.stop)
	end := traffic.TakeMark(tids)
	end.Place(tids)
	close(measured)
	select {
	case <-done: // because the prober has ended
	case <-time.After(time.Duration(w.Stop - traffic.Monotonic())):
	case <-ctx.Done():
	}

	e.stop.Store(true)
	<-done
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}

	return []any{echoReport{
		Echoed:     e.echoed,
		Scheduling: scheduling,
		Usage:      traffic.UsageBetween(begin, end),
	}}, nil
}

// serve answers probes until the prober sends its end mark.
func (e *echoer) serve() {
	for !e.stop.Load() {
		b, arrived := e.socket.receive()
		d, ok := traffic.ReadDatagram(b)
		switch {
		case !ok || d.Tag != e.tag:
		case d.Phase == traffic.PhaseCooldown:
			return
		case d.Phase == traffic.PhaseProbe && len(b) >= echoHeader:
			e.echo(b, arrived)
		}
	}
}

// echo returns a probe to its sender. The residence time is measured from the kernel's time stamp of the
// arrival to just before the answer is sent.
func (e *echoer) echo(b []byte, arrived int64) {
	b[6] = byte(traffic.PhaseEcho)
	residence := int64(-1)
	if arrived != 0 {
		residence = max(time.Now().UnixNano()-arrived, 1)
	}

	binary.BigEndian.PutUint64(b[traffic.DatagramHeader:], uint64(residence))
	if e.socket.reply(b) == nil {
		e.echoed++
	}
}

// Close closes the sockets.
func (e *echoer) Close() {
	e.hellos.Close()
	if e.socket != nil {
		e.socket.Close()
	}
}

// echoReport holds the result of the echo.
type echoReport struct {
	Echoed     int64           `json:"echoed"` // number of probes echoed in all phases
	Scheduling string          `json:"scheduling"`
	Usage      record.EndUsage `json:"usage"`
}

// parts splits a report into messages with at most partProbes probes.
func parts(l *record.Latency) (list []any) {
	for i := 0; i == 0 || i < len(l.RTT); i += partProbes {
		j := min(i+partProbes, len(l.RTT))
		part := *l
		for _, values := range perProbe(&part) {
			*values = (*values)[i:j]
		}

		list = append(list, part)
	}
	return list
}

// joinParts appends the probes of a part to those of the previous parts. All other fields are equal in all
// parts.
func joinParts(l, part *record.Latency) *record.Latency {
	for i, values := range perProbe(part) {
		*values = append(*perProbe(l)[i], *values...)
	}
	return part
}

// perProbe returns the fields of l that contain a value for each probe.
func perProbe(l *record.Latency) []*[]int64 {
	return []*[]int64{&l.RTT, &l.UserRTT, &l.SentAt, &l.Late, &l.EchoNs}
}

// includes describes what a round-trip time includes.
func includes(stamps string, kernelEcho bool) string {
	switch {
	case stamps == "kernel" && kernelEcho:
		return "from the probe's entry into its sender's queue to the kernel's stamp of the answer, with " +
			"the time that the far kernel took to answer"
	case stamps == "kernel":
		return "from the probe's entry into its sender's queue to the kernel's stamp of the answer, less " +
			"the time between the echo's stamp of the arrival and its answer"
	case kernelEcho:
		return "from before the send call to after the receive call: the prober's own wake-up is in it"
	}
	return "from before the send call to after the receive call: the wake-ups of the prober and of " +
		"the echo are in it"
}

// canProbe returns OK, because every node can probe.
func canProbe(traffic.Request) check.Answer { return check.OK() }
