//go:build linux && (mips || mipsle)

package node

import (
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/iperf3"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/latency"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/stream"
)

// Engines are the load generators of a small router: its program, not a tester's, is kept small without the
// others.
func Engines() []traffic.Engine { return []traffic.Engine{stream.Native{}, iperf3.Engine{}} }

// Probers are the latency probes.
func Probers() []traffic.Prober { return []traffic.Prober{latency.Echo{}, latency.ICMP{}} }

func needLinux() []string { return nil }
