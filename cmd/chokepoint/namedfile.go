package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// pipePatience bounds the time for which a reader waits for a pipe's writer.
const pipePatience = 5 * time.Second

// maxSecret bounds a file whose first line is a password or a code.
const maxSecret = 4 << 10

// readNamed reads at most limit bytes of a file that the user names, or of a pipe, such as a shell's
// <(command). Neither a pipe that nobody writes into nor a device keeps it waiting.
func readNamed(name string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, underlying(err)
	}
	defer f.Close() // only read from
	info, err := f.Stat()
	if err != nil {
		return nil, underlying(err)
	}
	pipe := info.Mode().Type() == os.ModeNamedPipe
	switch {
	case info.IsDir():
		return nil, errors.New("is a directory")
	case pipe:
		if err := f.SetReadDeadline(time.Now().Add(pipePatience)); err != nil {
			return nil, underlying(err)
		}
	case !info.Mode().IsRegular():
		return nil, errors.New("it is neither a file nor a pipe")
	}
	data, err := io.ReadAll(io.LimitReader(f, limit))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("it is a pipe whose writer is silent for %s", pipePatience)
	case err != nil:
		return nil, underlying(err)
	case pipe && len(data) == 0:
		return nil, errors.New("it is a pipe that nobody writes into")
	}
	return data, nil
}
