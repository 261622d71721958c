package vm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// Disk is a user's disk image, from which a guest boots. The image is only read. QEMU writes changes to a
// temporary file, which is deleted when QEMU exits.
type Disk struct {
	File     string `json:"file"`
	Format   string `json:"format"`             // qcow2 or raw
	Sum      string `json:"sum"`                // hash of the content; see Identify
	Firmware string `json:"firmware,omitempty"` // UEFI firmware file; "" means BIOS
	Login    Login  `json:"login"`
	Agent    string `json:"agent"` // file of the program to start in the guest

	// The following fields are set for each start of QEMU.
	Management net.HardwareAddr `json:"-"` // hardware address of the NIC for logging in
	FileFD     int              `json:"-"` // file descriptor of File
	AgentFD    int              `json:"-"` // file descriptor of Agent
	TerminalFD int              `json:"-"` // descriptor of a socket for the serial console; 0 means a file
}

// Login describes how to log in to a guest that was booted from a user's image.
type Login struct {
	Method   string `json:"method"` // LoginSSH or LoginSerial
	User     string `json:"user"`
	Key      string `json:"key,omitempty"`      // file that contains the private key
	Password string `json:"password,omitempty"` // file that contains the password
}

// These are the login methods.
const (
	LoginSSH    = "ssh"
	LoginSerial = "serial"
)

// ParseLogin parses METHOD or METHOD:USER. The default user is root.
func ParseLogin(text string) (l Login, err error) {
	method, user, named := strings.Cut(text, ":")
	if !named {
		user = "root"
	}

	if method != LoginSSH && method != LoginSerial {
		return l, fmt.Errorf("login %q: no such method", text)
	}

	if user == "" || strings.HasPrefix(user, "-") || strings.ContainsFunc(user,
		func(r rune) bool { return r <= ' ' || r > '~' }) {
		return l, fmt.Errorf("login %q: no user's name", text)
	}

	return Login{Method: method, User: user}, nil
}

// String returns the login in the syntax of ParseLogin.
func (l Login) String() string { return l.Method + ":" + l.User }

// AgentDisk is the serial number of the read-only disk that contains the agent's program.
const AgentDisk = "chokepoint"

// These are the address and port of the guest's ssh server in QEMU's network namespace.
const (
	SSHAddress = "127.0.0.1"
	SSHPort    = 2222 // a port that requires no privileges
)

// ManagementAddr returns the hardware address of the management NIC of the n-th guest in a lab. No port has
// this address.
func ManagementAddr(n int) net.HardwareAddr { return HardwareAddr(n, 0xfe) }

// diskModel is the CPU model for emulated guests that boot from a disk. It is the oldest model that all
// distributions support. QEMU's default is older.
const diskModel = "Nehalem"

// NewForeignGuest returns a guest that boots from a disk. Its memory suffices for a full distribution.
func NewForeignGuest(d Disk) Guest {
	return Guest{Image: Image{Arch: "amd64"}, Disk: &d, MemoryMB: 1024}
}

// args returns QEMU's options for the disk and the management NIC. The management NIC comes first, because
// many images configure only their first NIC. Only ssh is forwarded, from QEMU's network namespace to the
// guest.
func (d Disk) args() []string {
	var a []string
	if d.Firmware != "" {
		a = append(a, "-bios", d.Firmware)
	}
	return append(a, strings.Fields(fmt.Sprintf(`
		-netdev user,id=management,ipv6=off,restrict=on,hostfwd=tcp:%s:%d-:22
		-device virtio-net-pci,netdev=management,mac=%s,romfile=
		-add-fd fd=%d,set=1
		-drive if=none,id=disk,snapshot=on,format=%s,file=/dev/fdset/1
		-device virtio-blk-pci,drive=disk,bootindex=1
		-add-fd fd=%d,set=2
		-drive if=none,id=agent-disk,readonly=on,format=raw,file=/dev/fdset/2
		-device virtio-blk-pci,drive=agent-disk,serial=%s`,
		SSHAddress, SSHPort, d.Management, d.FileFD, d.Format, d.AgentFD, AgentDisk))...)
}

// console returns the QEMU character device for the first serial port of the guest. All output is appended to
// file.
func (d *Disk) console(file string) string {
	if d == nil || d.TerminalFD == 0 {
		return "file,id=console,append=on,path=" + comma(file)
	}
	return fmt.Sprintf("socket,id=console,fd=%d,logappend=on,logfile=%s", d.TerminalFD, comma(file))
}

// errNoDisk returns an error that says that a file cannot be used as a disk image.
func errNoDisk(file, text, hint string) error {
	return check.WithHint(fmt.Errorf("read disk image %s: %s", file, text), hint)
}

const convert = "qemu-img convert -O qcow2 makes one of its own"

// OpenDisk checks an image. It returns an error if a guest cannot boot from the image or if the image refers
// to other files.
func OpenDisk(file string) (d Disk, err error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return d, fmt.Errorf("read disk image: %w", err)
	}

	f, format, err := openDisk(path, file)
	if err != nil {
		return d, err
	}

	return Disk{File: path, Format: format}, f.Close()
}

// openDisk opens and checks an image. name is the path that the user typed, for use in errors.
func openDisk(path, name string) (f *os.File, format string, err error) {
	// Use O_NONBLOCK, because opening a pipe would block.
	f, err = os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, "", check.WithHint(fmt.Errorf("read disk image: %w", err), "name a file, .qcow2 or .img")
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return nil, "", fmt.Errorf("read disk image: %w", err)
	}

	if !info.Mode().IsRegular() {
		return nil, "", errNoDisk(name, "not a file", "name a file, .qcow2 or .img")
	}

	head := make([]byte, 512)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, "", fmt.Errorf("read disk image: %w", err)
	}

	format, text, hint := checkHead(head[:n])
	if text != "" {
		return nil, "", errNoDisk(name, text, hint)
	}

	return f, format, nil
}

// Open opens the image for QEMU. It repeats the checks, in case the file was replaced.
func (d Disk) Open() (*os.File, error) {
	f, format, err := openDisk(d.File, d.File)
	if err == nil && format != d.Format {
		return nil, errors.Join(errNoDisk(d.File, "it was "+d.Format+", and is "+format+" now",
			"leave it alone while it is in use"), f.Close())
	}
	return f, err
}

// others lists the first bytes of file types that users may mistake for disk images.
var others = []struct {
	magic, what, hint string
}{{"\x1f\x8b", "it is compressed by gzip", "unpack it by gunzip"},
	{"\xfd7zXZ\x00", "it is compressed by xz", "unpack it by unxz"},
	{"BZh", "it is compressed by bzip2", "unpack it by bunzip2"},
	{"\x28\xb5\x2f\xfd", "it is compressed by zstd", "unpack it by unzstd"},
	{"PK\x03\x04", "it is a zip archive", "unpack it by unzip"}, {"KDMV", "it is a VMDK image", convert},
	{"<<< ", "it is a VDI image", convert}, {"vhdxfile", "it is a VHDX image", convert},
	{"conectix", "it is a VHD image", convert}, {"QED\x00", "it is a QED image", convert}}

// checkHead returns the format of an image, given its first sector. If the image is unsuitable, it returns
// the reason and a hint.
func checkHead(head []byte) (format, wrong, hint string) {
	for _, o := range others {
		if bytes.HasPrefix(head, []byte(o.magic)) {
			return "", o.what, o.hint
		}
	}

	if len(head) < 512 {
		return "", "it is shorter than a disk's first sector", "name a file, .qcow2 or .img"
	}

	if bytes.HasPrefix(head, []byte("QFI\xfb")) {
		wrong, hint = checkQCOW2(head)
		return "qcow2", wrong, hint
	}

	if head[510] != 0x55 || head[511] != 0xaa {
		return "", "neither qcow2 nor a disk with a boot sector",
			"name the image of a whole disk, not of a partition or an installer"
	}

	return "raw", "", ""
}

// checkQCOW2 checks a qcow2 header (docs/interop/qcow2.txt in QEMU).
func checkQCOW2(head []byte) (wrong, hint string) {
	version := binary.BigEndian.Uint32(head[4:])
	backing := binary.BigEndian.Uint64(head[8:])
	crypt := binary.BigEndian.Uint32(head[32:])
	incompatible := uint64(0)
	if version >= 3 {
		incompatible = binary.BigEndian.Uint64(head[72:])
	}

	const dirty, corrupt, externalData = 1, 2, 4
	switch {
	case version < 2 || version > 3:
		return fmt.Sprintf("it is qcow of version %d", version), convert
	case backing != 0:
		return "it is a difference to another file", convert
	case incompatible&externalData != 0:
		return "its data are in another file", convert
	case crypt != 0:
		return "it is encrypted", convert
	case incompatible&(dirty|corrupt) != 0:
		return "it was not closed properly", "is it in use? else: qemu-img check -r all"
	}

	return "", ""
}

const hashMost = 8 << 30 // maximum size of an image to hash in bytes; hashing it takes several seconds

// Identify sets d.Sum to the hash of the image. If the image is larger than hashMost, d.Sum instead contains
// its size and modification time.
func (d *Disk) Identify() error {
	info, err := os.Stat(d.File)
	if err == nil && info.Size() > hashMost {
		d.Sum = fmt.Sprintf("%d bytes, changed %s", info.Size(), info.ModTime().UTC().Format(time.RFC3339))
		return nil
	}

	sum, err := fileSum(d.File)
	if err != nil {
		return fmt.Errorf("read disk image: %w", err)
	}

	d.Sum = "sha256:" + sum
	return nil
}

// String returns the file name of the image and Sum.
func (d Disk) String() string { return filepath.Base(d.File) + " " + d.Sum }

// firmwares lists the paths at which distributions install UEFI firmware as a single file.
var firmwares = []string{"/usr/share/ovmf/OVMF.fd", "/usr/share/qemu/OVMF.fd",
	"/usr/share/edk2/x64/OVMF.4m.fd", "/usr/share/edk2-ovmf/x64/OVMF.fd"}

// BootByUEFI makes the guest boot with UEFI instead of BIOS.
func (d *Disk) BootByUEFI() error {
	i := slices.IndexFunc(firmwares, func(f string) bool { return whole(f) })
	if i < 0 {
		return check.WithHint(fmt.Errorf("boot by UEFI: %w: no firmware is installed", host.ErrUnsupported),
			"install ovmf (Debian, Ubuntu)")
	}

	d.Firmware = firmwares[i]
	return nil
}
