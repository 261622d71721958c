package frames

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// packetSocket sends by AF_PACKET: whole frames, many by one call, past the queueing discipline (packet(7)).
// A frame that the device refuses stays queued, so that it is not counted as sent before it is.
type packetSocket struct {
	traffic.Socket
	batch      *traffic.Batch
	head, tail int // of the batch: what is queued
}

func openPacket(device, size int) (*packetSocket, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket of AF_PACKET: %w", err)
	}
	p := &packetSocket{Socket: traffic.Socket{FD: fd}, batch: traffic.NewBatch(txSlots, size, 0)}
	if err := p.open(device); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *packetSocket) open(device int) error {
	if err := unix.SetsockoptInt(p.FD, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
		return fmt.Errorf("pass the queueing discipline by AF_PACKET: %w", err)
	}
	if err := unix.SetsockoptInt(p.FD, unix.SOL_SOCKET, unix.SO_SNDBUF, txRoom); err != nil {
		return fmt.Errorf("bound what AF_PACKET has under way: %w", err)
	}
	if err := traffic.Bound(p.FD); err != nil {
		return fmt.Errorf("bound the calls of AF_PACKET: %w", err)
	}
	// Protocol 0: it receives nothing.
	if err := unix.Bind(p.FD, &unix.SockaddrLinklayer{Ifindex: device}); err != nil {
		return fmt.Errorf("bind AF_PACKET to device %d: %w", device, err)
	}
	return nil
}

func (p *packetSocket) slot() []byte {
	if p.tail == txSlots {
		return nil
	}
	return p.batch.At(p.tail)
}

func (p *packetSocket) queue() { p.tail++ }

func (p *packetSocket) push() error {
	n, err := p.batch.Send(p.FD, p.head, p.tail)
	if p.head += n; p.head == p.tail {
		p.head, p.tail = 0, 0
	}
	if err == nil || traffic.Again(err) || errors.Is(err, unix.ENOBUFS) {
		return nil
	}
	return err
}

// left: what the kernel has taken is out.
func (p *packetSocket) left() (queued, out int) { return p.tail - p.head, p.tail - p.head }

func (p *packetSocket) close() error { p.Socket.Close(); return nil }
