package stream

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// udpSink receives flows on one thread. Either each flow has its own socket, or all flows share the socket of
// a listener.
type udpSink struct {
	*udpArrivals
	ample bool
	fds   []int
	batch *traffic.Batch
}

func newUDPSink(flows []*udpFlow, all int) *udpSink {
	k := &udpSink{udpArrivals: newUDPArrivals(counts(flows), all), ample: flows[0].ample}
	for i, f := range flows {
		if f.to == nil || i == 0 {
			k.fds = append(k.fds, f.FD)
		}
	}
	return k
}

// prepare sets the sockets' options. It requests the kernel's time stamps, except in count mode, because
// merged datagrams do not have separate times.
func (k *udpSink) prepare() error {
	room := traffic.DatagramHeader
	control := 0
	one := k.flows[0]
	if one.verify {
		room = one.payload
	}

	for _, fd := range k.fds {
		if one.count {
			// Ignore the error, because datagrams are also counted if the kernel does not merge them (before
			// Linux 5.0).
			unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_GRO, 1)
			continue
		}

		control = traffic.StampRoom()
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
			return fmt.Errorf("ask for time stamps: %w", err)
		}
	}

	k.batch = traffic.NewBatch(traffic.ReceiveBatch, room, control)
	return nil
}

func (k *udpSink) Run(p *traffic.Phases) error {
	if err := k.prepare(); err != nil {
		return err
	}

	r, err := traffic.NewReceiver(k.fds, k.batch)
	if err != nil {
		return err
	}
	defer r.Close()
	enter := k.enterBatch
	// The first pass drops late hellos. At the end, everything that has arrived is read, because the path has
	// not lost it.
	var late int64 // time limit for reading what arrived before Stop
	for !p.Abandoned.Load() {
		now := traffic.Monotonic()
		if late == 0 && now >= p.Stop { // Stop may be long ago if this thread was delayed
			late = now + int64(traffic.BacklogTime)
		}

		if late > 0 && now >= late {
			return nil
		}

		_, more, err := r.Look(enter)
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}

		if more {
			continue
		}

		if now = traffic.Monotonic(); now >= p.Stop || k.complete(now) {
			return nil
		}

		traffic.Nap(k.pause(p))
	}

	return nil
}

// pause returns the time between two reads. It is longer if the socket's buffer is large, except near the
// start and the end of the window, whose precision depends on the pause.
func (k *udpSink) pause(p *traffic.Phases) time.Duration {
	now := traffic.Monotonic()
	if k.ample && now > p.Start+int64(edgeTime) && now < p.End-int64(edgeTime) {
		return amplePoll
	}
	return traffic.ReceivePoll
}

// enterBatch counts a batch of received datagrams. The start and the end of the window are only as precise
// as the polling interval, but datagrams have the kernel's time stamps.
func (k *udpSink) enterBatch(n int) {
	now := traffic.Monotonic()
	for i := range n {
		d, ok := traffic.ReadDatagram(k.batch.At(i))
		length := k.batch.Length(i)
		f := k.flowOf(d, ok && length >= traffic.DatagramHeader)
		if f == nil {
			continue
		}

		f.take(k.batch.At(i), length, d, now, k.batch.Stamp(i))
		if len(k.flows) > 1 {
			f.tell()
		}
	}

	k.flows[0].tell()
}
