package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

const (
	portTime = 2 * time.Second        // time limit for a port to appear after its driver was loaded
	pause    = 200 * time.Millisecond // delay before an agent is restarted
)

// Init runs as the init process of a guest. It mounts file systems, loads the modules in the image's list,
// and keeps an agent running. The agent is this program with agentArgs, connected to the virtio port
// chokepoint.agent or to the serial port in the kernel parameter chokepoint.agent. Init reaps processes. On
// SIGTERM, SIGINT or an error, it powers off the machine, and returns only if that fails. signals delivers
// initSignals and must be buffered.
func Init(signals <-chan os.Signal, agentArgs []string) error {
	g := &guest{signals: signals, agentArgs: agentArgs, console: os.Stderr}
	err := g.boot()
	if err == nil {
		err = g.live()
	}

	if err != nil {
		g.say("%s", oneLine(err))
	}

	return g.powerOff()
}

// guest is the state of init. Only one goroutine uses it.
type guest struct {
	signals   <-chan os.Signal
	agentArgs []string
	console   *os.File
	open      func() (*os.File, error) // opens the port of the agent
	agent     *host.Child              // nil if no agent is running

	began, modules int64 // time from the kernel's start until init, and time for loading modules, both in ns
}

// say prints a line on the console.
func (g *guest) say(format string, args ...any) {
	fmt.Fprintf(g.console, "chokepoint: "+format+"\n", args...)
}

func (g *guest) boot() error {
	os.Clearenv()
	for name, value := range map[string]string{"PATH": searchPath, "HOME": "/", "TERM": "linux"} {
		os.Setenv(name, value)
	}

	if err := mountAll(); err != nil {
		return err
	}

	if f, err := os.OpenFile("/dev/console", os.O_WRONLY|unix.O_NOCTTY, 0); err == nil {
		g.console = f
	}

	// Receive SIGINT on Ctrl-Alt-Del, which would otherwise reset the machine.
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_CAD_OFF); err != nil {
		return fmt.Errorf("take over ctrl-alt-del: %w", err)
	}

	g.began = host.Monotonic()
	if err := g.loadList(); err != nil {
		return err
	}

	g.modules = host.Monotonic() - g.began
	return g.findPort()
}

// loadList loads the modules in the image's list. It reports modules that fail to load, for example because
// they are for another CPU, and continues.
func (g *guest) loadList() error {
	list, err := os.ReadFile("/" + modulesFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err != nil {
		return fmt.Errorf("load modules: %w", err)
	}

	if err := loadModules(moduleList(string(list))); err != nil {
		g.say("modules: %s", oneLine(err))
	}

	return nil
}

// findPort finds the port of the agent and sets g.open.
func (g *guest) findPort() error {
	cmdline, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return fmt.Errorf("find the agent's port: %w", err)
	}

	if name, ok := parameter(string(cmdline), portName); ok {
		device, err := serialDevice(name)
		if err != nil {
			return err
		}

		g.open = func() (*os.File, error) { return openSerial(device) }
		return nil
	}

	for deadline := time.Now().Add(portTime); ; time.Sleep(5 * time.Millisecond) {
		device := virtioPort("/sys/class/virtio-ports", portName)
		if device != "" {
			g.open = func() (*os.File, error) { return os.OpenFile(device, os.O_RDWR, 0) }
			return nil
		}

		if time.Now().After(deadline) {
			return fmt.Errorf("find the agent's port: no virtio port is named %s, and no kernel parameter "+
				"names a serial line", portName)
		}
	}
}

// live keeps an agent running until it receives a signal.
func (g *guest) live() error {
	again := time.NewTimer(0)
	said := ""
	for {
		select {
		case s := <-g.signals:
			if s != syscall.SIGCHLD {
				return nil
			}

			if g.reap() {
				again.Reset(pause)
			}
		case <-again.C:
			err := g.startAgent()
			if err != nil {
				again.Reset(pause)
			}

			// Report only changes, because nothing may connect to the port for a long time.
			news := fmt.Sprintf("ready: kernel %d ms, modules %d ms", g.began/1e6, g.modules/1e6)
			if err != nil {
				news = oneLine(err)
			}

			if news != said {
				g.say("%s", news)
				said = news
			}
		}
	}
}

// startAgent starts an agent on the port. It closes its own descriptor of the port, because the port can be
// opened only once.
func (g *guest) startAgent() error {
	port, err := g.open()
	if err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	defer port.Close()
	if err := connected(port); err != nil {
		return err
	}

	agent, err := host.Spawn{Args: g.agentArgs, Conn: port, Stderr: g.console}.Start()
	if err != nil {
		return err
	}

	g.agent = agent
	return nil
}

// connected returns an error if the other end of the port is not open, because an agent would then exit at
// once.
func connected(port *os.File) error {
	fds := []unix.PollFd{{Fd: int32(port.Fd()), Events: unix.POLLIN}}
	if _, err := unix.Poll(fds, 0); err == nil && fds[0].Revents&unix.POLLHUP != 0 {
		return errors.New("no controller at the agent's port")
	}
	return nil
}

// reap waits for all processes that have exited. It reports whether the agent is one of them.
func (g *guest) reap() (agent bool) {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}

		if err != nil || pid <= 0 {
			return agent
		}

		if g.agent == nil || pid != g.agent.Pid() {
			continue
		}

		switch {
		case status.Signaled():
			g.say("agent ended: %s", status.Signal())
		case status != 0:
			g.say("agent ended: exit status %d", status.ExitStatus())
		}

		g.agent.Wait() // the agent was already reaped, but Wait releases resources
		g.agent, agent = nil, true
	}
}

// powerOff flushes the console and powers off the machine.
func (g *guest) powerOff() error {
	g.say("power off")
	unix.Sync()
	// See tcdrain(3). Ignore errors, because the console may not be a terminal.
	unix.IoctlSetInt(int(g.console.Fd()), unix.TCSBRK, 1)
	err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	return fmt.Errorf("power off: %w", err)
}

// mount describes a file system to mount.
type mount struct {
	where, kind, options string
	flags                uintptr
	optional             bool // whether to skip a file system that the kernel does not support
}

const strict = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

var mounts = []mount{
	{where: "/proc", kind: "proc", flags: strict},
	{where: "/sys", kind: "sysfs", flags: strict},
	{where: "/dev", kind: "devtmpfs", options: "mode=755", flags: unix.MS_NOSUID},
	{
		where:   "/dev/pts",
		kind:    "devpts",
		options: "mode=620,ptmxmode=666",
		flags:   unix.MS_NOSUID | unix.MS_NOEXEC,
	},
	{where: "/dev/shm", kind: "tmpfs", options: "mode=1777", flags: unix.MS_NOSUID | unix.MS_NODEV},
	{where: "/run", kind: "tmpfs", options: "mode=755", flags: unix.MS_NOSUID | unix.MS_NODEV},
	{where: "/tmp", kind: "tmpfs", options: "mode=1777", flags: unix.MS_NOSUID | unix.MS_NODEV},
	{where: "/sys/kernel/tracing", kind: "tracefs", flags: strict, optional: true},
	{where: "/sys/fs/cgroup", kind: "cgroup2", flags: strict, optional: true},
}

// mountAll mounts all file systems. The kernel may already have mounted /dev.
func mountAll() error {
	for _, m := range mounts {
		if m.optional {
			if _, err := os.Stat(m.where); err != nil {
				continue
			}
		} else if err := os.MkdirAll(m.where, 0o755); err != nil {
			return fmt.Errorf("mount %s: %w", m.where, err)
		}

		err := unix.Mount(m.kind, m.where, m.kind, m.flags, m.options)
		if err != nil && !errors.Is(err, unix.EBUSY) && !m.optional {
			return fmt.Errorf("mount %s: %w", m.where, err)
		}
	}
	return nil
}

// openSerial opens a serial port for frames in raw mode, with 115200 bit/s, 8 bits, no parity and no flow
// control. The port ignores modem control lines. openSerial discards pending input.
func openSerial(device string) (*os.File, error) {
	// O_NONBLOCK prevents waiting for a carrier.
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

// makeRaw sets the speed, and raw mode as cfmakeraw(3) does. In this mode, a read returns the bytes that are
// available.
func makeRaw(t *unix.Termios) {
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL |
		unix.IXON | unix.IXOFF
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cflag &^= unix.CSIZE | unix.PARENB | unix.CRTSCTS | unix.CBAUD
	t.Cflag |= unix.CS8 | unix.CREAD | unix.CLOCAL | unix.B115200
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	t.Ispeed = unix.B115200
	t.Ospeed = unix.B115200
}
