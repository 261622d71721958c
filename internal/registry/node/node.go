// Package node is the part of the registry that agents need: the node side of knobs, tunnels, engines and
// probes.
package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"

	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/isp"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/lab/tunnel"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/trial/ciphers"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/watch"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Tunnels returns the kinds of tunnels, in display order.
func Tunnels() []tunnel.Tunnel { return tunnel.All() }

// Prober returns the default latency probe.
func Prober() traffic.Prober { return Probers()[0] }

// Hopper returns the probe for routers on the path that do not run chokepoint.
func Hopper() traffic.Prober {
	for _, p := range Probers() {
		if p.Name() == "icmp" {
			return p
		}
	}
	return nil
}

// Knobs returns the knobs, in display order.
func Knobs() []knob.Knob { return knob.All() }

// Probes returns the telemetry sources, in display order.
func Probes() []probe.Probe { return probe.All(probe.Root{}) }

// Parts returns the handlers of an agent. Handlers of tunnels and load generators run in separate processes,
// and handlers of knobs and probes run in the agent.
func Parts() agent.Parts {
	p := agent.Parts{
		Knobs:    Knobs(),
		Handlers: watch.Handlers(probe.Root{}),
		Isolated: map[string]host.Handler{},
	}
	for _, t := range Tunnels() {
		p.Isolated[host.Verb(host.FamilyTunnel, t.Name())] = t.Serve
	}

	maps.Copy(p.Isolated, isp.Handlers())
	maps.Copy(p.Isolated, ciphers.Handlers())
	for _, e := range Engines() {
		p.Isolated[host.Verb(host.FamilyTraffic, e.Name())] = e.Serve
	}

	for _, l := range Probers() {
		p.Isolated[host.Verb(host.FamilyTraffic, l.Name())] = l.Serve
	}

	if runtime.GOOS != "linux" {
		for _, name := range needLinux {
			p.Handlers[host.Verb(host.FamilyTraffic, name)] = PortableOnly
		}
	}

	return p
}

// needLinux lists the engines and probes that are available only on Linux.
var needLinux = [...]string{"iperf3", "responsiveness", "xdp", "flows", "requests", "icmp"}

// PortableOnly rejects requests that only Linux can serve.
func PortableOnly(context.Context, host.Session) error {
	return fmt.Errorf("%w: its system is %s: the portable engine has loads of engine native and the echo "+
		"alone", host.ErrUnsupported, unit.System(runtime.GOOS))
}

// Standard is a connection that reads standard input and writes standard output.
type Standard struct{}

func (Standard) Read(b []byte) (int, error)  { return os.Stdin.Read(b) }
func (Standard) Write(b []byte) (int, error) { return os.Stdout.Write(b) }
func (Standard) Close() error                { return errors.Join(os.Stdout.Close(), os.Stdin.Close()) }
