package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Attribute reads a setting of a device in /sys, such as "threaded". It needs the /sys of the namespace.
// One that this kernel lacks is ErrUnsupported.
func Attribute(dev, name string) (string, error) {
	dir, err := deviceDir(dev)
	var b []byte
	if err == nil {
		b, err = os.ReadFile(filepath.Join(dir, name))
	}
	return strings.TrimSpace(string(b)), explain(lacking(err, name), "read %s of %s", name, dev)
}

// SetAttribute sets what Attribute reads.
func SetAttribute(dev, name, value string) error {
	dir, err := deviceDir(dev)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name), []byte(value), 0o600)
	}
	return explain(lacking(err, name), "set %s of %s", name, dev)
}

func lacking(err error, name string) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: no %s", ErrUnsupported, name)
	}
	return bare(err)
}
