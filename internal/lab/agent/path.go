package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// Verbs that prove a path before it is measured.
const (
	VerbCounters = "path/counters"
	VerbEcho     = "path/echo"
	VerbReach    = "path/reach"
)

// tellCounters answers a list of device names with their counters.
func tellCounters(_ context.Context, s host.Session) error {
	var devices []string
	if err := s.Recv(&devices); err != nil {
		return err
	}
	out := map[string]kernel.LinkCounters{}
	for _, d := range devices {
		c, err := kernel.Counters(d)
		if err != nil {
			return err
		}
		out[d] = c
	}
	return s.Send(out)
}

// EchoAt asks a node to return datagrams sent to an address, until the
// session ends. The node answers once it listens.
type EchoAt struct {
	Addr netip.Addr `json:"addr"`
	Port int        `json:"port"`
}

func echo(ctx context.Context, s host.Session) error {
	var at EchoAt
	if err := s.Recv(&at); err != nil {
		return err
	}
	c, err := listenExact(ctx, netip.AddrPortFrom(at.Addr, uint16(at.Port)))
	if err != nil {
		return fmt.Errorf("listen for the path check: %w", err)
	}
	defer c.Close()
	if err := s.Send(struct{}{}); err != nil {
		return err
	}
	ended := make(chan struct{})
	defer func() { <-ended }()
	go func() {
		defer close(ended)
		for s.Recv(nil) == nil {
		}
		c.Close()
	}()
	buf := make([]byte, 1<<16)
	for {
		n, from, err := c.ReadFromUDPAddrPort(buf)
		if err != nil {
			return nil // closed: the session ended
		}
		c.WriteToUDPAddrPort(buf[:n], from) // too large for the way back: the asker will miss it
	}
}

// Reach asks a node to send one datagram of each size (IP length) to an echo,
// unfragmented, and to wait for its return.
type Reach struct {
	From  netip.Addr `json:"from"`
	To    netip.Addr `json:"to"`
	Port  int        `json:"port"`
	Sizes []int      `json:"sizes"`
}

// Reached says which sizes made the round trip; Bytes is the payload sent.
type Reached struct {
	Back  []int  `json:"back"`
	Bytes int64  `json:"bytes"`
	Note  string `json:"note,omitempty"` // the last error, such as "message too long"
}

func reach(ctx context.Context, s host.Session) error {
	var r Reach
	if err := s.Recv(&r); err != nil {
		return err
	}
	c, err := listenExact(ctx, netip.AddrPortFrom(r.From, 0))
	if err != nil {
		return fmt.Errorf("check the path from %s: %w", r.From, err)
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	var out Reached
	for _, size := range r.Sizes {
		back, err := roundTrip(c, r, size, &out.Bytes)
		if err != nil {
			out.Note = err.Error()
		}
		if back {
			out.Back = append(out.Back, size)
		}
	}
	return s.Send(out)
}

// roundTrip sends one datagram and waits for it; the first one may meet an
// unresolved neighbour or a tunnel that has not shaken hands, so it is
// repeated for a second.
func roundTrip(c *net.UDPConn, r Reach, size int, sent *int64) (bool, error) {
	header := 20 + 8
	if r.To.Is6() {
		header = 40 + 8
	}
	if size < header {
		return false, fmt.Errorf("packet of %d bytes: smaller than its headers", size)
	}
	payload := make([]byte, size-header)
	to := netip.AddrPortFrom(r.To, uint16(r.Port))
	buf := make([]byte, 1<<16)
	var last error
	for try := range 5 {
		if len(payload) > 0 {
			payload[0] = byte(try)
		}
		if _, err := c.WriteToUDPAddrPort(payload, to); err != nil {
			if errors.Is(err, syscall.EMSGSIZE) {
				return false, err // conclusive
			}
			last = err
		} else {
			*sent += int64(len(payload))
		}
		c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		for {
			n, _, err := c.ReadFromUDPAddrPort(buf)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				last = err
				break
			}
			if n == len(payload) {
				return true, nil
			}
		}
	}
	if last == nil {
		last = fmt.Errorf("packet of %d bytes did not return", size)
	}
	return false, last
}
