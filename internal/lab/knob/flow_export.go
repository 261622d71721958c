package knob

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// FlowExport monitors the flows on a port and exports them, as routers do. "softflowd" starts the program of
// that name, and "off" stops it. The program counts all packets of the place's port or, if there is none, of
// the port towards the far side. It exports NetFlow 9 to the discard port of the far node, where no program
// listens.
func FlowExport() Knob {
	return &kernelKnob[State]{
		declared: ofRouter(factor.Declaration{
			Policy: true,
			Name:   "flow_export",
			Unit:   "off, softflowd",
			Doc: "program that records the flows on the router's port towards the far side and exports " +
				"them (NetFlow 9)",
			Without: without("off", "without flow export"),
		}),
		spelling: words("off", softflowd),
		perPort:  true,
		read: func(p Place) (State, error) {
			running, err := exporters(p.Port)
			if len(running) > 0 {
				return softflowd, err
			}
			return "off", err
		},
		apply:  applyExport,
		check:  checkExport,
		always: "off",
		pick: func(p Place) string {
			if p.WAN != "" || len(p.Ports) == 0 {
				return p.WAN
			}
			return p.Ports[0]
		},
	}
}

const (
	softflowd   = "softflowd"
	exportDir   = "chokepoint-flow-"          // name prefix of the directory that contains softflowd's socket
	exportJail  = "/var/run/softflowd/chroot" // directory into which Debian's softflowd chroots
	discardPort = "9"                         // discard port (RFC 863)
	exportTime  = 10 * time.Second            // time limit for starting or stopping softflowd
	exportPause = 20 * time.Millisecond       // interval between checks within exportTime
)

func applyExport(p Place, s State) error {
	ctx := context.Background()
	if err := stopExport(ctx, p.Port); err != nil || s == "off" {
		return err
	}

	if err := startExport(ctx, p); err != nil {
		err = fmt.Errorf("start softflowd on %s: %w", p.Port, err)
		return errors.Join(err, stopExport(ctx, p.Port))
	}

	return nil
}

func checkExport(p Place, _ State) error {
	_, missing := host.Run(context.Background(), host.Local(), host.Command{
		Path: softflowd,
		Args: []string{"-h"},
	})
	_, noJail := os.Stat(exportJail)
	users, err := os.ReadFile("/proc/self/uid_map")
	switch {
	case p.Collector == "":
		return cannot("%s has no node to send flows to", p.Node)
	case errors.Is(missing, host.ErrUnsupported):
		return cannot("softflowd is not installed on %s", p.Node)
	case !p.OwnKernel && noJail != nil:
		return cannot("softflowd wants the folder %s", exportJail)
	case err == nil && !strings.Contains(string(users), "4294967295"):
		return cannot("softflowd becomes another user, and this user namespace has none")
	}
	return nil
}

// startExport starts softflowd, which runs as a daemon, and waits until softflowd returns statistics.
func startExport(ctx context.Context, p Place) error {
	if p.OwnKernel { // not an error if the directory exists
		if err := os.MkdirAll(exportJail, 0o755); err != nil {
			return err
		}
	}

	dir, err := os.MkdirTemp("", exportDir)
	if err != nil {
		return err
	}

	control := filepath.Join(dir, "control")
	args := []string{"-i", p.Port, "-n", p.Collector + ":" + discardPort, "-v", "9", "-p",
		filepath.Join(dir, "pid"), "-c", control}
	if _, err := host.Run(ctx, host.Local(), host.Command{Path: softflowd, Args: args}); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}

	ctx, cancel := context.WithTimeout(ctx, exportTime)
	defer cancel()
	statistics := host.Command{Path: "softflowctl", Args: []string{"-c", control, "statistics"}}
	for {
		_, err := host.Run(ctx, host.Local(), statistics)
		if err == nil || errors.Is(err, host.ErrUnsupported) || host.Pause(ctx, exportPause) != nil {
			return err
		}
	}
}

// exporters returns the instances that this knob has started for a device in this network namespace. The
// result maps PIDs to the directories of the instances' sockets.
func exporters(dev string) (map[int]string, error) {
	ours, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("find softflowd: %w", err)
	}

	out := map[int]string{}
	processes, _ := filepath.Glob("/proc/[1-9]*") // the error is nil, because the pattern is valid
	for _, process := range processes {
		// Ignore errors, because the process may have exited.
		line, _ := os.ReadFile(process + "/cmdline")
		ns, _ := os.Readlink(process + "/ns/net")
		dir, ok := exportsFrom(string(line), dev)
		pid, err := strconv.Atoi(filepath.Base(process))
		if ok && ns == ours && err == nil {
			out[pid] = dir
		}
	}

	return out, nil
}

// exportsFrom reports whether a command line runs softflowd for dev, and returns the directory of the
// instance's socket. Each word of the command line ends in NUL.
func exportsFrom(line, dev string) (dir string, ok bool) {
	words := strings.Split(line, "\x00")
	if filepath.Base(words[0]) != softflowd {
		return "", false
	}

	for i, w := range words[:len(words)-1] {
		switch w {
		case "-i":
			ok = words[i+1] == dev
		case "-c":
			dir = filepath.Dir(words[i+1])
		}
	}

	return dir, ok && strings.HasPrefix(filepath.Base(dir), exportDir)
}

func stopExport(ctx context.Context, dev string) error {
	running, err := exporters(dev)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, exportTime)
	defer cancel()
	for pid, dir := range running {
		err := stopProcess(ctx, pid)
		if err == nil {
			err = os.RemoveAll(dir)
		}

		if err != nil {
			return fmt.Errorf("stop softflowd on %s: %w", dev, err)
		}
	}

	return nil
}

// stopProcess sends SIGTERM to a process, and then SIGKILL until it has exited.
func stopProcess(ctx context.Context, pid int) error {
	for signal := syscall.SIGTERM; ; signal = syscall.SIGKILL {
		if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}

		if gone(ctx, pid) {
			return nil
		}

		if ctx.Err() != nil {
			return fmt.Errorf("process %d does not end", pid)
		}
	}
}

// gone waits up to a second until a process has exited. A zombie, whose command line is empty, counts as
// exited.
func gone(ctx context.Context, pid int) bool {
	for range 50 {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if errors.Is(err, fs.ErrNotExist) || err == nil && len(line) == 0 {
			return true
		}

		if host.Pause(ctx, exportPause) != nil {
			return false
		}
	}
	return false
}
