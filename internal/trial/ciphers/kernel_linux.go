package ciphers

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// kernelNames maps algorithms to types and names in the kernel's crypto API
// (Documentation/crypto/userspace-if.rst).
var kernelNames = map[string][2]string{
	"aes-128-cbc": {"skcipher", "cbc(aes)"}, "aes-256-cbc": {"skcipher", "cbc(aes)"},
	"aes-128-gcm": {"aead", "gcm(aes)"}, "aes-256-gcm": {"aead", "gcm(aes)"},
	"chacha20-poly1305": {"aead", "rfc7539(chacha20,poly1305)"},
	"sha1":              {"hash", "sha1"}, "sha256": {"hash", "sha256"}, "sha512": {"hash", "sha512"},
	"blake2s256": {"hash", "blake2s-256"}, "blake2b512": {"hash", "blake2b-512"},
}

const (
	tagBytes   = 16
	nonceBytes = 12
)

// kernelWorker returns a worker that uses the kernel's crypto API through an AF_ALG socket. It checks that
// the output equals the output of Go's libraries.
func kernelWorker(q Request) (w worker, err error) {
	name, ok := kernelNames[q.Algorithm]
	if !ok {
		return worker{}, fmt.Errorf("%w: the kernel does not offer it to programs", host.ErrUnsupported)
	}

	fd, err := kernelSocket(name, q)
	if err != nil {
		return worker{}, err
	}

	w = kernelOperation(fd, name[0], q)
	w.close = func() { unix.Close(fd) }
	same, err := goWorker(q)
	if err == nil {
		err = errors.Join(same.do(), w.do())
	}

	if err == nil && !bytes.Equal(w.result(), same.result()) {
		err = errors.New("the kernel's result differs from that of Go's libraries")
	}

	if err != nil {
		w.close()
		return worker{}, fmt.Errorf("%s through AF_ALG: %w", name[1], err)
	}

	return w, nil
}

// kernelSocket returns an AF_ALG file descriptor on which operations can be performed.
func kernelSocket(name [2]string, q Request) (int, error) {
	lacks := func(what string, err error) error {
		if slices.Contains([]error{unix.EAFNOSUPPORT, unix.ENOENT, unix.EPERM, unix.EACCES}, err) {
			return fmt.Errorf("%w: %s: %w", host.ErrUnsupported, what, err)
		}
		return fmt.Errorf("%s: %w", what, err)
	}
	of, err := unix.Socket(unix.AF_ALG, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, lacks("the kernel has no AF_ALG", err)
	}
	defer unix.Close(of)
	if err := unix.Bind(of, &unix.SockaddrALG{Type: name[0], Name: name[1]}); err != nil {
		return 0, lacks("the kernel has no "+name[1], err)
	}

	if name[0] != "hash" {
		key := string(filler(keyBytes(q.Algorithm)))
		if err := unix.SetsockoptString(of, unix.SOL_ALG, unix.ALG_SET_KEY, key); err != nil {
			return 0, fmt.Errorf("set the key of %s: %w", name[1], err)
		}
	}

	if name[0] == "aead" { // the tag's size is passed as the option's length
		if _, _, e := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(of), unix.SOL_ALG,
			unix.ALG_SET_AEAD_AUTHSIZE, 0, tagBytes, 0); e != 0 {
			return 0, fmt.Errorf("set the tag size of %s: %w", name[1], e)
		}
	}

	// unix.Accept would fail, because it rejects addresses of unknown families.
	fd, _, e := unix.Syscall6(unix.SYS_ACCEPT4, uintptr(of), 0, 0, unix.SOCK_CLOEXEC, 0, 0)
	if e != 0 {
		return 0, fmt.Errorf("open %s: %w", name[1], e)
	}

	return int(fd), nil
}

// kernelOperation returns a worker that sends input to the file descriptor and reads the output.
func kernelOperation(fd int, kind string, q Request) worker {
	var control, data []byte
	var out []byte
	skip := 0 // number of bytes at the start of the output to skip
	decrypt := q.Operation == "decrypt"
	direction := uint32(unix.ALG_OP_ENCRYPT)
	if decrypt {
		direction = unix.ALG_OP_DECRYPT
	}

	switch kind {
	case "hash":
		data, out = filler(q.Block), make([]byte, 64) // the longest output has 64 bytes
	case "skcipher":
		data, out = filler(padded(q.Block)), make([]byte, padded(q.Block))
		control = append(control32(unix.ALG_SET_OP, direction), controlIV(filler(16))...)
	case "aead":
		beside := filler(besideBytes)
		packet := filler(q.Block)
		size := besideBytes + q.Block + tagBytes
		if decrypt {
			sealed, err := goWorker(Request{Algorithm: q.Algorithm, Operation: "encrypt", Block: q.Block})
			if err == nil && sealed.do() == nil {
				packet = sealed.result()
			}

			size -= tagBytes
		}

		data, out, skip = append(beside, packet...), make([]byte, size), besideBytes
		control = append(control32(unix.ALG_SET_OP, direction), controlIV(filler(nonceBytes))...)
		control = append(control, control32(unix.ALG_SET_AEAD_ASSOCLEN, besideBytes)...)
	}

	got := 0
	do := func() error {
		n, err := unix.SendmsgN(fd, data, control, nil, 0)
		if err == nil && n != len(data) {
			err = io.ErrShortWrite
		}

		if err == nil {
			got, err = unix.Read(fd, out)
		}

		return err
	}
	return worker{do: do, result: func() []byte { return out[min(skip, got):got] }}
}

// control32 returns a control message with a 32-bit value.
func control32(kind int, v uint32) []byte {
	b := controlMessage(kind, 4)
	binary.NativeEndian.PutUint32(b[unix.CmsgLen(0):], v)
	return b
}

// controlIV returns a control message with a nonce (struct af_alg_iv).
func controlIV(iv []byte) []byte {
	b := controlMessage(unix.ALG_SET_IV, 4+len(iv))
	at := b[unix.CmsgLen(0):]
	binary.NativeEndian.PutUint32(at, uint32(len(iv)))
	copy(at[4:], iv)
	return b
}

func controlMessage(kind, size int) []byte {
	b := make([]byte, unix.CmsgSpace(size))
	level := unix.CmsgLen(0) - 8 // offset after the length, which is a machine word
	if level == 8 {
		binary.NativeEndian.PutUint64(b, uint64(unix.CmsgLen(size)))
	} else {
		binary.NativeEndian.PutUint32(b, uint32(unix.CmsgLen(size)))
	}

	binary.NativeEndian.PutUint32(b[level:], unix.SOL_ALG)
	binary.NativeEndian.PutUint32(b[level+4:], uint32(kind))
	return b
}
