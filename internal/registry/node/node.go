// Package node is the part of the registry that an agent includes: the node sides of every family.
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

// Tunnels returns the kinds of tunnel, in display order.
func Tunnels() []tunnel.Tunnel { return tunnel.All() }

// Prober returns the default latency probe.
func Prober() traffic.Prober { return Probers()[0] }

// Hopper returns the probe for routers on the path, which run nothing of ours.
func Hopper() traffic.Prober {
	for _, p := range Probers() {
		if p.Name() == "icmp" {
			return p
		}
	}
	return nil
}

// Knobs returns the settings that can be varied, in display order.
func Knobs() []knob.Knob { return knob.All() }

// Probes returns the telemetry sources, in display order.
func Probes() []probe.Probe { return probe.All(probe.Root{}) }

// Parts returns what an agent serves. Tunnels and traffic ends get a process of their own; knobs and probes
// are the agent's own work.
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

	for _, name := range needLinux() {
		p.Handlers[host.Verb(host.FamilyTraffic, name)] = PortableOnly
	}

	return p
}

// PortableOnly explains why an end that does not run Linux lacks what is requested.
func PortableOnly(context.Context, host.Session) error {
	return fmt.Errorf("%w: its system is %s: the portable engine has loads of engine native and the echo "+
		"alone", host.ErrUnsupported, unit.System(runtime.GOOS))
}

// Standard is the connection on standard input and output.
type Standard struct{}

func (Standard) Read(b []byte) (int, error)  { return os.Stdin.Read(b) }
func (Standard) Write(b []byte) (int, error) { return os.Stdout.Write(b) }
func (Standard) Close() error                { return errors.Join(os.Stdout.Close(), os.Stdin.Close()) }
