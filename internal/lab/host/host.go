// Package host represents a machine that we command: its files, its processes and its agent sessions. It does
// not know what is measured or changed there. No other package uses os/exec.
package host

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
)

// ErrUnsupported means that something is conclusively impossible on that machine.
var ErrUnsupported = errors.New("unsupported")

// ErrUnreachable means that the machine or its agent does not answer.
var ErrUnreachable = errors.New("unreachable")

// Command is a program to start. Env is added to the environment.
type Command struct {
	Path  string
	Args  []string // without the program's name
	Env   []string
	Stdin io.Reader
	// Files are the program's descriptors from 3 on, and Dir is its working directory. Only a host that is
	// this machine accepts them.
	Files []*os.File
	Dir   string
}

// Process is a started command. Wait may be called once; Kill is idempotent and kills the process's whole
// group.
type Process interface {
	Stdout() io.Reader
	Stderr() io.Reader
	Wait() (Usage, error)
	Kill() error
}

// Usage holds a process's resource usage, from wait4(2).
type Usage struct {
	UserNs   int64 `json:"user_ns"`
	SystemNs int64 `json:"system_ns"`
}

// Host is a machine that we command. Implementations are safe for concurrent use. Cancelling ctx kills what
// Start started.
type Host interface {
	Name() string
	Start(ctx context.Context, c Command) (Process, error)
	ReadFile(ctx context.Context, path string) ([]byte, error)
	WriteFile(ctx context.Context, path string, data []byte) error
}

// Agent is the controller's view of a resident agent. It is safe for concurrent use; sessions of one agent
// are multiplexed over one connection. Verbs are "family/entry", see Verb. Closing the agent ends every
// session, and thus undoes every effect of a session.
type Agent interface {
	// Invoke opens verb with in, and decodes the one answer into out (which may be nil).
	Invoke(ctx context.Context, verb string, in, out any) error
	// Open starts a session; in is the first message that the node receives. The session lives until
	// Finish, Close or the end of the agent, not until ctx ends: ctx bounds only the opening.
	Open(ctx context.Context, verb string, in any) (Session, error)
	// Clock relates the node's CLOCK_MONOTONIC to ours: node = ours + offset, within ±bound (nanoseconds).
	Clock(ctx context.Context) (offset, bound int64, err error)
	Close() error
}

// Session is one conversation, seen from either end. Send and Recv may be used by one goroutine each. Values
// are JSON.
//
// At the controller: Finish announces that no more will be sent; the node drains, sends its results, and Recv
// returns io.EOF once its handler has returned nil, or the handler's error. Close abandons: the node's
// context is cancelled and its effects are undone.
//
// At the node: Recv returns io.EOF after the controller's Finish; after its Close, or when the connection is
// lost, Recv returns ErrAbandoned and the handler's context is cancelled. Finish and Close have no effect
// there: the handler returns instead.
type Session interface {
	Send(v any) error
	Recv(v any) error
	Finish() error
	Close() error
}

// SecretSession is implemented by sessions that can carry secrets: only the frame codec reads them.
type SecretSession interface {
	SendSecret(s Secret) error
	RecvSecret() (Secret, error)
}

// ErrAbandoned is what a node's Recv returns when the controller is gone.
var ErrAbandoned = errors.New("session abandoned by the controller")

// Quiet drops the errors with which a node's session normally ends.
func Quiet(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, ErrAbandoned) {
		return nil
	}
	return err
}

// Cause removes the wrapping of net's errors, which repeats addresses.
func Cause(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}

// Handler is the node side of a verb. It must undo its changes and return soon after ctx is cancelled.
type Handler func(ctx context.Context, s Session) error

// Verb joins a family and an entry's name: "traffic/native".
func Verb(family, entry string) string { return family + "/" + entry }

// Families of verbs.
const (
	FamilyKnob    = "knob"
	FamilyTunnel  = "tunnel"
	FamilyProbe   = "probe"
	FamilyTraffic = "traffic"
	FamilyCipher  = "cipher"
)

// Spawn starts this program again in another role, or another program as a child of a lab's process,
// optionally as the first process of new namespaces. Its standard input and output are a connection to us
// unless Conn is given.
type Spawn struct {
	Program    string     // "" = this one
	Args       []string   // the role and its arguments
	Namespaces uintptr    // CLONE_NEW… flags
	MapRoot    bool       // with CLONE_NEWUSER: our user is root inside
	Files      []*os.File // from descriptor 3 on
	Conn       *os.File   // standard input and output instead of pipes
	Stderr     *os.File   // nil = ours
	Dir        string     // working directory; "" = ours
	Bound      bool       // it is killed as soon as this process ends, for whatever reason
	Core       int        // the only core that it runs on, 1 = the first; 0 = any
	As         *User      // user whose rights it has; nil = ours
}

// User is a user, with groups beyond the one of the same number.
type User struct {
	ID     uint32
	Groups []uint32
}
