package isp

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
)

// These are the packet codes of the PPPoE discovery stage (RFC 2516, appendix A).
const (
	codePADI = 0x09
	codePADO = 0x07
	codePADR = 0x19
	codePADS = 0x65
	codePADT = 0xa7
)

// These are the tags in discovery packets. PPP-Max-Payload is defined in RFC 4638.
const (
	tagEnd         = 0x0000
	tagServiceName = 0x0101
	tagACName      = 0x0102
	tagHostUniq    = 0x0103
	tagACCookie    = 0x0104
	tagRelayID     = 0x0110
	tagMaxPayload  = 0x0120
)

const (
	etherDiscovery = 0x8863
	etherHead      = 14
	pppoeHead      = 6
	// pppoeBytes is the total size of the PPPoE header and the PPP protocol field in bytes.
	pppoeBytes = pppoeHead + 2
)

// discovery is a packet of the discovery stage.
type discovery struct {
	to, from net.HardwareAddr
	code     byte
	session  uint16
	tags     []tag
}

type tag struct {
	kind  uint16
	value []byte
}

// find returns the value of the first tag of the given kind.
func (d discovery) find(kind uint16) ([]byte, bool) {
	for _, t := range d.tags {
		if t.kind == kind {
			return t.value, true
		}
	}
	return nil, false
}

var errNoDiscovery = errors.New("no packet of PPPoE's discovery stage")

// parseDiscovery parses an Ethernet frame that contains a discovery packet.
func parseDiscovery(frame []byte) (d discovery, err error) {
	if len(frame) < etherHead+pppoeHead || binary.BigEndian.Uint16(frame[12:]) != etherDiscovery {
		return d, errNoDiscovery
	}

	d.to, d.from = bytes.Clone(frame[:6]), bytes.Clone(frame[6:12])
	b := frame[etherHead:]
	length := int(binary.BigEndian.Uint16(b[4:]))
	if b[0] != 0x11 || length > len(b)-pppoeHead { // version 1 and type 1
		return d, errNoDiscovery
	}

	d.code, d.session = b[1], binary.BigEndian.Uint16(b[2:])
	for b = b[pppoeHead : pppoeHead+length]; len(b) >= 4; {
		kind := binary.BigEndian.Uint16(b)
		n := int(binary.BigEndian.Uint16(b[2:]))
		if kind == tagEnd {
			break
		}

		if b = b[4:]; n > len(b) {
			return d, fmt.Errorf("%w: tag %#04x is cut off", errNoDiscovery, kind)
		}

		d.tags = append(d.tags, tag{kind, bytes.Clone(b[:n])})
		b = b[n:]
	}

	return d, nil
}

// frame returns the packet as an Ethernet frame.
func (d discovery) frame() []byte {
	var tags []byte
	for _, t := range d.tags {
		tags = binary.BigEndian.AppendUint16(tags, t.kind)
		tags = binary.BigEndian.AppendUint16(tags, uint16(len(t.value)))
		tags = append(tags, t.value...)
	}

	out := append(append([]byte{}, d.to...), d.from...)
	out = binary.BigEndian.AppendUint16(out, etherDiscovery)
	out = append(out, 0x11, d.code)
	out = binary.BigEndian.AppendUint16(out, d.session)
	out = binary.BigEndian.AppendUint16(out, uint16(len(tags)))
	return append(out, tags...)
}

// concentrator replies to discovery packets. It stores nothing about a subscriber until a cookie proves that
// the subscriber receives packets at its address.
type concentrator struct {
	mac      net.HardwareAddr
	key      []byte // key for computing cookies
	most     int    // maximum payload of a session on this link in bytes
	sessions map[uint16]*subscriber
}

// subscriber describes a subscriber that has a session.
type subscriber struct {
	id      uint16
	mac     net.HardwareAddr
	payload int // maximum payload of a packet of the session in bytes
	end     func()
}

// maxSubscribers is the maximum number of sessions. A port usually serves one router or a few.
const maxSubscribers = 8

// usualPayload is the maximum payload in bytes of a session that does not use RFC 4638.
const usualPayload = 1500 - pppoeBytes

// hear processes a frame. It returns the reply, the session that begins and the session that ends; each may
// be nil. If a subscriber that already has a session requests another, hear ends the old session and returns
// no reply. The subscriber then repeats its request (RFC 2516 §8).
func (c *concentrator) hear(frame []byte) (answer []byte, begins, ends *subscriber) {
	d, err := parseDiscovery(frame)
	own := err == nil && bytes.Equal(d.to, c.mac)
	switch {
	case err != nil || d.from[0]&1 != 0: // malformed, or sent from a multicast address
		return nil, nil, nil
	case d.code == codePADI && d.session == 0:
		a := c.answer(d, codePADO, 0)
		a.tags = append(a.tags, tag{tagACCookie, c.cookie(d.from)})
		return a.frame(), nil, nil
	case d.code == codePADR && own && d.session == 0:
		got, _ := d.find(tagACCookie)
		if !hmac.Equal(got, c.cookie(d.from)) {
			return nil, nil, nil
		}

		for _, s := range c.sessions { // an old session means that the subscriber has restarted
			if bytes.Equal(s.mac, d.from) {
				ends = s
			}
		}

		if ends != nil || len(c.sessions) >= maxSubscribers {
			return nil, nil, ends
		}

		begins = &subscriber{id: c.free(), mac: d.from, payload: min(usualPayload, c.most)}
		if v, ok := d.find(tagMaxPayload); ok && len(v) == 2 {
			begins.payload = min(max(usualPayload, int(binary.BigEndian.Uint16(v))), c.most)
		}

		c.sessions[begins.id] = begins
		return c.answer(d, codePADS, begins.id).frame(), begins, ends
	case d.code == codePADT && own:
		s := c.sessions[d.session]
		if s != nil && bytes.Equal(s.mac, d.from) {
			return nil, nil, s
		}
	}

	return nil, nil, nil
}

// gone removes a session that has ended, and returns a PADT packet for the subscriber.
func (c *concentrator) gone(s *subscriber) []byte {
	delete(c.sessions, s.id)
	return terminate(c.mac, s.mac, s.id)
}

// free returns an unused session ID. IDs 0 and 0xffff are reserved.
func (c *concentrator) free() uint16 {
	id := uint16(1)
	for c.sessions[id] != nil {
		id++
	}
	return id
}

// answer returns a reply to d. It copies the tags by which the subscriber recognises its request.
func (c *concentrator) answer(d discovery, code byte, session uint16) discovery {
	a := discovery{to: d.from, from: c.mac, code: code, session: session}
	service, _ := d.find(tagServiceName)
	a.tags = []tag{{tagServiceName, service}}
	if code == codePADO {
		a.tags = append(a.tags, tag{tagACName, []byte("chokepoint")})
	}

	for _, kind := range []uint16{tagHostUniq, tagRelayID} {
		if v, ok := d.find(kind); ok {
			a.tags = append(a.tags, tag{kind, v})
		}
	}

	if v, ok := d.find(tagMaxPayload); ok && len(v) == 2 && c.most > usualPayload {
		payload := min(int(binary.BigEndian.Uint16(v)), c.most)
		a.tags = append(a.tags, tag{tagMaxPayload, binary.BigEndian.AppendUint16(nil, uint16(payload))})
	}

	return a
}

func (c *concentrator) cookie(of net.HardwareAddr) []byte {
	m := hmac.New(sha256.New, c.key)
	m.Write(of)
	return m.Sum(nil)[:16]
}

// terminate returns a PADT packet, which ends the given session.
func terminate(from, to net.HardwareAddr, session uint16) []byte {
	return discovery{to: to, from: from, code: codePADT, session: session}.frame()
}
