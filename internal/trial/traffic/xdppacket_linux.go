//go:build !mips && !mipsle

package traffic

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// packetLine is a line of AF_PACKET: whole frames, many by one call, past the queueing discipline
// (packet(7)). A frame that the device refuses stays queued, so that it is not counted as sent before it
// is.
type packetLine struct {
	socket
	batch      *batch
	head, tail int // of the batch: what is queued
}

func openPacket(device, size int) (*packetLine, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket of AF_PACKET: %w", err)
	}
	p := &packetLine{socket: socket{fd: fd}, batch: newBatch(lineSlots, size, 0)}
	if err := p.open(device); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *packetLine) open(device int) error {
	if err := unix.SetsockoptInt(p.fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
		return fmt.Errorf("pass the queueing discipline by AF_PACKET: %w", err)
	}
	if err := unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, lineRoom); err != nil {
		return fmt.Errorf("bound what AF_PACKET has under way: %w", err)
	}
	if err := bound(p.fd); err != nil {
		return fmt.Errorf("bound the calls of AF_PACKET: %w", err)
	}
	// Protocol 0: it receives nothing.
	if err := unix.Bind(p.fd, &unix.SockaddrLinklayer{Ifindex: device}); err != nil {
		return fmt.Errorf("bind AF_PACKET to device %d: %w", device, err)
	}
	return nil
}

func (p *packetLine) slot() []byte {
	if p.tail == lineSlots {
		return nil
	}
	return p.batch.at(p.tail)
}

func (p *packetLine) queue() { p.tail++ }

func (p *packetLine) push() error {
	n, err := p.batch.send(p.fd, p.head, p.tail)
	if p.head += n; p.head == p.tail {
		p.head, p.tail = 0, 0
	}
	if err == nil || again(err) || errors.Is(err, unix.ENOBUFS) {
		return nil
	}
	return err
}

// left: what the kernel has taken is out.
func (p *packetLine) left() (queued, out int) { return p.tail - p.head, p.tail - p.head }

func (p *packetLine) close() error { p.socket.close(); return nil }
