//go:build !linux

package probe

func allowedCores() ([]int, error) { return nil, absent("a thread cannot choose its core here") }

func onCore(int, func()) error { return absent("a thread cannot choose its core here") }
