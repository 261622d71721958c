//go:build !linux

package isp

import (
	"context"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

func serve(context.Context, host.Session) error { return host.ErrUnsupported }
func join(context.Context, host.Session) error  { return host.ErrUnsupported }
