//go:build !linux

package traffic

import "syscall"

// tune returns nil, so that sockets have the system's defaults.
func tune(Request, string) func(network, address string, c syscall.RawConn) error { return nil }
