//go:build !linux

package node

import (
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/latency"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/stream"
)

// Engines returns the load generators whose ends do not need Linux.
func Engines() []traffic.Engine { return []traffic.Engine{stream.Native{}} }

// Probers returns the latency probes without a kernel's help.
func Probers() []traffic.Prober { return []traffic.Prober{latency.Echo{}} }

// needLinux lists the activities that are unavailable on an end that is not Linux.
func needLinux() []string {
	return []string{"iperf3", "responsiveness", "xdp", "flows", "requests", "icmp"}
}
