package main

import (
	"context"
	"fmt"
	"os"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
)

// serveRole lives the life of one of the program's other roles, in which it
// starts itself again for a lab: holder, anchor, agent, agent's child.
func serveRole(args []string) (code int, isRole bool) {
	if len(args) == 0 {
		return 0, false
	}
	var err error
	switch args[0] {
	case lab.HolderRole:
		err = lab.HolderMain(os.Stdin, os.Stdout)
	case lab.AnchorRole:
		if len(args) != 2 {
			return codeUsage, true
		}
		err = lab.AnchorMain(args[1], os.Stdin, os.Stdout, []string{agent.Role})
	case agent.Role, agent.ChildRole:
		err = agent.Main(context.Background(), args[0], standard{}, node.Parts())
	default:
		return 0, false
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "chokepoint %s: %v\n", args[0], err)
		return codeError, true
	}
	return codeOK, true
}

// standard is the connection on standard input and output.
type standard struct{}

func (standard) Read(b []byte) (int, error)  { return os.Stdin.Read(b) }
func (standard) Write(b []byte) (int, error) { return os.Stdout.Write(b) }
func (standard) Close() error {
	os.Stdout.Close()
	return os.Stdin.Close()
}
