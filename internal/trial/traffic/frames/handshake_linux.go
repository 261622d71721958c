package frames

import (
	"context"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// handshake is what both ends of a load do before frames flow: by ordinary sockets, which keep the flows'
// ports for as long as the load lasts, each flow is shown to the listener as it arrives there, behind any
// translation of addresses, and every device on the path learns its neighbours.
type handshake struct {
	local  []netip.AddrPort // of each flow, as this end sees it
	remote []netip.AddrPort

	sockets []int                // of the opener
	server  *traffic.HelloServer // of the listener; else nil
}

func shakeHands(ctx context.Context, q traffic.Request, keys []traffic.FlowKey,
	listening func(port int) error) (*handshake, error) {
	h := &handshake{local: make([]netip.AddrPort, len(keys)), remote: make([]netip.AddrPort, len(keys))}
	var err error
	if q.Listen {
		h.server, err = traffic.AnswerHellos(ctx, q, len(keys), listening,
			func(flow int, from netip.AddrPort, at *traffic.UDPListener) (int, error) {
				h.local[flow], h.remote[flow] = at.At, from
				return -1, nil
			})
	} else {
		err = traffic.SayHello(ctx, q, keys, func(flow, fd int, at, to netip.AddrPort) error {
			h.sockets = append(h.sockets, fd)
			h.local[flow], h.remote[flow] = at, to
			return traffic.Connect(fd, to, q.Load.IP)
		})
	}
	if err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

// socket is the one by which a flow said hello: the listener has one for all.
func (h *handshake) socket(flow int) int {
	if h.server != nil {
		return h.server.Listeners[0].FD
	}
	return h.sockets[flow]
}

// stop ends the answering.
func (h *handshake) stop() {
	if h.server != nil {
		h.server.Stop()
	}
}

func (h *handshake) close() {
	if h.server != nil {
		h.server.Close()
	}
	for _, fd := range h.sockets {
		unix.Close(fd)
	}
	h.sockets = nil
}
