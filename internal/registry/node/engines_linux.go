//go:build !mips && !mipsle

package node

import (
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/frames"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/iperf3"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/latency"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/responsiveness"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/shortflow"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/stream"
)

// Engines returns the load generators, the default first.
func Engines() []traffic.Engine {
	return []traffic.Engine{stream.Native{}, iperf3.Engine{}, responsiveness.Engine{},
		frames.XDP{Fallback: stream.Native{}}, shortflow.Flows{}, shortflow.Requests{}}
}

// Probers returns the latency probes, the default first.
func Probers() []traffic.Prober { return []traffic.Prober{latency.Echo{}, latency.ICMP{}} }
