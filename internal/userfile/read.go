package userfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// pipePatience is the time limit for reading from a pipe.
const pipePatience = 5 * time.Second

// Read reads up to limit bytes from a file that the user names, or from a pipe, such as a shell's <(command).
// It returns an error for a device, for a pipe without a writer, and for a pipe that is still open after
// pipePatience.
func Read(name string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, check.Underlying(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, check.Underlying(err)
	}

	pipe := info.Mode().Type() == os.ModeNamedPipe
	switch {
	case info.IsDir():
		return nil, errors.New("is a directory")
	case pipe:
		if err := f.SetReadDeadline(time.Now().Add(pipePatience)); err != nil {
			return nil, check.Underlying(err)
		}
	case !info.Mode().IsRegular():
		return nil, errors.New("it is neither a file nor a pipe")
	}

	data, err := io.ReadAll(io.LimitReader(f, limit))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("it is a pipe whose writer is silent for %s", pipePatience)
	case err != nil:
		return nil, check.Underlying(err)
	case pipe && len(data) == 0:
		return nil, errors.New("it is a pipe that nobody writes into")
	}

	return data, nil
}

// OpenRegular opens a regular file for reading. It returns an error for a pipe, which might block forever, a
// directory or a device.
func OpenRegular(file string) (*os.File, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, check.Underlying(err)
	}

	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no regular file")
	}

	if err != nil {
		return nil, errors.Join(check.Underlying(err), f.Close())
	}

	return f, nil
}

// Exists reports whether path exists. A dangling link exists, too.
func Exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
