package tunnel

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
	wg "golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// userspaceDevice is a golang.zx2c4.com/wireguard device in this process. It uses the offloads of the TUN
// device (virtio headers) and of the socket (UDP GSO and GRO) if the kernel supports them.
type userspaceDevice struct {
	name string
	wg   *wg.Device

	mu   sync.Mutex
	last string // text of the last error
}

func openUserspaceDevice(r request) (device, error) {
	t, err := tun.CreateTUN(r.Device, r.MTU)
	if err != nil {
		return nil, fmt.Errorf("make tunnel device %s: %w", r.Device, err)
	}

	if err := setQueue(r); err != nil {
		return nil, errors.Join(err, t.Close())
	}

	d := &userspaceDevice{name: r.Device}
	// Set a logger, because the library's default logger writes to standard output, which carries the
	// protocol of the agent.
	d.wg = wg.NewDevice(t, conn.NewDefaultBind(), &wg.Logger{Verbosef: wg.DiscardLogf, Errorf: d.complain})
	return d, nil
}

// complain keeps the last error that the library has logged. The library abbreviates public keys in its
// errors.
func (d *userspaceDevice) complain(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = fmt.Sprintf(format, args...)
}

func (d *userspaceDevice) complaint() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last
}

// configure sends the configuration in the protocol of the library (wireguard.com/xplatform). It overwrites
// the buffer after use.
func (d *userspaceDevice) configure(w kernel.WireGuard) error {
	b := make([]byte, 0, 4096) // b must not grow, because the old copy would remain in memory
	key := func(name string, k *kernel.Key) {
		b = append(append(b, name...), '=')
		b = append(hex.AppendEncode(b, k[:]), '\n')
	}
	key("private_key", &w.Private)
	b = fmt.Appendf(b, "listen_port=%d\n", w.Port)
	b = append(b, "replace_peers=true\n"...)
	key("public_key", &w.Peer)
	key("preshared_key", &w.Preshared)
	b = fmt.Appendf(b, "endpoint=%s\n", w.Endpoint)
	defer func() { clear(b[:cap(b)]) }()
	if err := d.set(b); err != nil {
		return err
	}

	allowed := fmt.Appendf(nil, "public_key=%s\nupdate_only=true\nreplace_allowed_ips=true\n",
		hex.EncodeToString(w.Peer[:]))
	for _, p := range w.Allowed {
		allowed = fmt.Appendf(allowed, "allowed_ip=%s\n", p.Masked())
	}

	if err := d.set(allowed); err != nil {
		return err
	}

	if err := d.wg.Up(); err != nil {
		return fmt.Errorf("bring up userspace device %s at udp port %d: %w", d.name, w.Port, err)
	}

	return nil
}

// set applies a configuration. It returns only the code of the library's error, because the text of the error
// may quote a line that contains a key.
func (d *userspaceDevice) set(config []byte) error {
	err := d.wg.IpcSetOperation(bytes.NewReader(config))
	if refused, ok := errors.AsType[*wg.IPCError](err); ok {
		return fmt.Errorf("configure userspace device %s: refused with code %d", d.name, refused.ErrorCode())
	}

	if err != nil {
		return fmt.Errorf("configure userspace device %s: refused", d.name)
	}

	return nil
}

func (d *userspaceDevice) handshake() (time.Time, error) {
	var b bytes.Buffer
	b.Grow(4096)
	// Overwrite the reply, because it contains all keys.
	defer func() { clear(b.Bytes()[:b.Cap()]) }()
	if err := d.wg.IpcGetOperation(&b); err != nil {
		return time.Time{}, fmt.Errorf("read userspace device %s: no answer", d.name)
	}

	return lastHandshake(b.Bytes()), nil
}

// lastHandshake returns the time of the last handshake, given a reply in the configuration protocol.
func lastHandshake(answer []byte) time.Time {
	var sec, nsec int64
	for line := range bytes.Lines(answer) {
		name, value, _ := bytes.Cut(bytes.TrimRight(line, "\n"), []byte("="))
		switch string(name) {
		case "last_handshake_time_sec":
			sec, _ = strconv.ParseInt(string(value), 10, 64)
		case "last_handshake_time_nsec":
			nsec, _ = strconv.ParseInt(string(value), 10, 64)
		}
	}

	if sec == 0 && nsec == 0 {
		return time.Time{}
	}

	return time.Unix(sec, nsec)
}

func (d *userspaceDevice) close() error {
	d.wg.Close()
	return nil
}

func probeUserspaceDevice() check.Answer {
	if _, err := os.Stat("/dev/net/tun"); errors.Is(err, fs.ErrNotExist) {
		return check.Not("there is no /dev/net/tun").Hinted("load the module tun, or make the device: " +
			"mkdir -p /dev/net && mknod /dev/net/tun c 10 200")
	}

	t, err := tun.CreateTUN(fmt.Sprintf("cptun%d", os.Getpid()), DefaultMTU)
	if errors.Is(err, fs.ErrPermission) {
		return check.Not("make a TUN device: %v", err).
			Hinted("run as root, or where user namespaces and /dev/net/tun are allowed")
	}

	if err != nil {
		return check.CouldNotTell("make a TUN device: %v", err)
	}

	// The goroutine that watches the state of the device may already have closed its end.
	if err := t.Close(); err != nil && !errors.Is(err, os.ErrClosed) && !errors.Is(err, unix.EPIPE) {
		return check.CouldNotTell("close a TUN device: %v", err)
	}

	return check.OK()
}

// own claims an end of a tunnel for this process with an abstract Unix socket (unix(7)). The socket's name is
// visible only in this network namespace, and disappears with the process.
func own(device string) (io.Closer, error) {
	l, err := net.Listen("unix", "@chokepoint-"+device)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("make tunnel device %s: it exists already", device)
	}
	return l, err
}

// openName opens the file of a socket with O_PATH (open(2)). A process can connect through the descriptor
// even after the file was removed.
func openName(file string) (*os.File, error) {
	fd, err := unix.Open(file, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the name of a socket: %w", err)
	}
	return os.NewFile(uintptr(fd), file), nil
}
