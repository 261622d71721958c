//go:build !linux

package node

import (
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/latency"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/stream"
)

// Engines are the load generators whose ends need no Linux.
func Engines() []traffic.Engine { return []traffic.Engine{stream.Native{}} }

// Probers are the latency probes without a kernel's help.
func Probers() []traffic.Prober { return []traffic.Prober{latency.Echo{}} }

// needLinux are the activities that an end elsewhere has not.
func needLinux() []string {
	return []string{"iperf3", "responsiveness", "xdp", "flows", "requests", "icmp"}
}
