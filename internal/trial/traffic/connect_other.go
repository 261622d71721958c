//go:build !linux

package traffic

import "syscall"

// tune leaves a socket at the system's defaults.
func tune(Request, string) func(network, address string, c syscall.RawConn) error { return nil }
