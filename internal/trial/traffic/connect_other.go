//go:build !linux

package traffic

import "syscall"

// tune leaves the socket with the system's defaults.
func tune(Request, string) func(network, address string, c syscall.RawConn) error { return nil }
