//go:build !linux

package isp

import (
	"context"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
)

func serve(context.Context, host.Session, knob.Access) error { return host.ErrUnsupported }
func join(context.Context, host.Session, knob.Access) error  { return host.ErrUnsupported }
