// Package latency measures round-trip times by probes at fixed times. It computes no percentile.
package latency

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Echo measures latency by UDP probes at fixed times, on an idle path or beside a load. The probe is at the
// end that opens connections, the echo at the other. Its node half on Linux has the kernel stamp each probe,
// elsewhere it is ServePortable.
type Echo struct{}

// Name is "echo".
func (Echo) Name() string { return "echo" }

// A probe's header is followed by the time that it spent in the echo's process (8 bytes, ns; negative if
// unknown).
const echoHeader = traffic.DatagramHeader + 8

// echoPayload is the default payload: 64-byte packets in IPv4.
const echoPayload = 36

// maxProbes bounds what a trial may ask for: a day at 10 ms. partProbes is how many fit a message.
const (
	maxProbes  = 10_000_000
	partProbes = 50_000
)

// checkEcho judges and completes a probe's load.
func checkEcho(load record.Load) (record.Load, check.Answer) {
	if load.PacketSize == 0 {
		load.PacketSize = traffic.PacketOverhead(load.IP) + echoPayload
	}
	switch smallest := traffic.PacketOverhead(load.IP) + echoHeader; {
	case load.Protocol != "echo":
		return load, check.Not("protocol %q: want echo", load.Protocol)
	case load.IP != 4 && load.IP != 6:
		return load, check.Not("IP version %d: want 4 or 6", load.IP)
	case load.PacketSize < smallest:
		return load, check.Not("%d-byte IPv%d packets have no room for a probe: the smallest are %d bytes",
			load.PacketSize, load.IP, smallest)
	case load.Interval <= 0:
		return load, check.Not("probe interval %v: want more than 0", load.Interval)
	case load.Spacing != "" && load.Spacing != record.Isochronous && load.Spacing != record.Exponential:
		return load, check.Not("spacing %q: want %s or %s", load.Spacing, record.Isochronous,
			record.Exponential)
	}
	return load, check.OK()
}

// complete is checkEcho of a load that somebody else's controller may have sent.
func complete(load *record.Load) error {
	l, a := checkEcho(*load)
	if *load = l; a.State != check.Yes {
		return fmt.Errorf("probe latency: %s", a.Reason)
	}
	return nil
}

// Probe runs the probe to the end of the timeline.
func (e Echo) Probe(ctx context.Context, near, far traffic.End, load record.Load,
	c traffic.Conductor) (*record.Latency, error) {
	return runProbe(ctx, e.Name(), near, far, load, c)
}

// runProbe is the controller half of every probe that is sent by one end.
func runProbe(ctx context.Context, name string, near, far traffic.End, load record.Load,
	c traffic.Conductor) (*record.Latency, error) {
	if err := complete(&load); err != nil {
		return nil, err
	}
	raw, err := traffic.Conduct(ctx, name, load, c, near, far)
	if err != nil {
		return nil, err
	}
	opener, prober, echo, sides := near, raw[0], raw[1], [2]string{"near", "far"}
	if load.Opener == "far" {
		opener, prober, echo, sides = far, raw[1], raw[0], [2]string{"far", "near"}
	}
	var r probeReport
	var answered echoReport
	for _, part := range prober {
		var p probeReport
		if err := json.Unmarshal(part, &p); err != nil {
			return nil, fmt.Errorf("read the result of the probe on %s: %w", opener.Node, err)
		}
		p.Probes = append(r.Probes, p.Probes...) // the rest is the same in each
		r = p
	}
	l := r.latency(load)
	l.Probe = name
	for i := range l.SentAt {
		l.SentAt[i] -= opener.Offset
	}
	r.Usage.Node = opener.Node
	l.Ends = map[string]record.EndUsage{sides[0]: r.Usage}
	if r.KernelEcho {
		return l, nil
	}
	if err := json.Unmarshal(echo[0], &answered); err != nil {
		return nil, fmt.Errorf("read the result of the echo: %w", err)
	}
	l.Details["echoed"] = strconv.FormatInt(answered.Echoed, 10)
	l.Details["echo.scheduling"] = answered.Scheduling
	answered.Usage.Node = map[string]string{"near": near.Node, "far": far.Node}[sides[1]]
	l.Ends[sides[1]] = answered.Usage
	return l, nil
}

// serveEcho is the node half of the echo: the listener echoes by a socket that open makes of that which heard
// the prober, the opener probes.
func serveEcho(ctx context.Context, s host.Session, open openEcho,
	probe func(context.Context, traffic.Request) (traffic.Running, error)) error {
	return traffic.Serve(ctx, s, canProbe, func(ctx context.Context, q traffic.Request,
		listening func(port int) error) (traffic.Running, error) {
		if err := complete(&q.Load); err != nil {
			return nil, err
		}
		// Threads that only sleep must not keep goroutines from running.
		traffic.MakeRoom(4)
		if !q.Listen {
			return probe(ctx, q)
		}
		e := &echoer{tag: traffic.TagHash(traffic.TagProbe, q.Load.Tag)}
		var err error
		e.hellos, err = traffic.AnswerHellos(ctx, q, 1, listening,
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

// echoSocket carries the probes of one prober.
type echoSocket interface {
	// settle prepares the calling goroutine to receive, and returns its thread and scheduling class.
	settle() (tid int, scheduling string)
	// receive waits some milliseconds for a datagram; arrived is the kernel's time of it, 0 if unknown. What
	// somebody else sent has no bytes.
	receive() (b []byte, arrived int64)
	reply(b []byte) error
	Close()
}

// echoer sends probes back with the time they spent here. Nobody is heard but who said hello first.
type echoer struct {
	hellos *traffic.HelloServer
	socket echoSocket
	tag    uint32 // of probes
	stop   atomic.Bool
	echoed int64
}

// Run lets probes be answered until the timeline ends.
func (e *echoer) Run(ctx context.Context, w record.Window, _ func(traffic.Progress) error) ([]any, error) {
	defer context.AfterFunc(ctx, func() { e.stop.Store(true) })()
	e.hellos.Stop()
	tids := make([]atomic.Int64, 1)
	measured, done := make(chan struct{}), make(chan struct{})
	scheduling := ""
	go func() {
		defer close(done)
		var tid int
		tid, scheduling = e.socket.settle()
		tids[0].Store(int64(tid))
		e.serve()
		<-measured // until when the thread's time can be read
	}()
	traffic.SleepUntil(w.Start, &e.stop)
	begin := traffic.TakeMark(traffic.Monotonic(), 0, tids)
	traffic.SleepUntil(w.End, &e.stop)
	end := traffic.TakeMark(traffic.Monotonic(), 0, tids)
	end.Place(tids)
	close(measured)
	select {
	case <-done: // the prober has ended
	case <-time.After(time.Duration(w.Stop - traffic.Monotonic())):
	case <-ctx.Done():
	}
	e.stop.Store(true)
	<-done
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return []any{echoReport{Echoed: e.echoed, Scheduling: scheduling,
		Usage: traffic.UsageBetween(begin, end)}}, nil
}

// serve answers probes until the prober says that it has ended.
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

// echo returns a probe. The residence is the time from the kernel's stamp of the arrival to just before the
// answer is given to the kernel.
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

// Close ends the echo.
func (e *echoer) Close() {
	e.hellos.Close()
	if e.socket != nil {
		e.socket.Close()
	}
}

// echoReport is the last word of the echo.
type echoReport struct {
	Echoed     int64           `json:"echoed"` // probes of all phases
	Scheduling string          `json:"scheduling"`
	Usage      record.EndUsage `json:"usage"`
}

// probeReport is what the probe saw: one entry per probe of the window. Unknown times are absent.
type probeReport struct {
	Probes     []probe `json:"probes"`
	Duplicates int64   `json:"duplicates"`
	Skipped    int64   `json:"skipped"`
	Strays     int64   `json:"strays"`
	Failed     int64   `json:"failed"` // sends that the kernel refused
	Scheduling string  `json:"scheduling"`
	KernelEcho bool    `json:"kernel_echo,omitempty"` // the far kernel answered: nothing is to be subtracted

	Usage record.EndUsage `json:"usage"`
}

// probe is what is known of one packet. Sent, Late and User are of CLOCK_MONOTONIC; TX and RX are the
// kernel's stamps of CLOCK_REALTIME.
type probe struct {
	Sent      int64 `json:"s"`
	Late      int64 `json:"l"`
	User      int64 `json:"u,omitempty"` // RTT seen by the process; 0 = lost
	TX        int64 `json:"t,omitempty"`
	RX        int64 `json:"r,omitempty"`
	Residence int64 `json:"e,omitempty"`
}

// parts are the report as messages, one for each so many probes.
func (r probeReport) parts() (parts []any) {
	if len(r.Probes) == 0 {
		return []any{r}
	}
	for some := range slices.Chunk(r.Probes, partProbes) {
		r.Probes = some
		parts = append(parts, r)
	}
	return parts
}

// network is the kernel-stamped RTT without the time in the echo's process, if one answered.
func (p *probe) network(kernelEcho bool) (int64, bool) {
	if p.TX == 0 || p.RX == 0 || p.Residence <= 0 && !kernelEcho {
		return 0, false
	}
	rtt := p.RX - p.TX - p.Residence
	return rtt, rtt > 0
}

// latency turns the report into the record's form. The kernel's stamps are used if every answered probe has
// them: the two kinds never mix, because they measure different things.
func (r *probeReport) latency(load record.Load) *record.Latency {
	l := &record.Latency{IntervalNs: int64(load.Interval), Spacing: cmp.Or(load.Spacing, record.Isochronous),
		Size: load.PacketSize, Stamps: "kernel", Duplicates: r.Duplicates, SkippedSlots: r.Skipped,
		Details: map[string]string{"probe.scheduling": r.Scheduling,
			"strays": strconv.FormatInt(r.Strays, 10)}}
	unstamped := 0
	for i := range r.Probes {
		if _, ok := r.Probes[i].network(r.KernelEcho); r.Probes[i].User != 0 && !ok {
			unstamped++
		}
	}
	if r.Failed > 0 {
		l.Details["sends_refused"] = strconv.FormatInt(r.Failed, 10)
	}
	if unstamped > 0 {
		l.Stamps = "user"
		l.Details["unstamped"] = strconv.Itoa(unstamped)
		l.Caveats = append(l.Caveats, record.Caveat{Kind: "user-stamps",
			Text: "latency includes the tester's own wake-ups: the kernel did not stamp every probe"})
	}
	l.Includes = includes(l.Stamps, r.KernelEcho)
	for _, p := range r.Probes {
		user, rtt := int64(-1), int64(-1)
		if p.User != 0 {
			user, rtt = p.User, p.User
			if l.Stamps == "kernel" {
				rtt, _ = p.network(r.KernelEcho)
			}
		}
		l.RTT = append(l.RTT, rtt)
		l.UserRTT = append(l.UserRTT, user)
		l.SentAt = append(l.SentAt, p.Sent)
		l.Late = append(l.Late, p.Late)
		l.EchoNs = append(l.EchoNs, max(p.Residence, 0))
	}
	return l
}

// includes says what a round trip is made of.
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

// canProbe: every node can.
func canProbe(traffic.Request) check.Answer { return check.OK() }
