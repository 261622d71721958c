// Package stream contains the built-in load generator for long TCP and UDP flows.
package stream

import (
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Native is the built-in load generator: TCP and UDP with exact counts. On Linux, the node side uses
// features of the kernel. On other systems, ServePortable is the node side.
type Native struct{ traffic.Plain[Native] }

// Name returns "native".
func (Native) Name() string { return "native" }

// CheckLoad has no requirements beyond those of traffic.CheckLoad.
func (Native) CheckLoad(load record.Load) check.Answer { return traffic.CheckLoad(load) }
