package knob

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// TestCrossTraffic: datagrams of one size come to the first address that is not the node's own, until the
// session ends.
func TestCrossTraffic(t *testing.T) {
	// An address of the loopback device that is not listed as one of the machine's.
	c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.2:0")))
	must(t, err)
	defer c.Close()
	a := host.Inside(t.Context(), Companions())
	defer a.Close()
	port := netip.MustParseAddrPort(c.LocalAddr().String()).Port()
	s, err := a.Open(t.Context(), verbCross, crossing{
		RateBps: 10e6,
		To: []string{"127.0.0.1", "2001:db8::1",
			"127.0.0.2"},
		Port: port,
	})
	must(t, err)
	must(t, host.Await(t.Context(), s, nil))
	buf := make([]byte, 2048)
	for range 50 {
		must(t, c.SetReadDeadline(time.Now().Add(5*time.Second)))
		if n, err := c.Read(buf); err != nil || n != crossSize-28 {
			t.Fatalf("got %d bytes, %v, want packets of %d with their headers", n, err, crossSize)
		}
	}

	s.Close()
	for { // what is on its way arrives, and then no more
		must(t, c.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
		if _, err := c.Read(buf); err != nil {
			break
		}
	}

	if _, err := (crossing{To: []string{"127.0.0.1", ""}}).target(); !errors.Is(err, host.ErrUnsupported) {
		t.Errorf("a path without another end: got %v", err)
	}
}
