package lab

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
)

// MachineRole is what an anchor is to a namespace: the process that carries a
// node, here by running a virtual machine. It starts QEMU, whose standard
// input and output are the line to the guest's agent, and lets any number of
// controllers share that agent. Its argument is the node's name.
const MachineRole = "lab-machine"

// bootTime bounds a guest's boot; it takes 3 to 8 seconds under emulation.
const bootTime = 60 * time.Second

// machineRequest is the first line on its standard input.
type machineRequest struct {
	Guest   vm.Guest     `json:"guest"`
	Number  int          `json:"number"` // among the lab's guests
	Console string       `json:"console"`
	Layout  agent.Layout `json:"layout"`
}

// MachineMain is that process' life. Descriptor 3 is the node's socket, those
// from 4 on are the taps of the guest's ports in the layout's order.
func MachineMain(node string, stdin io.Reader, stdout io.Writer) error {
	listener := os.NewFile(3, "listener")
	unix.CloseOnExec(3)
	in := bufio.NewReader(stdin)
	var q machineRequest
	if err := readLine(in, &q); err != nil {
		return fmt.Errorf("read request of machine %s: %w", node, err)
	}
	guest, far, err := bootGuest(node, q)
	if encErr := json.NewEncoder(stdout).Encode(answerOf(err)); encErr != nil || err != nil {
		return errors.Join(err, encErr)
	}
	defer guest.Kill()
	ln, err := net.FileListener(listener)
	if err != nil {
		return fmt.Errorf("serve machine %s: %w", node, err)
	}
	listener.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		io.Copy(io.Discard, in) // the holder hung up
		cancel()
	}()
	return serveGuest(ctx, ln, far)
}

func serveGuest(ctx context.Context, ln net.Listener, far host.Agent) error {
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	for {
		c, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		go host.Gateway(ctx, c, far) // until that controller hangs up
	}
}

// bootGuest boots the guest and makes it what the layout says.
func bootGuest(node string, q machineRequest) (*host.Child, host.Agent, error) {
	taps := make([]*os.File, len(q.Layout.Ports))
	fds := make([]int, len(taps))
	q.Layout.Names = map[string]string{}
	var macs []net.HardwareAddr
	for i, port := range q.Layout.Ports {
		taps[i] = os.NewFile(uintptr(4+i), "tap")
		unix.CloseOnExec(4 + i)
		fds[i] = 3 + i
		macs = append(macs, vm.HardwareAddr(q.Number, i))
		q.Layout.Names[macs[i].String()] = port
	}
	log, err := os.OpenFile(q.Console+".qemu", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("boot guest %s: %w", node, err)
	}
	defer log.Close()
	child, err := host.Spawn{Program: q.Guest.Program(), Args: q.Guest.Args(node, fds, macs, q.Console), Files: taps, Stderr: log}.Start()
	for _, t := range taps {
		t.Close()
	}
	if errors.Is(err, host.ErrUnsupported) {
		return nil, nil, &hinted{fmt.Errorf("boot guest %s: %w", node, err), "install " + packageOf(q.Guest) + " (Debian, Ubuntu)"}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("boot guest %s: %w", node, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), bootTime)
	defer cancel()
	far, err := host.ConnectLine(ctx, child)
	if err == nil {
		err = far.Invoke(ctx, agent.VerbArrange, q.Layout, nil)
	}
	if err != nil {
		child.Kill()
		return nil, nil, fmt.Errorf("boot guest %s: %w%s", node, err, lastWords(q.Console))
	}
	return child, far, nil
}

func packageOf(g vm.Guest) string {
	switch g.Image.Arch {
	case "arm64":
		return "qemu-system-arm"
	case "mipsel":
		return "qemu-system-mips"
	}
	return "qemu-system-x86"
}

// consoleLines is how much of a guest's console is quoted.
const consoleLines = 6

// lastWords quotes what QEMU complained of and the end of the guest's console.
func lastWords(console string) string {
	var lines []string
	for _, name := range []string{console + ".qemu", console} {
		b, _ := os.ReadFile(name)
		b = bytes.Map(func(r rune) rune {
			if r < ' ' && r != '\n' {
				return -1
			}
			return r
		}, b)
		for _, l := range strings.Split(string(b), "\n") {
			if l = strings.TrimSpace(l); l != "" {
				lines = append(lines, l)
			}
		}
	}
	if len(lines) == 0 {
		return " (it said nothing)"
	}
	return ": " + strings.Join(lines[max(0, len(lines)-consoleLines):], " | ")
}

// consoleOf is the file of a guest's console in the lab's directory.
func consoleOf(dir, node string) string { return filepath.Join(dir, filepath.Base(node)+".console") }
