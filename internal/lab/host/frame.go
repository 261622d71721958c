package host

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// Controller and agent exchange frames. A frame consists of a 20-byte header and a payload. The header
// contains, in big-endian order, "CP", the version (1 byte), kind (1), session (4), payload length (4),
// CRC-32 of the payload (4), and CRC-32 of the first 16 bytes of the header (4). The checksum of the header
// lets a receiver on a serial line find the next frame after bytes were lost.
const (
	protocolVersion = 1
	headerSize      = 20
	maxPayload      = 32 << 20
)

type frameKind byte

const (
	frameOpen   frameKind = iota + 1 // controller → node: openRequest, followed by the first frameData
	frameData                        // both directions: a JSON value
	frameSecret                      // both directions: the bytes of a Secret
	frameFinish                      // controller → node: end of input
	frameClose                       // controller → node: abandon the session
	frameEnd                         // node → controller: the handler returned nil
	frameError                       // node → controller: wireError
	frameHello                       // both directions, session 0: the sender's start time; see ConnectLine
)

type frame struct {
	kind    frameKind
	session uint32
	payload []byte
}

type openRequest struct {
	Verb string `json:"verb"`
}

type wireError struct {
	Code string `json:"code"`
	Text string `json:"text"`
	Hint string `json:"hint,omitempty"`
}

// ErrVersion reports a frame with an unsupported protocol version.
var ErrVersion = errors.New("agent protocol version differs")

// ErrUnknownVerb reports that the node has no handler for a verb.
var ErrUnknownVerb = errors.New("unknown verb")

// ErrNotUndone reports that a node could not undo all of its changes.
var ErrNotUndone = errors.New("not put back")

// typed maps the codes in a wireError to errors. The first match is used: a failure to undo a change matters
// more than the error that made the handler undo it.
var typed = []struct {
	code string
	err  error
}{
	{"not-undone", ErrNotUndone}, {"unknown-verb", ErrUnknownVerb}, {"unsupported", ErrUnsupported},
	{"unreachable", ErrUnreachable}, // returned by a gateway if it cannot reach its machine
}

const codeError = "error" // code of any other error

// RemoteError is an error that a node returned. Depending on its code, it matches ErrUnsupported,
// ErrUnknownVerb, ErrUnreachable or ErrNotUndone.
type RemoteError struct{ Code, Text, HintText string }

func (e *RemoteError) Error() string { return e.Text }

// Hint suggests the user's next step. It may be empty.
func (e *RemoteError) Hint() string { return e.HintText }

// Is reports whether target is the error that e's code stands for.
func (e *RemoteError) Is(target error) bool {
	for _, t := range typed {
		if t.code == e.Code {
			return t.err == target
		}
	}
	return false
}

func toWire(err error) wireError {
	w := wireError{Code: codeError, Text: err.Error(), Hint: check.HintOf(err)}
	for _, t := range typed {
		if errors.Is(err, t.err) {
			w.Code = t.code
			break
		}
	}
	return w
}

func appendFrame(b []byte, f frame) []byte {
	start := len(b)
	b = append(b, 'C', 'P', protocolVersion, byte(f.kind))
	b = binary.BigEndian.AppendUint32(b, f.session)
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.payload)))
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(f.payload))
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b[start:start+16]))
	return append(b, f.payload...)
}

func readFrame(r io.Reader) (f frame, err error) {
	var h [headerSize]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return f, err
	}

	n := binary.BigEndian.Uint32(h[8:])
	switch {
	case h[0] != 'C' || h[1] != 'P' || crc32.ChecksumIEEE(h[:16]) != binary.BigEndian.Uint32(h[16:]):
		return f, errors.New("read agent frame: damaged header")
	case h[2] != protocolVersion:
		return f, fmt.Errorf("%w: theirs is %d, ours is %d", ErrVersion, h[2], protocolVersion)
	case n > maxPayload:
		return f, fmt.Errorf("read agent frame: %d bytes, more than %d", n, maxPayload)
	}

	f = frame{kind: frameKind(h[3]), session: binary.BigEndian.Uint32(h[4:]), payload: make([]byte, n)}
	_, err = io.ReadFull(r, f.payload)
	if err == nil && crc32.ChecksumIEEE(f.payload) != binary.BigEndian.Uint32(h[12:]) {
		err = errors.New("read agent frame: damaged payload")
	}

	return f, err
}

func encode(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %T for the agent: %w", v, err)
	}

	if len(b) > maxPayload {
		return nil, fmt.Errorf("encode %T for the agent: %d bytes, more than %d", v, len(b), maxPayload)
	}

	return b, nil
}
