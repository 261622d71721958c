package stream

import (
	"context"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// connectTCP makes one connection per flow, whoever sends in it.
func connectTCP(ctx context.Context, l *traffic.Half, listening func(port int) error) error {
	q := l.Request
	conns, _, err := traffic.ConnectFlows(ctx, q, l.Keys, listening)
	if err != nil {
		return err
	}
	mode := tcpModeTo(q.Peer, q.Load.Verify, len(l.Keys), len(traffic.AllowedCPUs()))
	shared := newTCPBuffers(q)
	var controls []string
	var pooled [2][]*tcpFlow // receivers, senders
	for i, c := range conns {
		f, failed := newTCPFlow(c, q, i, l.Keys[i], mode)
		if c.Close(); failed != nil { // the flow has a descriptor of its own
			err = failed
			continue
		}
		f.prepare(shared)
		l.Flows[i] = f
		if !slices.Contains(controls, f.congestion) {
			controls = append(controls, f.congestion)
		}
		switch {
		case !mode.pool:
			l.Workers = append(l.Workers, f)
		case f.Sends:
			pooled[1] = append(pooled[1], f)
		default:
			pooled[0] = append(pooled[0], f)
		}
	}
	for w, of := range pooled {
		for _, share := range traffic.Deal(of, len(traffic.AllowedCPUs())) {
			l.Workers = append(l.Workers, &tcpPool{flows: share, sends: w == 1})
		}
	}
	l.Mode = mode.String
	l.Details["congestion"] = strings.Join(controls, "+") // in the order in which streams take them
	return err
}

func newTCPFlow(c *net.TCPConn, q traffic.Request, i int, k traffic.FlowKey, mode tcpMode) (*tcpFlow, error) {
	fd, err := traffic.TakeOver(c, true)
	if err != nil {
		return nil, err
	}
	f := &tcpFlow{Socket: traffic.Socket{FD: fd}, mode: mode, pattern: traffic.NewPattern(q.Load.Tag, i),
		verify: q.Load.Verify, ByteFlow: traffic.ByteFlow{Key: k, Sends: k.Sends(q.Side),
			Table: record.NewTable("bytes")}}
	f.Addr = f.Local()
	f.congestion, err = traffic.SetCongestion(fd, traffic.CongestionOf(q.Load, k))
	if err == nil && q.Load.RateBps > 0 && f.Sends {
		// The kernel paces the payload; each stream has an equal share.
		bytes := q.Load.RateBps / 8 / float64(len(traffic.FlowsOf(q.Load)))
		if err = traffic.SetPacing(fd, uint64(math.Ceil(bytes))); err != nil {
			err = fmt.Errorf("pace at %.0f bytes per second: %w", bytes, err)
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
