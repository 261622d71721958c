// Command chokepoint-agent is the small program that runs on nodes and guests. It serves a controller over
// its standard input and output, and can also be used alone to watch a machine. It stores, computes and
// formats nothing.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm/guest"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

const help = `chokepoint-agent watches and drives a node of a chokepoint lab.

USAGE
  chokepoint-agent probe [--json] [--interval D] [--count N] [PROBE...]
  chokepoint-agent environment
  chokepoint-agent agent
  chokepoint-agent version

COMMANDS
  probe        List the telemetry sources of this machine; with --json, sample
               them and print one JSON object per line, until Ctrl-C
  environment  Print the fingerprint of this machine as JSON: what a reader
               must know to compare its numbers with another's
  agent        Serve a controller on standard input and output, until it hangs up
  version      Print which chokepoint-agent this is

FLAGS OF probe
  --json           sample instead of listing
  --interval D     time between samples, such as 100ms (default 1s)
  --count N        stop after N samples of each source (default: never)

EXIT STATUS
    0  success, or ended by Ctrl-C
    1  error
    2  wrong command line
`

// Exit codes.
const (
	codeOK    = 0
	codeError = 1
	codeUsage = 2
)

func main() {
	host.Settle()
	code, isGuest := guest.Serve(os.Args, agent.LineRole)
	if isGuest {
		os.Exit(code)
	}

	ctx, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer release()
	os.Exit(run(ctx, os.Args[1:], node.Standard{}, os.Stderr))
}

// usageError marks a wrong command line.
type usageError string

func (e usageError) Error() string { return string(e) }

func run(ctx context.Context, args []string, conn io.ReadWriteCloser, messages io.Writer) int {
	err := command(ctx, args, conn)
	if err == nil {
		return codeOK
	}

	fmt.Fprintf(messages, "chokepoint-agent: error: %v\n", err)
	_, wrong := errors.AsType[usageError](err)
	if !wrong {
		return codeError
	}

	fmt.Fprintln(messages, "hint: chokepoint-agent --help shows how it is used")
	return codeUsage
}

func command(ctx context.Context, args []string, conn io.ReadWriteCloser) error {
	if len(args) == 0 {
		return usageError("no command")
	}

	role, sysctls, err := agent.Started(args)
	if err != nil {
		return usageError(err.Error())
	}

	if role != "" {
		// Ctrl-C at the controller's terminal signals its whole process group. The agent ignores the signal
		// and stops when the connection ends.
		parts := node.Parts()
		parts.Sysctls = sysctls
		return agent.Main(context.WithoutCancel(ctx), role, conn, parts)
	}

	switch args[0] {
	case "help", "--help", "-h":
		return say(conn, help)
	case "version", "--version":
		return say(conn, version()+"\n")
	case "probe":
		return observe(ctx, args[1:], conn)
	case "environment":
		return environment(args[1:], conn)
	}

	return usageError(fmt.Sprintf("unknown command %q", args[0]))
}

func say(w io.Writer, text string) error {
	_, err := io.WriteString(w, text)
	return err
}

// version identifies the build: its module version or commit, and its target.
func version() string {
	text := "chokepoint-agent"
	if info, ok := debug.ReadBuildInfo(); ok {
		text += " " + info.Main.Version
	}
	return text + " " + runtime.GOOS + "/" + unit.Arch(runtime.GOARCH)
}
