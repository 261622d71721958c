package main

import "golang.org/x/sys/unix"

func openUnnamed(dir string) (int, error) {
	return unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
}
