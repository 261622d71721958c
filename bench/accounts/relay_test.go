package accounts

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// The relay is a router's device that everything from the LAN passes. It holds each heldEach-th packet of
// the window back until overtake more have passed: each of these is then reordered, as RFC 4737 counts.
const (
	relayDevice = "hold"
	heldEach    = 1000
	overtake    = 3
)

// relay opens the device, says "ready", relays until its input ends, and prints how many packets it held
// back.
func relay(in io.Reader, out io.Writer) error {
	fd, err := openTUN(relayDevice)
	if err != nil {
		return err
	}

	for _, args := range [][]string{
		{"ip", "link", "set", relayDevice, "up", "txqueuelen", "20000"},
		{"ip", "route", "add", "default", "dev", relayDevice, "table", "77"},
		{"ip", "rule", "add", "iif", "lan", "lookup", "77"},
	} {
		if text, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w: %s", args, err, text)
		}
	}

	var held atomic.Int64
	go pass(fd, &held)
	fmt.Fprintln(out, "ready")
	io.Copy(io.Discard, in)
	text, err := exec.Command("ip", "rule", "del", "iif", "lan", "lookup", "77").CombinedOutput()
	if err != nil {
		return fmt.Errorf("delete the rule: %w: %s", err, text)
	}

	fmt.Fprintln(out, held.Load())
	return nil
}

func openTUN(name string) (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("open /dev/net/tun", err)
	}

	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return -1, err
	}

	ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
		return -1, os.NewSyscallError("create "+name, err)
	}

	return fd, nil
}

// pass ends with the process.
func pass(fd int, held *atomic.Int64) {
	b := make([]byte, 2048)
	kept := make([]byte, 0, 2048)
	seen, passed := 0, 0 // of the window; since one is held
	for {
		n, err := unix.Read(fd, b)
		if err != nil {
			if err == unix.EINTR {
				continue
			}
			return
		}

		counted := ofWindow(b[:n])
		if counted {
			seen++
		}

		if counted && len(kept) == 0 && seen%heldEach == 0 {
			kept = append(kept, b[:n]...)
			passed = 0
			continue
		}

		unix.Write(fd, b[:n])
		if len(kept) == 0 {
			continue
		}

		if counted {
			passed++
		}

		// The window's last packets may be overtaken by fewer.
		if passed == overtake || !counted {
			unix.Write(fd, kept)
			if passed > 0 {
				held.Add(1)
			}

			kept = kept[:0]
		}
	}
}

// ofWindow knows the load's packets whose numbers are those of the window: see layouts.
func ofWindow(p []byte) bool {
	const udp = 17
	at := 0
	switch {
	case len(p) > 28 && p[0]>>4 == 4 && p[9] == udp:
		at = 20
	case len(p) > 48 && p[0]>>4 == 6 && p[6] == udp:
		at = 40
	default:
		return false
	}

	if binary.BigEndian.Uint16(p[at+2:]) != port {
		return false
	}

	p = p[at+8:]
	if len(p) == frameSize-28 {
		return len(p) > framesMark/8 && p[framesMark/8]>>6 == framesWindow
	}

	return len(p) > datagramMark/8 && p[datagramMark/8] == datagramWindow
}
