//go:build !linux

package tunnel

import (
	"os"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

func openName(string) (*os.File, error) { return nil, kernel.ErrUnsupported }
