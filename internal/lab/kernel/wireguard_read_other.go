//go:build !linux

package kernel

// WireGuardReader exists on Linux only.
type WireGuardReader struct{}

func OpenWireGuard() (*WireGuardReader, error)                   { return nil, ErrUnsupported }
func (*WireGuardReader) Close() error                            { return nil }
func (*WireGuardReader) Peers([]string) ([]WireGuardPeer, error) { return nil, ErrUnsupported }
