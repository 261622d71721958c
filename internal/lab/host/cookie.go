package host

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
)

// Cookies are what a UDP listener requires from a sender before it sends more than it received: whoever
// forges a source address never sees them. They are computed from that address and a secret of the
// listener's, so that no state is kept for senders that never return one (as RFC 4987 §3.6 does for TCP).
type Cookies struct{ key [sha256.Size]byte }

// NewCookies makes the cookies of one listener.
func NewCookies() *Cookies {
	c := &Cookies{}
	rand.Read(c.key[:]) // never fails, see its documentation
	return c
}

// Of returns the cookie of an address and port; it is never 0, which means none.
func (c *Cookies) Of(from netip.AddrPort) uint64 {
	m := hmac.New(sha256.New, c.key[:])
	b, _ := from.MarshalBinary() // never fails
	m.Write(b)
	return binary.BigEndian.Uint64(m.Sum(nil)) | 1
}
