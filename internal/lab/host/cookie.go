package host

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
)

// Cookies hold what a listener on UDP has an opener return before it sends more than it was sent: whoever
// writes a false source address never sees them. They are made of that address and a secret of the
// listener's, so that nothing is kept of those who never return one (RFC 4987 §3.6 does so for TCP).
type Cookies struct{ key [sha256.Size]byte }

// NewCookies makes the cookies of one listener.
func NewCookies() *Cookies {
	c := &Cookies{}
	rand.Read(c.key[:]) // never fails, see its documentation
	return c
}

// Of is the cookie of an address and port; it is never 0, which is none.
func (c *Cookies) Of(from netip.AddrPort) uint64 {
	m := hmac.New(sha256.New, c.key[:])
	b, _ := from.MarshalBinary() // never fails
	m.Write(b)
	return binary.BigEndian.Uint64(m.Sum(nil)) | 1
}
