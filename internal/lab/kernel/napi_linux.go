package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// NAPIThreaded reports whether a device's packets are received by kernel threads of their own instead of in
// softirqs. It needs the /sys of the namespace, and Linux 5.12.
func NAPIThreaded(dev string) (bool, error) {
	dir, err := deviceDir(dev)
	var b []byte
	if err == nil {
		b, err = os.ReadFile(filepath.Join(dir, "threaded"))
	}
	return strings.TrimSpace(string(b)) == "1", explain(napiError(err), "read threaded NAPI of %s", dev)
}

// SetNAPIThreaded sets what NAPIThreaded reads. A device that receives without NAPI is ErrUnsupported; so
// is a veth while its rx-gro is off.
func SetNAPIThreaded(dev string, on bool) error {
	dir, err := deviceDir(dev)
	if err == nil {
		text := map[bool]string{false: "0", true: "1"}[on]
		err = os.WriteFile(filepath.Join(dir, "threaded"), []byte(text), 0o600)
	}
	return explain(napiError(err), "set threaded NAPI of %s", dev)
}

func napiError(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: no threaded NAPI", ErrUnsupported)
	}
	return bare(err)
}
