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

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// FlowExport monitors the flows of a port and exports them, as routers do: "softflowd" is the program, "off"
// ends it. It counts all packets of the place's port, or else of the port towards the far side, and exports
// NetFlow 9 to the far node's discard port, where nobody listens.
func FlowExport() Knob {
	return flowExport{&kernelKnob[State]{
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
		pick: func(p Place) string {
			if p.WAN != "" || len(p.Ports) == 0 {
				return p.WAN
			}
			return p.Ports[0]
		},
	}}
}

const (
	softflowd   = "softflowd"
	exportDir   = "chokepoint-flow-"          // name prefix of its socket's directory
	exportJail  = "/var/run/softflowd/chroot" // directory that Debian's build uses for chroot
	discardPort = "9"                         // RFC 863
	exportTime  = 10 * time.Second            // time limit for starting or stopping
	exportPause = 20 * time.Millisecond       // interval between checks
)

type flowExport struct{ *kernelKnob[State] } // needs the collector's address from the place

func (k flowExport) Apply(ctx context.Context, p Place, s State) error {
	ports, err := k.devices(p)
	if err != nil {
		return err
	}

	p.Port = ports[0]
	if err := stopExport(ctx, p.Port); err != nil || s == "off" {
		return err
	}

	if err := startExport(ctx, p); err != nil {
		return conclude(errors.Join(err, stopExport(context.WithoutCancel(ctx), p.Port)))
	}

	return nil
}

func (k flowExport) Check(ctx context.Context, p Place, s State) check.Answer {
	if s == "off" {
		return check.OK()
	}

	a := k.kernelKnob.Check(ctx, p, s)
	if a.State != check.Yes {
		return a
	}

	if p.Collector == "" {
		return check.Not("%s has no node to send flows to", p.Node)
	}

	if _, err := host.Run(ctx, host.Local(), host.Command{
		Path: softflowd,
		Args: []string{"-h"},
	}); errors.Is(err, host.ErrUnsupported) {
		return check.Not("softflowd is not installed on %s", p.Node)
	}

	if _, err := os.Stat(exportJail); !p.OwnKernel && err != nil {
		return check.Not("softflowd wants the folder %s", exportJail)
	}

	if m, err := os.ReadFile("/proc/self/uid_map"); err == nil && !strings.Contains(string(m), "4294967295") {
		return check.Not("softflowd becomes another user, and this user namespace has none")
	}

	return check.OK()
}

// startExport starts softflowd, which daemonises, and waits until it returns statistics.
func startExport(ctx context.Context, p Place) error {
	if p.OwnKernel { // no error if the directory exists
		if err := os.MkdirAll(exportJail, 0o755); err != nil {
			return fmt.Errorf("start softflowd: %w", err)
		}
	}

	dir, err := os.MkdirTemp("", exportDir)
	if err != nil {
		return fmt.Errorf("start softflowd: %w", err)
	}

	control := filepath.Join(dir, "control")
	args := []string{"-i", p.Port, "-n", p.Collector + ":" + discardPort, "-v", "9", "-p",
		filepath.Join(dir, "pid"), "-c", control}
	if _, err := host.Run(ctx, host.Local(), host.Command{Path: softflowd, Args: args}); err != nil {
		return errors.Join(fmt.Errorf("start softflowd on %s: %w", p.Port, err), os.RemoveAll(dir))
	}

	ctx, cancel := context.WithTimeout(ctx, exportTime)
	defer cancel()
	for {
		_, err := host.Run(ctx, host.Local(), host.Command{
			Path: "softflowctl",
			Args: []string{"-c", control,
				"statistics"},
		})
		if err == nil {
			return nil
		}

		if errors.Is(err, host.ErrUnsupported) || host.Pause(ctx, exportPause) != nil {
			return fmt.Errorf("read statistics of softflowd on %s: %w", p.Port, err)
		}
	}
}

// exporters returns the instances that this knob has started for a device in this network namespace, as a map
// from PID to the socket's directory.
func exporters(dev string) (map[int]string, error) {
	ours, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("find softflowd: %w", err)
	}

	lines, err := filepath.Glob("/proc/[1-9]*/cmdline")
	if err != nil {
		return nil, err
	}

	out := map[int]string{}
	for _, path := range lines {
		line, err := os.ReadFile(path)
		if err != nil {
			continue // has exited
		}

		dir, ok := exportsFrom(string(line), dev)
		if !ok {
			continue
		}

		if ns, err := os.Readlink(filepath.Join(filepath.Dir(path), "ns/net")); err != nil || ns != ours {
			continue
		}

		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			out[pid] = dir
		}
	}

	return out, nil
}

// exportsFrom reports whether a command line, whose words end in NUL, runs softflowd for dev, and returns its
// socket's directory.
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
		for signal := syscall.SIGTERM; ; signal = syscall.SIGKILL {
			if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("stop softflowd on %s: %w", dev, err)
			}

			if gone(ctx, pid) {
				break
			}

			if ctx.Err() != nil {
				return fmt.Errorf("stop softflowd on %s: process %d does not end", dev, pid)
			}
		}

		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("stop softflowd on %s: %w", dev, err)
		}
	}

	return nil
}

// gone waits up to a second for a process to exit. It counts a zombie, whose command line is empty, as
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
