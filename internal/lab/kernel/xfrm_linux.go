package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// replayWindow is the size of the replay window in packets. RFC 4303 §3.4.3 requires at least 32 and
// recommends 64.
const replayWindow = 64

// AddXfrm creates an XFRM interface, which is the device of a route-based tunnel. Packets of the device use
// the policies that have the same ID.
func AddXfrm(dev string, id uint32, mtu int) error {
	reportDetails()
	at := netlink.NewLinkAttrs()
	at.Name, at.MTU = dev, mtu
	return explain(netlink.LinkAdd(&netlink.Xfrmi{LinkAttrs: at, Ifid: id}), "add xfrm interface %s", dev)
}

// ProbeESP tests whether the kernel supports a tunnel. It adds the associations and policies of the tunnel,
// and a device if routed is set, and deletes them again. No packet uses them.
func ProbeESP(c ESPCipher, outer6, routed bool) error {
	// These addresses are reserved for documentation (RFC 5737, RFC 3849).
	local := netip.MustParseAddr("192.0.2.1")
	remote := netip.MustParseAddr("192.0.2.2")
	if outer6 {
		local, remote = netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
	}

	id := 1<<30 | uint32(os.Getpid())
	// An all-zero key is valid, because AES accepts any key and HMAC rejects only short ones.
	key := make(ESPKey, c.KeySize())
	e := ESP{
		ID:     id,
		Cipher: c,
		Local:  local,
		Remote: remote,
		Out:    ESPAssociation{id, key},
		In:     ESPAssociation{id, key},
	}
	dev := ""
	if routed {
		dev = fmt.Sprintf("cpesp%d", os.Getpid())
		if err := AddXfrm(dev, id, 0); err != nil {
			return err
		}
	} else {
		e.Behind = []netip.Prefix{netip.PrefixFrom(remote, remote.BitLen())}
	}

	err := AddESP(e)
	if err == nil {
		err = RemoveESP(e)
	}

	if routed {
		err = errors.Join(err, DeleteLink(dev))
	}

	return err
}

// AddESP sets up one end of a tunnel. After an error, no part of the end remains.
func AddESP(e ESP) error {
	reportDetails()
	steps := e.steps()
	for i, s := range steps {
		if err := s.add(); err != nil {
			return errors.Join(err, undo(steps[:i]))
		}
	}

	return nil
}

// RemoveESP removes what AddESP has added. It is not an error if a part does not exist.
func RemoveESP(e ESP) error { return undo(e.steps()) }

type espStep struct{ add, del func() error }

func (e ESP) steps() []espStep {
	steps := []espStep{
		{func() error { return e.associate(e.Local, e.Remote, e.Out) },
			func() error { return e.dissociate(e.Remote, e.Out) }},
		{func() error { return e.associate(e.Remote, e.Local, e.In) },
			func() error { return e.dissociate(e.Local, e.In) }},
	}
	for _, p := range e.policies() {
		steps = append(steps, espStep{
			func() error {
				return explain(netlink.XfrmPolicyAdd(p), "add policy %s of tunnel %d", p.Dir, e.ID)
			},
			func() error {
				err := ignore(netlink.XfrmPolicyDel(p), unix.ENOENT, unix.ESRCH)
				return explain(err, "delete policy %s of tunnel %d", p.Dir, e.ID)
			},
		})
	}
	return steps
}

func undo(steps []espStep) (err error) {
	for _, s := range slices.Backward(steps) {
		err = errors.Join(err, s.del())
	}
	return err
}

// ReadESP returns the counters of one end of a tunnel.
func ReadESP(e ESP) (ESPStats, error) {
	out, err := e.read(e.Remote, e.Out)
	var in netlink.XfrmStateStats
	if err == nil {
		in, err = e.read(e.Local, e.In)
	}

	return ESPStats{
		Sent:          out.Packets,
		Received:      in.Packets,
		SentBytes:     out.Bytes,
		ReceivedBytes: in.Bytes,
		Replayed:      uint64(in.ReplayWindow) + uint64(in.Replay),
		Forged:        uint64(in.Failed),
	}, err
}

// associate adds the association for one direction. It builds the netlink message itself, because the library
// does not support associations for both IP versions (XFRM_STATE_AF_UNSPEC).
func (e ESP) associate(from, to netip.Addr, a ESPAssociation) error {
	if len(a.Key) != e.Cipher.KeySize() || e.ID == 0 {
		return fmt.Errorf("add association %#x: %d bytes of keys and id %d, want %d and not 0", a.SPI,
			len(a.Key), e.ID, e.Cipher.KeySize())
	}

	m := &nl.XfrmUsersaInfo{
		Reqid:  e.ID,
		Family: uint16(familyOf(to)),
		Mode:   uint8(netlink.XFRM_MODE_TUNNEL),
		Flags:  nl.XFRM_STATE_AF_UNSPEC | nl.XFRM_STATE_ESN,
	}
	m.Id.Daddr.FromIP(to.AsSlice())
	m.Id.Proto, m.Id.Spi = unix.IPPROTO_ESP, nl.Swap32(a.SPI)
	m.Saddr.FromIP(from.AsSlice())
	m.Lft = nl.XfrmLifetimeCfg{
		SoftByteLimit:   nl.XFRM_INF,
		HardByteLimit:   nl.XFRM_INF,
		SoftPacketLimit: nl.XFRM_INF,
		HardPacketLimit: nl.XFRM_INF,
	}
	req := nl.NewNetlinkRequest(nl.XFRM_MSG_NEWSA, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	req.AddData(m)
	for _, algorithm := range e.Cipher.algorithms(a.Key) {
		req.AddData(algorithm)
	}

	// This is a struct xfrm_replay_state_esn with extended sequence numbers (RFC 4304).
	const words = replayWindow / 32
	esn := make([]byte, 24+4*words)
	binary.NativeEndian.PutUint32(esn, words)
	binary.NativeEndian.PutUint32(esn[20:], replayWindow)
	req.AddData(nl.NewRtAttr(nl.XFRMA_REPLAY_ESN_VAL, esn))
	id := e.device()
	if id != 0 {
		req.AddData(nl.NewRtAttr(nl.XFRMA_IF_ID, nl.Uint32Attr(id)))
	}

	_, err := req.Execute(unix.NETLINK_XFRM, 0)
	if errors.Is(err, unix.ENOENT) { // because the kernel lacks an algorithm
		err = fmt.Errorf("%w (%w)", ErrUnsupported, err)
	}

	return explain(err, "add association %#x from %s to %s", a.SPI, from, to)
}

// algorithms returns the netlink attributes for the cipher and its keys.
func (c ESPCipher) algorithms(key ESPKey) []*nl.RtAttr {
	const icv = 128 // in bits
	if c == ESPAESCBC256SHA256 {
		crypt := nl.XfrmAlgo{AlgKeyLen: 256, AlgKey: key[:32]}
		auth := nl.XfrmAlgoAuth{
			AlgKeyLen:   256,
			AlgTruncLen: icv,
			AlgKey:      key[32:],
		}
		copy(crypt.AlgName[:], "cbc(aes)")
		copy(auth.AlgName[:], "hmac(sha256)")
		return []*nl.RtAttr{nl.NewRtAttr(nl.XFRMA_ALG_CRYPT, crypt.Serialize()),
			nl.NewRtAttr(nl.XFRMA_ALG_AUTH_TRUNC, auth.Serialize())}
	}

	aead := nl.XfrmAlgoAEAD{AlgKeyLen: uint32(8 * len(key)), AlgICVLen: icv, AlgKey: key}
	name := "rfc4106(gcm(aes))"
	if c == ESPChaCha20Poly1305 {
		name = "rfc7539esp(chacha20,poly1305)"
	}

	copy(aead.AlgName[:], name)
	return []*nl.RtAttr{nl.NewRtAttr(nl.XFRMA_ALG_AEAD, aead.Serialize())}
}

// state returns the fields that identify an association, in the form that the library uses. It does not
// contain the key.
func (e ESP) state(to netip.Addr, a ESPAssociation) *netlink.XfrmState {
	return &netlink.XfrmState{
		Dst:   to.AsSlice(),
		Proto: netlink.XFRM_PROTO_ESP,
		Ifid:  int(e.device()),
		Spi:   int(a.SPI),
	}
}

func (e ESP) dissociate(to netip.Addr, a ESPAssociation) error {
	err := ignore(netlink.XfrmStateDel(e.state(to, a)), unix.ESRCH)
	return explain(err, "delete association %#x to %s", a.SPI, to)
}

func (e ESP) read(to netip.Addr, a ESPAssociation) (netlink.XfrmStateStats, error) {
	s, err := netlink.XfrmStateGet(e.state(to, a))
	if errors.Is(err, unix.ESRCH) {
		err = ErrAbsent
	}

	if err != nil {
		return netlink.XfrmStateStats{}, explain(err, "read association %#x to %s", a.SPI, to)
	}

	return s.Statistics, nil
}

// policies returns three kinds of policies: for packets to the other end, for packets from there to this
// node, and for packets from there that this node forwards. If the tunnel has a device, they match all its
// packets.
func (e ESP) policies() []*netlink.XfrmPolicy {
	behind := e.Behind
	if len(behind) == 0 {
		behind = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	}

	var out []*netlink.XfrmPolicy
	for _, there := range behind {
		every := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if there.Addr().Is6() {
			every = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}

		out = append(out, tunnelPolicies(ipNet(every), ipNet(there), e.Local.AsSlice(), e.Remote.AsSlice(),
			e.ID)...)
	}

	for _, p := range out {
		p.Ifid = int(e.device())
	}

	return out
}

// tunnelPolicies returns the policies of a tunnel, one for each direction. here and there are the networks at
// its two ends.
func tunnelPolicies(here, there *net.IPNet, local, remote net.IP, id uint32) (out []*netlink.XfrmPolicy) {
	for _, dir := range []netlink.Dir{netlink.XFRM_DIR_OUT, netlink.XFRM_DIR_IN, netlink.XFRM_DIR_FWD} {
		if dir == netlink.XFRM_DIR_IN {
			here, there, local, remote = there, here, remote, local
		}

		out = append(out, &netlink.XfrmPolicy{
			Src: here,
			Dst: there,
			Dir: dir,
			Tmpls: []netlink.XfrmPolicyTmpl{{
				Src:   local,
				Dst:   remote,
				Proto: netlink.XFRM_PROTO_ESP,
				Mode:  netlink.XFRM_MODE_TUNNEL,
				Reqid: int(id),
			}},
		})
	}
	return out
}
