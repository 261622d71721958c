//go:build !linux

package node

import "github.com/chokepoint-lab/chokepoint/internal/trial/traffic"

// Engines are none: the ends of a load need Linux.
func Engines() []traffic.Engine { return nil }

// Probers are none, for the same reason.
func Probers() []traffic.Prober { return nil }
