package traffic

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// knock is how often the opener repeats its hello until it is welcomed.
const (
	HelloInterval = 20 * time.Millisecond
	MaxRefusals   = 20 // then nobody is listening there
)

// Handshake says hello on a connected socket until it is welcomed.
func Handshake(ctx context.Context, fd int, tag uint32, flow uint16) error {
	hello := make([]byte, DatagramHeader)
	Datagram{Tag: tag, Flow: flow, Phase: PhaseHello}.Put(hello)
	answer := make([]byte, 64)
	refused := 0
	for ctx.Err() == nil && refused < MaxRefusals {
		if _, err := unix.Write(fd, hello); err == unix.ECONNREFUSED {
			refused++
		} else if err != nil && err != unix.EINTR {
			return err
		}
		if !Readable(fd, HelloInterval) {
			continue
		}
		n, _, err := unix.Recvfrom(fd, answer, unix.MSG_DONTWAIT)
		if err == unix.ECONNREFUSED {
			refused++
			Nap(HelloInterval)
		}
		d, ok := ReadDatagram(answer[:max(n, 0)])
		if ok && d.Tag == tag && d.Flow == flow && d.Phase == PhaseWelcome {
			return nil
		}
	}
	if refused > 0 {
		return unix.ECONNREFUSED
	}
	return fmt.Errorf("no answer within %v", Patience)
}

// Readable waits until something can be read.
func Readable(fd int, d time.Duration) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, int(d.Milliseconds()))
	return err == nil && n > 0
}

// EventFD ends the waiting of a thread that answers, so that the run need not wait for it.
type EventFD int

const NoEventFD EventFD = -1

func NewEventFD() (EventFD, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return NoEventFD, fmt.Errorf("open an event counter: %w", err)
	}
	return EventFD(fd), nil
}

func (b EventFD) Signal() {
	if b != NoEventFD {
		unix.Write(int(b), binary.NativeEndian.AppendUint64(nil, 1))
	}
}

func (b EventFD) Close() {
	if b != NoEventFD {
		unix.Close(int(b))
	}
}

// Readable waits until something can be read, or the bell rings.
func (b EventFD) Readable(fd int, d time.Duration) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(b), Events: unix.POLLIN}}
	_, err := unix.Poll(p, int(d.Milliseconds()))
	return err == nil && p[0].Revents != 0
}
