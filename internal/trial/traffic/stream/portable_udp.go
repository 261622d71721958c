package stream

import (
	"context"
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

func connectPortableUDP(context.Context, *traffic.Half, func(port int) error) error {
	return fmt.Errorf("udp: %w", host.ErrUnsupported)
}
