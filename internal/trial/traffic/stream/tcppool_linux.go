package stream

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// poolWrite is what one stream is given at a time, before the next one's turn.
const poolWrite = 256 << 10

// tcpPool carries several streams of one direction on one thread.
type tcpPool struct {
	flows []*tcpFlow
	sends bool
	open  int // flows that are not yet at their end
}

func (c *tcpPool) Name() string {
	first, last := c.flows[0].Key, c.flows[len(c.flows)-1].Key
	return fmt.Sprintf("streams %d to %d %s", first.Stream, last.Stream, first.Direction)
}

func (c *tcpPool) Run(p *traffic.Phases) error {
	ready, fds := uint32(unix.EPOLLIN), make([]int, len(c.flows))
	if c.sends {
		ready = unix.EPOLLOUT
	}
	for i, f := range c.flows {
		if err := unix.SetNonblock(f.FD, true); err != nil {
			return fmt.Errorf("stream %d: %w", f.Key.Stream, err)
		}
		fds[i] = f.FD
	}
	poll, err := traffic.Watch(fds, ready)
	if err != nil {
		return err
	}
	defer unix.Close(poll)
	c.open = len(c.flows)
	if c.flows[0].verify {
		b := make([]byte, verifySize)
		for _, f := range c.flows {
			f.buffer = b
		}
	}
	if c.sends {
		traffic.SleepUntil(p.Begin, &p.Abandoned)
	}
	return c.serve(p, poll)
}

// serve gives each stream that is ready its turn.
func (c *tcpPool) serve(p *traffic.Phases, poll int) error {
	events := make([]unix.EpollEvent, min(len(c.flows), 256))
	for c.open > 0 && !p.Abandoned.Load() && !(c.sends && traffic.Monotonic() >= p.Senders) {
		n, err := traffic.EpollWait(poll, events, traffic.CallTimeout)
		if err != nil && err != unix.EINTR {
			return fmt.Errorf("wait for the streams: %w", err)
		}
		for _, e := range events[:max(n, 0)] {
			f := c.flows[e.Fd]
			over, err := f.turn(p)
			if err != nil {
				return fmt.Errorf("stream %d: %w", f.Key.Stream, err)
			}
			if over {
				c.open--
				unix.EpollCtl(poll, unix.EPOLL_CTL_DEL, f.FD, nil)
			}
		}
		if !c.sends && n > 0 && c.flows[0].mode.polled {
			traffic.Nap(tcpPoll)
		}
	}
	return nil
}

// turn moves what one call moves; over tells that the stream has ended.
func (f *tcpFlow) turn(p *traffic.Phases) (over bool, err error) {
	if !f.Sends {
		return f.take(p, unix.MSG_DONTWAIT)
	}
	b := f.buffer[:min(len(f.buffer), poolWrite)]
	if f.verify {
		f.pattern.Fill(b, uint64(f.Count.Load()))
	}
	n, err := traffic.Write(f.FD, b)
	switch {
	case err == nil:
		f.Count.Add(int64(n))
		return false, nil
	case traffic.Again(err):
		return false, nil
	case p.Over(p.End): // the other end is done, by its own clock
		return true, nil
	}
	return false, fmt.Errorf("send: %w", err)
}
