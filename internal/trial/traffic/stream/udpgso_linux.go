package stream

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// Datagrams that one call may carry: UDP_MAX_SEGMENTS is 128, and was 64 before kernel 6.9.
const (
	maxGSOSegments = 128
	oldGSOSegments = 64
)

// gso says how datagrams are given to the kernel together, in one large write that is cut apart later
// (UDP_SEGMENT), which saves most of the cost of sending.
type gso struct {
	most  int  // datagrams per call; below 2 = none
	whole bool // the first device takes them whole
}

// gsoTo says what the path to the other end allows. Where the device takes a batch whole, it would cross a
// virtual network uncut, and what is forwarded would be no packets: only count mode, which says so, does
// that.
func gsoTo(to netip.Addr, payload int, count bool) gso {
	dev, err := kernel.RouteDevice(to)
	if err != nil {
		return gso{}
	}
	features, err := kernel.Features(dev)
	if err != nil {
		return gso{}
	}
	return gsoBy(features, to, payload, count)
}

// gsoBy judges by the features of the first device.
func gsoBy(features map[string]bool, to netip.Addr, payload int, count bool) gso {
	if !checksumsFor(features, to) {
		return gso{}
	}
	whole, known := features["tx-udp-segmentation"]
	if !known || whole && !count {
		return gso{}
	}
	n := min(maxGSOSegments, (1<<16-256)/payload)
	if n < 2 {
		return gso{}
	}
	return gso{most: n, whole: whole}
}

// checksumsFor reports whether the device computes check sums. Kernels before 6.11 refuse every datagram of
// a socket that sends batches, short ones too, where the device leaves check sums to them, as that of
// OpenVPN does.
func checksumsFor(features map[string]bool, to netip.Addr) bool {
	sums := "tx-checksum-ipv4"
	if to.Is6() {
		sums = "tx-checksum-ipv6"
	}
	return features["tx-checksum-ip-generic"] || features[sums]
}

// begin turns UDP GSO on for a socket, or gives up on them.
func (t gso) begin(fd, payload int) gso {
	if t.most < 2 || unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT, payload) != nil {
		return gso{}
	}
	return t
}
