//go:build linux && (mips || mipsle)

package node

import (
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/iperf3"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/latency"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/stream"
)

// Engines returns the load generators, the default first. There are only two, to keep the program for small
// routers small.
func Engines() []traffic.Engine { return []traffic.Engine{stream.Native{}, iperf3.Engine{}} }

// Probers returns the latency probes, the default first.
func Probers() []traffic.Prober { return []traffic.Prober{latency.Echo{}, latency.ICMP{}} }
