//go:build !linux

package host

func resetLimits() {}
