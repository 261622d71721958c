package guest

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// openSerial opens a serial line for frames: nothing is changed, echoed or held back, at 115200 bit/s, 8
// bits, no parity. The modem's lines are not looked at, and what came before is dropped.
func openSerial(device string) (*os.File, error) {
	// Without O_NONBLOCK opening would wait for a carrier.
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open serial line %s: %w", device, err)
	}
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err == nil {
		makeRaw(t)
		err = unix.IoctlSetTermios(fd, unix.TCSETSF, t)
	}
	if err == nil {
		err = unix.SetNonblock(fd, false)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("set up serial line %s: %w", device, err)
	}
	return os.NewFile(uintptr(fd), device), nil
}

// makeRaw is cfmakeraw(3) with the speed; a read returns what there is.
func makeRaw(t *unix.Termios) {
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL |
		unix.IXON | unix.IXOFF
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cflag &^= unix.CSIZE | unix.PARENB | unix.CRTSCTS | unix.CBAUD
	t.Cflag |= unix.CS8 | unix.CREAD | unix.CLOCAL | unix.B115200
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	t.Ispeed, t.Ospeed = unix.B115200, unix.B115200
}
