package rig

import (
	"errors"
	"fmt"
	"math"
	"os"
	"syscall"
	"time"
)

// Locked takes a lock shared with other measurements on this machine; without a file there is none.
func Locked(file string) (unlock func(), err error) {
	if file == "" {
		return func() {}, nil
	}

	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}

	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", file, err), f.Close())
	}

	return func() {
		_ = f.Close()           // which unlocks it
		time.Sleep(time.Second) // flock is not fair: let waiting processes get it
	}, nil
}

// Wilson returns the 95 % interval of a share (Wilson 1927).
func Wilson(right, of int) (low, high float64) {
	const z = 1.959964
	n := float64(of)
	p := float64(right) / n
	middle := p + z*z/2/n
	half := z * math.Sqrt(p*(1-p)/n+z*z/4/n/n)
	return max(0, (middle-half)/(1+z*z/n)), min(1, (middle+half)/(1+z*z/n))
}
