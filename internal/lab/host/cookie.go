package host

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
)

// Cookies computes the cookie that a UDP client must return before the listener sends it more bytes than it
// has received. A client with a forged source address never receives its cookie. A cookie depends only on the
// client's address and a secret key. The listener therefore stores nothing about clients that never return
// their cookie. TCP's SYN cookies work in the same way (RFC 4987 §3.6).
type Cookies struct{ key [sha256.Size]byte }

// NewCookies returns Cookies with a random key.
func NewCookies() *Cookies {
	c := &Cookies{}
	rand.Read(c.key[:]) // never returns an error
	return c
}

// Of returns the cookie for an address and port. The cookie is never 0, because 0 stands for "no cookie".
func (c *Cookies) Of(from netip.AddrPort) uint64 {
	m := hmac.New(sha256.New, c.key[:])
	b, _ := from.MarshalBinary() // never returns an error
	m.Write(b)
	return binary.BigEndian.Uint64(m.Sum(nil)) | 1
}
