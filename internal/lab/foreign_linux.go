package lab

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
)

// These are the time limits for booting a user's image, which may contain a whole distribution.
const (
	diskBootTime = 4 * time.Minute
	diskKVMTime  = time.Minute
)

// bootTimes returns the time limits for booting a guest with and without KVM.
func bootTimes(g *vm.Guest) (kvm, emulated time.Duration) {
	switch {
	case g == nil:
		return 0, 0
	case g.Disk != nil:
		return diskKVMTime, diskBootTime
	}
	return kvmTime, bootTime
}

// refusedLogin is the error if a guest has booted but refuses the login or the agent. Booting the guest again
// would not help.
type refusedLogin struct{ error }

func (r *refusedLogin) Unwrap() error { return r.error }

func errLogin(text, hint string) error { return &refusedLogin{check.WithHint(errors.New(text), hint)} }

// QEMU stores what a guest writes to its disk in a temporary file, which can grow to the virtual size of the
// image. A guest may write up to maxWritten bytes, and all guests of a lab together no more than half of the
// free space.
const (
	maxWritten  = 4 << 30
	minWritten  = 256 << 20
	partWritten = 4 // each guest may use a quarter, because a lab has up to two
)

// tempDir returns the directory of QEMU's temporary files.
func tempDir() string {
	if dir := os.Getenv("TMPDIR"); dir != "" && dir != "/tmp" {
		return dir
	}
	return "/var/tmp"
}

// roomToWrite returns how many bytes a guest may write to its disk if dir has the given number of free bytes.
func roomToWrite(dir string, free uint64) (uint64, error) {
	if free/partWritten < minWritten {
		return 0, check.WithHint(fmt.Errorf("%s has %d MiB free, what the guest writes to its disk needs %d",
			dir, free>>20, minWritten*partWritten>>20), "make room there, or name another by TMPDIR")
	}
	return min(maxWritten, free/partWritten), nil
}

// nearlyFull is the maximum distance from the limit, in bytes, at which QEMU stops writing.
const nearlyFull = 16 << 20

// errWrote returns an error if a guest has written as much to its disk as the limit allows.
func errWrote(qemu int, most uint64) error {
	dir := fmt.Sprintf("/proc/%d/fd", qemu)
	files, _ := os.ReadDir(dir) // error ignored: the process may have exited
	for _, f := range files {
		var is unix.Stat_t
		err := unix.Stat(filepath.Join(dir, f.Name()), &is)
		temporary := err == nil && is.Nlink == 0 && is.Mode&unix.S_IFMT == unix.S_IFREG
		if temporary && most > 0 && uint64(is.Size)+nearlyFull > most {
			return fmt.Errorf("it wrote more than %d MiB to its disk", (most-nearlyFull)>>20)
		}
	}
	return nil
}

// startScript copies the agent from its disk into the guest and starts it on the virtio port.
//
//go:embed foreign.sh
var startScript string

// foreign is a guest booted from a user's image, where an agent can be started only after a login.
type foreign struct {
	login    vm.Login
	dir      string // directory of the lab
	files    []*os.File
	terminal *os.File // our end of the serial console, or nil
}

// enterForeign opens what QEMU needs for a user's image: the image, the disk that contains the agent, and,
// for a serial login, the other end of the console. QEMU inherits them as descriptors next, next+1 and so on.
func enterForeign(d *vm.Disk, dir string, number, next int) (*foreign, error) {
	f := &foreign{login: d.Login, dir: dir}
	// QEMU forwards a port on the loopback device of this namespace to ssh. No other process runs in the
	// namespace.
	if err := kernel.Up("lo"); err != nil {
		return nil, err
	}

	program := func() (*os.File, error) { return os.Open(d.Agent) }
	for _, open := range []func() (*os.File, error){d.Open, program} {
		file, err := open()
		if err != nil {
			f.leave()
			return nil, fmt.Errorf("open a disk of the guest's: %w", err)
		}

		f.files = append(f.files, file)
	}

	d.Management = vm.ManagementAddr(number)
	d.FileFD = next
	d.AgentFD = next + 1
	if d.Login.Method != vm.LoginSerial {
		return f, nil
	}

	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(ends[0], true) // nonblocking, because deadlines require it
	}

	if err != nil {
		f.leave()
		return nil, fmt.Errorf("make a serial console: %w", err)
	}

	f.terminal = os.NewFile(uintptr(ends[0]), "console")
	f.files = append(f.files, os.NewFile(uintptr(ends[1]), "console"))
	d.TerminalFD = next + 2
	return f, nil
}

// started closes our copies of the descriptors that QEMU has inherited.
func (f *foreign) started() {
	if f == nil {
		return
	}

	for _, file := range f.files {
		file.Close()
	}

	f.files = nil
}

// leave closes all files.
func (f *foreign) leave() {
	if f == nil {
		return
	}

	f.started()
	if f.terminal != nil {
		f.terminal.Close()
	}
}

// connect logs in, starts the agent and connects to it through QEMU.
func (f *foreign) connect(ctx context.Context, child *host.Child) (host.Agent, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var far host.Agent
	ended := make(chan error, 1)
	go func() {
		var err error
		if far, err = host.ConnectLine(ctx, child); err != nil {
			cancel(err) // because no login can succeed after QEMU has exited
		}

		ended <- err
	}()
	err := f.start(ctx)
	if err != nil && ctx.Err() == nil {
		cancel(err)
	}

	lineErr := <-ended
	switch {
	case lineErr != nil && (err == nil || errors.Is(lineErr, host.ErrUnreachable)):
		return nil, lineErr
	case err == nil:
		return far, nil
	case far != nil:
		far.Close()
	}

	return nil, err
}

func (f *foreign) start(ctx context.Context) error {
	shell := "sh"
	if f.login.User != "root" {
		shell = "sudo -n sh"
	}

	start := f.startBySSH
	if f.terminal != nil {
		start = f.startBySerial
	}

	if err := start(ctx, shell); err != nil {
		return fmt.Errorf("log in to the image as %s: %w", f.login, err)
	}

	return nil
}

// startBySerial starts the agent through the serial console. Afterwards, it keeps reading the console,
// because QEMU blocks if its output is not read.
func (f *foreign) startBySerial(ctx context.Context, shell string) error {
	password, err := f.password()
	if err != nil {
		return err
	}

	t := &terminal{conn: f.terminal}
	if err := t.login(ctx, f.login.User, password); err != nil {
		return err
	}

	if _, err := t.run(ctx, shell, startScript); err != nil {
		return err
	}

	f.terminal.SetReadDeadline(time.Time{})
	go func() { // reads until QEMU exits
		io.Copy(io.Discard, f.terminal)
		f.terminal.Close()
	}()
	return nil
}

func (f *foreign) password() (string, error) {
	if f.login.Password == "" {
		return "", nil
	}

	secret, err := host.Password(f.login.Password)
	if err != nil {
		return "", fmt.Errorf("read the password: %w", err)
	}

	text := ""
	err = secret.Use(func(b []byte) error { text = string(b); return nil })
	return text, err
}

// sshAgain is the interval between login attempts. They are repeated because a booting guest refuses
// connections for a while.
const sshAgain = 500 * time.Millisecond

func (f *foreign) startBySSH(ctx context.Context, shell string) error {
	c, err := f.ssh(shell)
	if err != nil {
		return err
	}

	for {
		c.Stdin = strings.NewReader(startScript)
		_, err := host.Run(ctx, host.Local(), c)
		code, known := host.ExitCode(err)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, host.ErrUnsupported):
			return check.WithHint(err,
				"install openssh-client (Debian, Ubuntu), or log in by --image-login serial")
		case ctx.Err() != nil:
			return err
		case strings.Contains(err.Error(), "Permission denied"):
			return errLogin(strings.TrimSpace(err.Error()),
				"--image-key FILE names a private key, --image-password FILE a file that holds a password")
		case !known || code != 255: // 255 is the exit code if ssh itself failed
			return errLogin(strings.TrimSpace(err.Error()), "the guide lists what an image needs")
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; ssh says: %w", context.Cause(ctx), err)
		case <-time.After(sshAgain):
		}
	}
}

// ssh returns the ssh command. The command ignores the user's configuration and known hosts, because every
// guest is new and its address cannot lead to another machine.
func (f *foreign) ssh(command string) (host.Command, error) {
	// IdentitiesOnly and IdentityAgent offer the guest only the given key, because the guest is not trusted.
	options := "StrictHostKeyChecking=no UserKnownHostsFile=/dev/null GlobalKnownHostsFile=/dev/null " +
		"LogLevel=ERROR ConnectTimeout=10 ServerAliveInterval=5 RequestTTY=no IdentitiesOnly=yes " +
		"IdentityAgent=none"
	c := host.Command{
		Path: "ssh",
		Args: []string{"-F", "none", "-p", strconv.Itoa(vm.SSHPort), "-l", f.login.User},
	}
	if f.login.Key != "" {
		c.Args = append(c.Args, "-i", f.login.Key)
	} else {
		options += " PubkeyAuthentication=no GSSAPIAuthentication=no HostbasedAuthentication=no"
	}

	if f.login.Password == "" {
		options += " BatchMode=yes"
	} else {
		// ssh gets the password from a program that reads the user's file.
		ask := filepath.Join(f.dir, "askpass")
		if err := os.WriteFile(ask, []byte("#!/bin/sh\nexec head -n 1 "+host.Quote(f.login.Password)+"\n"),
			0o700); err != nil {
			return c, err
		}

		options += " NumberOfPasswordPrompts=1"
		c.Env = []string{"SSH_ASKPASS=" + ask, "SSH_ASKPASS_REQUIRE=force", "DISPLAY=none"}
	}

	for o := range strings.FieldsSeq(options) {
		c.Args = append(c.Args, "-o", o)
	}

	c.Args = append(c.Args, vm.SSHAddress, command)
	return c, nil
}

// describeForeign removes the executable of the running agent, and returns the guest's distribution and
// kernel release.
func describeForeign(ctx context.Context, far host.Agent) (system, release string, err error) {
	const script = `rm -f "$(readlink /proc/$PPID/exe)"; uname -r; . /etc/os-release 2>/dev/null; echo "$PRETTY_NAME"`
	out, err := host.Run(ctx, agent.NewHost("the guest", far), host.Command{
		Path: "sh",
		Args: []string{"-c", script},
	})
	if err != nil {
		return "", "", fmt.Errorf("ask the guest what it is: %w", err)
	}

	release, system, _ = strings.Cut(strings.TrimSpace(string(out)), "\n")
	return check.Plain(strings.TrimSpace(system)), check.Plain(release), nil
}
