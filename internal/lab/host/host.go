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

// ErrUnsupported reports that a machine definitely cannot do something, so a retry is pointless.
var ErrUnsupported = errors.New("unsupported")

// ErrUnreachable reports that a machine or its agent does not respond.
var ErrUnreachable = errors.New("unreachable")

// Command describes a program to start. Env extends the environment of the host.
type Command struct {
	Path  string
	Args  []string // without the program name
	Env   []string
	Stdin io.Reader
	// Files become the program's descriptors 3 and up, and Dir its working directory. Only the local machine
	// supports them.
	Files []*os.File
	Dir   string
}

// Process is a started command. Wait may be called once. Kill is idempotent and kills the whole process
// group.
type Process interface {
	Stdout() io.Reader
	Stderr() io.Reader
	Wait() (Usage, error)
	Kill() error
}

// Usage is the CPU time of a process, from wait4(2).
type Usage struct {
	UserNs   int64 `json:"user_ns"`
	SystemNs int64 `json:"system_ns"`
}

// Host is a machine that executes commands. Implementations are safe for concurrent use. Cancelling the ctx
// of Start kills the process.
type Host interface {
	Name() string
	Start(ctx context.Context, c Command) (Process, error)
	ReadFile(ctx context.Context, path string) ([]byte, error)
	WriteFile(ctx context.Context, path string, data []byte) error
}

// Agent is a client of the agent on a node. It is safe for concurrent use, and multiplexes its sessions over
// one connection. Verb returns the verbs' names. Close ends all sessions, which undoes their changes.
type Agent interface {
	// Invoke sends in to the handler of verb and decodes its only answer into out, unless out is nil.
	Invoke(ctx context.Context, verb string, in, out any) error
	// Open starts a session; in is the first message that the node receives. ctx bounds only the opening: the
	// session lives until Finish, Close or the end of the agent.
	Open(ctx context.Context, verb string, in any) (Session, error)
	// Clock relates the node's CLOCK_MONOTONIC to ours: node = ours + offset, within ±bound, in nanoseconds.
	Clock(ctx context.Context) (offset, bound int64, err error)
	Close() error
}

// Session is either end of a conversation between controller and node. Messages are JSON. One goroutine may
// call Send while another calls Recv.
//
// On the controller, Finish announces the end of input. The node's handler then sends its remaining results
// and returns; Recv returns io.EOF if it returned nil, or its error. Close abandons the session: the node
// cancels the handler's context, and the handler undoes its changes.
//
// On the node, Recv returns io.EOF after the controller's Finish. After the controller's Close, or if the
// connection is lost, Recv returns ErrAbandoned and the handler's context is cancelled. Finish and Close do
// nothing there: a handler ends its session by returning.
type Session interface {
	Send(v any) error
	Recv(v any) error
	Finish() error
	Close() error
}

// SecretSession is a Session that can also transmit secrets. Only the frame codec reads their bytes.
type SecretSession interface {
	SendSecret(s Secret) error
	RecvSecret() (Secret, error)
}

// ErrAbandoned is returned by Recv on a node after the controller closed the session or disappeared.
var ErrAbandoned = errors.New("session abandoned by the controller")

// Quiet returns nil for the errors with which Recv on a node reports the end of a session, and err otherwise.
func Quiet(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, ErrAbandoned) {
		return nil
	}
	return err
}

// Cause returns the error inside a net.OpError, whose text repeats addresses.
func Cause(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}

// Handler serves the sessions of one verb on a node. It must undo its changes and return soon after ctx is
// cancelled.
type Handler func(ctx context.Context, s Session) error

// Verb returns the verb for an entry of a family, such as "traffic/native".
func Verb(family, entry string) string { return family + "/" + entry }

// Verb families.
const (
	FamilyKnob    = "knob"
	FamilyTunnel  = "tunnel"
	FamilyProbe   = "probe"
	FamilyTraffic = "traffic"
	FamilyCipher  = "cipher"
)

// Spawn describes a child process: this program in another role, or another program, optionally as the first
// process in new namespaces. Without Conn, its standard input and output are pipes to this process.
type Spawn struct {
	Program    string     // "" = this program
	Args       []string   // role, then its arguments
	Namespaces uintptr    // CLONE_NEW… flags
	MapRoot    bool       // with CLONE_NEWUSER: maps our user to root
	Files      []*os.File // descriptors 3 and up
	Conn       *os.File   // standard input and output, instead of pipes
	Stderr     *os.File   // nil = ours
	Dir        string     // working directory; "" = ours
	Bound      bool       // kill the child when this process ends, for whatever reason
	Core       int        // CPU core to run on, counted from 1; 0 = any
	As         *User      // user and groups to run as; nil = ours
}

// User identifies a user, whose primary group has the same number. Groups are supplementary groups.
type User struct {
	ID     uint32
	Groups []uint32
}
