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

// The wire between controller and agent: frames of a 20-byte header and a payload. Header: "CP", version,
// kind, session (4 bytes), payload length (4), CRC-32 of the payload (4), CRC-32 of the first 16 header
// bytes (4); big endian. The double checksum lets a serial line resynchronise.
const (
	protocolVersion = 1
	headerSize      = 20
	maxPayload      = 32 << 20
)

type frameKind byte

const (
	frameOpen   frameKind = iota + 1 // controller → node: {verb}; the first data frame follows
	frameData                        // a JSON value
	frameSecret                      // raw bytes of a Secret
	frameFinish                      // controller → node: no more input
	frameClose                       // controller → node: abandon
	frameEnd                         // node → controller: handler returned nil
	frameError                       // node → controller: wireError
	frameHello                       // both, session 0: when the sender started, see ConnectLine
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

// ErrVersion means a frame of a protocol version that this program does not support.
var ErrVersion = errors.New("agent protocol version differs")

// ErrUnknownVerb is the typed answer to a verb unknown to the node.
var ErrUnknownVerb = errors.New("unknown verb")

// ErrNotUndone is the typed answer of a node that could not put back what it changed.
var ErrNotUndone = errors.New("not put back")

// typed lists the errors that keep their type across the connection, by the code of a wireError. The first
// match counts: a failure to restore outweighs the reason for restoring.
var typed = []struct {
	code string
	err  error
}{
	{"not-undone", ErrNotUndone}, {"unknown-verb", ErrUnknownVerb}, {"unsupported", ErrUnsupported},
	{"unreachable", ErrUnreachable}, // for what is behind a gateway
}

const codeError = "error" // for any other

// RemoteError is an error that happened on the node. It matches ErrUnsupported, ErrUnknownVerb,
// ErrUnreachable and ErrNotUndone by its code.
type RemoteError struct{ Code, Text, HintText string }

func (e *RemoteError) Error() string { return e.Text }

// Hint returns the next step for the user, if the node knew one.
func (e *RemoteError) Hint() string { return e.HintText }

// Is maps the code to the package's sentinels.
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

func readFrame(r io.Reader) (frame, error) {
	var h [headerSize]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return frame{}, err
	}

	if h[0] != 'C' || h[1] != 'P' || crc32.ChecksumIEEE(h[:16]) != binary.BigEndian.Uint32(h[16:]) {
		return frame{}, errors.New("read agent frame: damaged header")
	}

	if h[2] != protocolVersion {
		return frame{}, fmt.Errorf("%w: theirs is %d, ours is %d", ErrVersion, h[2], protocolVersion)
	}

	n := binary.BigEndian.Uint32(h[8:])
	if n > maxPayload {
		return frame{}, fmt.Errorf("read agent frame: %d bytes, more than %d", n, maxPayload)
	}

	f := frame{kind: frameKind(h[3]), session: binary.BigEndian.Uint32(h[4:]), payload: make([]byte, n)}
	if _, err := io.ReadFull(r, f.payload); err != nil {
		return frame{}, err
	}

	if crc32.ChecksumIEEE(f.payload) != binary.BigEndian.Uint32(h[12:]) {
		return frame{}, errors.New("read agent frame: damaged payload")
	}

	return f, nil
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
