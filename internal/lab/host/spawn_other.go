//go:build !linux

package host

import (
	"fmt"
	"os/exec"
	"runtime"
)

// A Child is a process started by Spawn.Start.
type Child struct{}

// Start returns ErrUnsupported, because this operating system has no namespaces.
func (s Spawn) Start() (*Child, error) {
	return nil, fmt.Errorf("start %s: %w on %s", s.Args[0], ErrUnsupported, runtime.GOOS)
}

func (*Child) Pid() int                  { return 0 }
func (*Child) Read([]byte) (int, error)  { return 0, ErrUnsupported }
func (*Child) Write([]byte) (int, error) { return 0, ErrUnsupported }
func (*Child) HangUp() error             { return ErrUnsupported }
func (*Child) Close() error              { return ErrUnsupported }
func (*Child) Wait() error               { return ErrUnsupported }
func (*Child) Kill() error               { return ErrUnsupported }

func startBound(cmd *exec.Cmd, _ <-chan struct{}) error { return cmd.Start() }
