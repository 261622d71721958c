// Package host starts programs, reads and writes files and opens agent sessions on the machines of a testbed.
// It contains nothing specific to measurements or settings. No other package imports os/exec.
package host

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
)

// ErrUnsupported reports that a machine does not support an operation, so a retry is pointless.
var ErrUnsupported = errors.New("unsupported")

// ErrUnreachable reports that a machine or its agent does not respond.
var ErrUnreachable = errors.New("unreachable")

// Command describes a program to start. Env is added to the environment of the host.
type Command struct {
	Path  string
	Args  []string // arguments without the program name
	Env   []string
	Stdin io.Reader
	// Files become the program's descriptors 3, 4 and so on. Dir is its working directory. Only the local
	// machine supports these fields.
	Files []*os.File
	Dir   string
	// Bound kills the program when this process ends, for whatever reason. Only the local machine supports
	// it, on Linux; elsewhere the program may outlive this process.
	Bound bool
}

// A Process is a command that was started. Wait may be called only once. Kill is idempotent, and kills the
// whole process group.
type Process interface {
	Stdout() io.Reader
	Stderr() io.Reader
	Wait() (Usage, error)
	Kill() error
}

// Usage holds the CPU time of a process as returned by wait4(2).
type Usage struct {
	UserNs   int64 `json:"user_ns"`
	SystemNs int64 `json:"system_ns"`
}

// A Host is a machine that executes commands. Implementations are safe for concurrent use. Cancelling the
// context that was passed to Start kills the process.
type Host interface {
	Name() string
	Start(ctx context.Context, c Command) (Process, error)
	ReadFile(ctx context.Context, path string) ([]byte, error)
	WriteFile(ctx context.Context, path string, data []byte) error
}

// An Agent is a client of the agent on a node. It is safe for concurrent use, and multiplexes sessions over
// one connection. The function Verb returns names of verbs. Close ends all sessions, which undoes their
// changes.
type Agent interface {
	// Invoke sends in, the request, to the handler of verb. It decodes the handler's only answer into out,
	// unless out is nil.
	Invoke(ctx context.Context, verb string, in, out any) error
	// Open starts a session. in is the first message that the node receives. ctx limits only the opening: the
	// session lasts until Finish, Close or the end of the connection.
	Open(ctx context.Context, verb string, in any) (Session, error)
	// Clock measures the offset of the node's CLOCK_MONOTONIC from ours. The node's time is our time plus
	// offset, with an error of at most bound. Both are in ns.
	Clock(ctx context.Context) (offset, bound int64, err error)
	Close() error
}

// A Session is one end of a conversation between controller and node. Messages are JSON. One goroutine may
// call Send while another calls Recv.
//
// On the controller, Finish announces the end of input. The node's handler then sends its remaining results
// and returns. After these results, the controller's Recv returns io.EOF if the handler returned nil, or the
// handler's error. Close abandons the session: the node cancels the context of the handler, and the handler
// undoes its changes.
//
// On the node, Recv returns io.EOF after the controller calls Finish. If the controller calls Close or the
// connection is lost, Recv returns ErrAbandoned and the handler's context is cancelled. Finish and
// Close do nothing on the node, because a handler ends its session by returning.
type Session interface {
	Send(v any) error
	Recv(v any) error
	Finish() error
	Close() error
}

// A SecretSession is a Session that can also transmit secrets. Only the frame codec reads the bytes of a
// secret.
type SecretSession interface {
	SendSecret(s Secret) error
	RecvSecret() (Secret, error)
}

// ErrAbandoned is returned by Recv on a node after the controller has closed the session or disappeared.
var ErrAbandoned = errors.New("session abandoned by the controller")

// Quiet returns nil if err is an error with which Recv on a node reports the end of a session. Otherwise, it
// returns err.
func Quiet(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, ErrAbandoned) {
		return nil
	}
	return err
}

// Cause returns the error inside a net.OpError. The text of the net.OpError would repeat addresses.
func Cause(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}

// A Handler serves the sessions of one verb on a node. Soon after ctx is cancelled, it must undo its changes
// and return.
type Handler func(ctx context.Context, s Session) error

// Verb returns the name of a verb, which consists of a family and an entry of the family, such as
// "traffic/native".
func Verb(family, entry string) string { return family + "/" + entry }

// These are the families of verbs.
const (
	FamilyKnob    = "knob"
	FamilyTunnel  = "tunnel"
	FamilyProbe   = "probe"
	FamilyTraffic = "traffic"
	FamilyCipher  = "cipher"
)

// Spawn describes a child process: this program in another role, or another program, optionally as the first
// process in new namespaces. If Conn is nil, the child's standard input and output are pipes to this process.
type Spawn struct {
	Program    string     // path of the program; "" means this program
	Args       []string   // arguments; for this program, the role comes first
	Namespaces uintptr    // CLONE_NEW* flags; CLONE_NEWUSER maps our user to root
	Files      []*os.File // become descriptors 3, 4 and so on
	Conn       *os.File   // standard input and output, instead of pipes
	Stderr     *os.File   // nil means our standard error
	Dir        string     // working directory; "" means ours
	Bound      bool       // kill the child when this process ends, for whatever reason
	Core       int        // CPU core to run on, counted from 1; 0 means any core
	As         *User      // user and groups to run as; nil means ours
	MaxFile    uint64     // size in bytes to which the child may extend a file; 0 means no limit
}

// User holds the IDs with which a process runs. The ID of the user's primary group equals the user ID. Groups
// lists supplementary groups.
type User struct {
	ID     uint32
	Groups []uint32
}
