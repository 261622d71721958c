package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Commands of bpf(2), include/uapi/linux/bpf.h.
const (
	cmdMapCreate  = 0
	cmdMapLookup  = 1
	cmdMapUpdate  = 2
	cmdProgLoad   = 5
	cmdTestRun    = 10
	cmdMapFreeze  = 22
	cmdLinkCreate = 28

	progXDP    = 6
	attachXDP  = 37
	driverMode = 1 << 2 // XDP_FLAGS_DRV_MODE
	liveFrames = 1 << 1 // BPF_F_TEST_XDP_LIVE_FRAMES

	pseudoMap   = 1 // of an instruction's source register
	pseudoValue = 2
)

func call[T any](cmd uintptr, attr *T) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_BPF, cmd, uintptr(unsafe.Pointer(attr)), unsafe.Sizeof(*attr))
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// pins keeps memory where it is while the kernel uses it: an address in an attribute is a number to Go,
// which moves stacks.
type pins struct{ runtime.Pinner }

func (p *pins) at(b []byte) uint64 {
	first := unsafe.SliceData(b)
	p.Pin(first)
	return uint64(uintptr(unsafe.Pointer(first)))
}

func createMap(name string, m mapSpec) (int, error) {
	attr := struct{ kind, key, value, entries, flags, inner, numa uint32 }{m.Type, m.Key, m.Value, m.Entries,
		m.Flags, 0, 0}
	fd, err := call(cmdMapCreate, &attr)
	if err != nil {
		return -1, fmt.Errorf("create BPF map %s: %w", name, reason(err))
	}
	return fd, nil
}

// exchange is the attribute of looking up and of updating an element.
type exchange struct {
	fd, _         uint32
	key, value, _ uint64 // the last are flags
}

func update(fd int, key uint32, value []byte) error {
	_, err := element(cmdMapUpdate, fd, key, value)
	return err
}

func lookup(fd int, key uint32, value []byte) error {
	_, err := element(cmdMapLookup, fd, key, value)
	return err
}

func element(cmd uintptr, fd int, key uint32, value []byte) (int, error) {
	var p pins
	defer p.Unpin()
	attr := exchange{fd: uint32(fd), key: p.at(binary.NativeEndian.AppendUint32(nil, key)),
		value: p.at(value)}
	return call(cmd, &attr)
}

func freeze(fd int) error {
	attr := struct{ fd uint32 }{uint32(fd)}
	_, err := call(cmdMapFreeze, &attr)
	return err
}

// link puts maps into a program's instructions.
func (c code) link(maps map[string]int) []byte {
	out := append([]byte(nil), c.instructions...)
	for _, u := range c.uses {
		source := byte(pseudoMap)
		if u.value {
			source = pseudoValue
		}
		// The registers' byte: the destination is its first half.
		at := out[u.at:]
		if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
			at[1] = at[1]&0x0f | source<<4
		} else {
			at[1] = at[1]&0xf0 | source
		}
		offset := binary.NativeEndian.Uint32(at[4:]) + u.offset
		binary.NativeEndian.PutUint32(at[4:], uint32(maps[u.name]))
		if u.value {
			binary.NativeEndian.PutUint32(at[instruction+4:], offset)
		}
	}
	return out
}

// loadTries is how often a program that could not be verified undisturbed is tried again.
const loadTries = 20

func loadProgram(name string, instructions []byte) (int, error) {
	var p pins
	defer p.Unpin()
	license := []byte("Apache-2.0\x00")
	attr := struct {
		kind, number           uint32
		instructions, license  uint64
		logLevel, logSize      uint32
		log                    uint64
		version, flags         uint32
		name                   [16]byte
		device, expectedAttach uint32
	}{kind: progXDP, number: uint32(len(instructions) / instruction), instructions: p.at(instructions),
		license: p.at(license)}
	copy(attr.name[:15], name)
	fd, err := call(cmdProgLoad, &attr)
	// The verifier gives up when a signal is pending (kernel/bpf/verifier.c, do_check), such as those by
	// which Go's scheduler stirs its threads.
	for tries := 0; err == unix.EAGAIN && tries < loadTries; tries++ {
		fd, err = call(cmdProgLoad, &attr)
	}
	if err == unix.EINVAL || err == unix.EACCES {
		log := make([]byte, 1<<20)
		attr.logLevel, attr.logSize, attr.log = 1, uint32(len(log)), p.at(log)
		var again error
		if fd, again = call(cmdProgLoad, &attr); again != nil {
			err = fmt.Errorf("%w: %s", err, lastLines(log))
		} else {
			err = nil
		}
	}
	if err != nil {
		return -1, fmt.Errorf("load BPF program %s: %w", name, reason(err))
	}
	return fd, nil
}

// lastLines of a verifier's log say what it refused.
func lastLines(log []byte) string {
	s, _, _ := strings.Cut(string(log), "\x00")
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], "; ")
}

// attach gives a device a program in its driver, for as long as the returned descriptor is open.
func attach(program, device int) (int, error) {
	attr := struct{ program, device, kind, flags uint32 }{uint32(program), uint32(device), attachXDP,
		driverMode}
	fd, err := call(cmdLinkCreate, &attr)
	if err != nil {
		return -1, fmt.Errorf("attach a BPF program to device %d: %w", device, reason(err))
	}
	return fd, nil
}

// testRun has the kernel send what a program makes of a frame, and make it again: it ends after so many
// times, or with EINTR by a signal.
func testRun(program int, frame []byte, times, batch uint32) error {
	var p pins
	defer p.Unpin()
	attr := struct {
		program, result, sizeIn, sizeOut uint32
		in, out                          uint64
		repeat, duration, ctxIn, ctxOut  uint32
		ctxInAt, ctxOutAt                uint64
		flags, cpu, batch, _             uint32
	}{program: uint32(program), sizeIn: uint32(len(frame)), in: p.at(frame), repeat: times, flags: liveFrames,
		batch: batch}
	_, err := call(cmdTestRun, &attr)
	return err
}

// reason tells what no attempt can change from what one might.
func reason(err error) error {
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("%w (%w)", ErrUnsupported, err)
	}
	return err
}
