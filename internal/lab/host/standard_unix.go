//go:build unix

package host

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// standard combines standard input and standard output into a connection.
type standard struct{ in, out *os.File }

// Standard returns standard input and output as a connection that supports deadlines.
func Standard() (Deadlined, error) {
	var files [2]*os.File
	for fd := range files {
		if err := unix.SetNonblock(fd, true); err != nil { // non-blocking, because deadlines require it
			return nil, fmt.Errorf("take standard input and output for a connection: %w", err)
		}

		files[fd] = os.NewFile(uintptr(fd), "standard")
	}
	return standard{files[0], files[1]}, nil
}

func (s standard) Read(b []byte) (int, error)         { return s.in.Read(b) }
func (s standard) Write(b []byte) (int, error)        { return s.out.Write(b) }
func (s standard) Close() error                       { return errors.Join(s.out.Close(), s.in.Close()) }
func (s standard) SetReadDeadline(t time.Time) error  { return s.in.SetReadDeadline(t) }
func (s standard) SetWriteDeadline(t time.Time) error { return s.out.SetWriteDeadline(t) }
