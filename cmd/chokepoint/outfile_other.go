//go:build !linux

package main

import "golang.org/x/sys/unix"

// openUnnamed: only Linux has files without a name.
func openUnnamed(string) (int, error) { return -1, unix.EOPNOTSUPP }
