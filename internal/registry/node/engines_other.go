//go:build !linux

package node

import (
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/latency"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/stream"
)

// Engines returns the load generators that do not need Linux.
func Engines() []traffic.Engine { return []traffic.Engine{stream.Native{}} }

// Probers returns the latency probes that do not need Linux.
func Probers() []traffic.Prober { return []traffic.Prober{latency.Echo{}} }
