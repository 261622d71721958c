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
	path, err := napiFile(dev)
	if err != nil {
		return false, explain(err, "read threaded NAPI of %s", dev)
	}
	b, err := os.ReadFile(path)
	return strings.TrimSpace(string(b)) == "1", explain(napiError(err), "read threaded NAPI of %s", dev)
}

// SetNAPIThreaded sets what NAPIThreaded reads. A device that receives without NAPI is ErrUnsupported; so
// is a veth while its rx-gro is off.
func SetNAPIThreaded(dev string, on bool) error {
	path, err := napiFile(dev)
	if err == nil {
		text := map[bool]string{false: "0", true: "1"}[on]
		err = napiError(os.WriteFile(path, []byte(text), 0o600))
	}
	return explain(err, "set threaded NAPI of %s", dev)
}

func napiFile(dev string) (string, error) {
	if strings.ContainsAny(dev, "/") || dev == "" || dev == ".." {
		return "", fmt.Errorf("device name %q", dev)
	}
	dir := filepath.Join("/sys/class/net", dev)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("device %s %w in /sys", dev, ErrAbsent)
	}
	return filepath.Join(dir, "threaded"), nil
}

func napiError(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: no threaded NAPI", ErrUnsupported)
	}
	return bare(err)
}
