//go:build !linux

package ciphers

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// kernelWorker returns an error, because only Linux has AF_ALG.
func kernelWorker(Request) (worker, error) {
	return worker{}, fmt.Errorf("%w: this kernel has no AF_ALG", host.ErrUnsupported)
}
