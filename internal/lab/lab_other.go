//go:build !linux

package lab

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// A lab of this machine is made of Linux's namespaces. Elsewhere there is none; a lab that was assembled of
// other machines needs nothing of this.

// Roles of a lab's processes.
const (
	HolderRole  = "lab-holder"
	AnchorRole  = "lab-anchor"
	MachineRole = "lab-machine"
)

var errNotLinux = fmt.Errorf("%w: a lab of this machine needs Linux", host.ErrUnsupported)

// Local describes a local lab to be made.
type Local struct {
	ID       string
	Topology record.Topology
	Dir      string
	Journal  *journal.Journal
	Detached bool
	Guest    *vm.Guest
	Driver   string
	Queues   int
	Parts    Parts
}

// Up refuses.
func (Local) Up(context.Context) (*Lab, error) { return nil, errNotLinux }

// Info is what a local lab's directory says about it.
type Info struct {
	ID       string
	Pid      int
	Born     uint64
	Detached bool
	Started  time.Time
	Guest    *vm.Guest
	Driver   string
	Queues   int
	Topology record.Topology
}

// Alive: no lab can be.
func (Info) Alive() bool { return false }

// Restored says what Restore did.
type Restored struct {
	Undone []string `json:"undone"`
	Living []string `json:"living"`
	Held   []string `json:"held"`
}

func HolderMain(io.Reader, io.Writer) error                   { return errNotLinux }
func AnchorMain(string, io.Reader, io.Writer, []string) error { return errNotLinux }
func MachineMain(string, io.Reader, io.Writer) error          { return errNotLinux }

// List finds no lab.
func List(string) ([]Info, error) { return nil, nil }

// Down refuses.
func Down(string, Info) error { return errNotLinux }

// Attach refuses.
func Attach(string, string, Parts, *journal.Journal) (*Lab, error) { return nil, errNotLinux }

// Restore has nothing to put back.
func Restore(context.Context, string, string) (Restored, error) { return Restored{}, nil }
