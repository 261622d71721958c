package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
)

// TestMain lets the test program be an agent's child.
func TestMain(m *testing.M) {
	roles := []string{agent.ChildRole, agent.GuardRole, agent.MachineRole}
	if len(os.Args) == 2 &&
		slices.Contains(roles, os.Args[1]) {
		if err := agent.Main(context.Background(), os.Args[1], stdio{os.Stdin, os.Stdout},
			parts(&agent.Parts{Knobs: []knob.Knob{inFile{}}})); err != nil {
			os.Exit(1)
		}

		os.Exit(0)
	}

	os.Exit(m.Run())
}

type stdio struct {
	io.ReadCloser
	io.Writer
}

// parts are a node's: knobs, and isolated verbs that tell whose process they live in, carry secrets, die,
// and hang.
func parts(p *agent.Parts) agent.Parts {
	if p == nil {
		p = &agent.Parts{}
	}

	p.Isolated = map[string]host.Handler{
		"test/pid": func(_ context.Context, s host.Session) error {
			if err := s.Recv(nil); err != nil {
				return err
			}
			return s.Send(os.Getpid())
		},
		"test/secret": func(_ context.Context, s host.Session) error {
			if err := s.Recv(nil); err != nil {
				return err
			}

			x, err := s.(host.SecretSession).RecvSecret()
			if err != nil {
				return err
			}

			return s.(host.SecretSession).SendSecret(x)
		},
		"test/die": func(context.Context, host.Session) error {
			os.Exit(3)
			return nil
		},
		"test/hold": func(ctx context.Context, s host.Session) error {
			var file string
			if err := s.Recv(&file); err != nil {
				return err
			}

			if err := os.WriteFile(file, nil, 0o600); err != nil {
				return err
			}

			if err := s.Send(os.Getpid()); err != nil {
				return err
			}

			<-ctx.Done()
			return os.Remove(file)
		},
		"test/veth": func(_ context.Context, s host.Session) error {
			if err := s.Recv(nil); err != nil {
				return err
			}

			if err := kernel.AddVeth(kernel.VethEnd{Name: "eth0"}, kernel.VethEnd{Name: "eth1"},
				1); err != nil {
				return err
			}

			var macs []string
			for _, dev := range []string{"eth0", "eth1"} {
				port, err := net.InterfaceByName(dev)
				if err != nil {
					return err
				}

				macs = append(macs, port.HardwareAddr.String())
			}

			return s.Send(macs)
		},
		"test/look": func(_ context.Context, s host.Session) error {
			if err := s.Recv(nil); err != nil {
				return err
			}
			return s.Send(look())
		},
		"test/refuse": func(context.Context, host.Session) error {
			return errors.Join(host.ErrUnsupported, errors.New("not here"))
		},
	}
	return *p
}

// look returns what a layout decides, as text.
func look() []string {
	name, _ := os.Hostname()
	out := []string{"node " + name}
	for _, dev := range []string{"lan", "wan", "eth0", "eth1"} {
		port, err := net.InterfaceByName(dev)
		if err != nil {
			continue
		}

		addresses, _ := kernel.Addresses(dev)
		out = append(out, fmt.Sprintf("%s %s %v", port.HardwareAddr, dev, addresses))
	}

	forward, _ := kernel.ReadSysctl("net.ipv4.ip_forward")
	via, _ := kernel.RouteDevice(netip.MustParseAddr("198.18.9.9"))
	return append(out, "forward "+forward, "198.18.9.9 by "+via)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
