package traffic

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// Datagrams that one call may carry: UDP_MAX_SEGMENTS is 128, and was 64 before kernel 6.9.
const (
	longestTrain = 128
	usualTrain   = 64
)

// train says how datagrams are given to the kernel together, in one large write that is cut apart later
// (UDP_SEGMENT), which saves most of the cost of sending.
type train struct {
	most  int  // datagrams per call; below 2 = none
	uncut bool // the first device takes them whole
}

// trainTo says what the way to the other end allows. Where the device takes a train whole, it would cross a
// virtual network uncut, and what is forwarded would be no packets: only count mode, which says so, does
// that.
func trainTo(to netip.Addr, payload int, count bool) train {
	dev, err := kernel.RouteDevice(to)
	if err != nil {
		return train{}
	}
	features, err := kernel.Features(dev)
	if err != nil {
		return train{}
	}
	return trainBy(features, to, payload, count)
}

// trainBy judges by the features of the first device.
func trainBy(features map[string]bool, to netip.Addr, payload int, count bool) train {
	if !sumsFor(features, to) {
		return train{}
	}
	whole, known := features["tx-udp-segmentation"]
	if !known || whole && !count {
		return train{}
	}
	n := min(longestTrain, (1<<16-256)/payload)
	if n < 2 {
		return train{}
	}
	return train{most: n, uncut: whole}
}

// sumsFor reports whether the device computes check sums. Kernels before 6.11 refuse every datagram of a
// socket that sends trains, short ones too, where the device leaves check sums to them, as that of OpenVPN
// does.
func sumsFor(features map[string]bool, to netip.Addr) bool {
	sums := "tx-checksum-ipv4"
	if to.Is6() {
		sums = "tx-checksum-ipv6"
	}
	return features["tx-checksum-ip-generic"] || features[sums]
}

// begin turns trains on for a socket, or gives up on them.
func (t train) begin(fd, payload int) train {
	if t.most < 2 || unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT, payload) != nil {
		return train{}
	}
	return t
}
