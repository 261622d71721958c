package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// instance is a tracing instance (Documentation/trace/ftrace.rst): settings that go with its directory,
// whatever else is traced on the machine.
type instance struct{ dir string }

const instanceName = "chokepoint."

// newInstance makes one that is named after this process, and removes those of processes that were killed.
func newInstance(tracing string) (*instance, error) {
	all := filepath.Join(tracing, "instances")
	for _, left := range matches(filepath.Join(all, instanceName+"*")) {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(left), instanceName), ".")
		if _, err := os.Stat("/proc/" + pid); errors.Is(err, fs.ErrNotExist) {
			os.Remove(left)
		}
	}
	dir, err := os.MkdirTemp(all, instanceName+strconv.Itoa(os.Getpid())+".*")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, absent("make tracing instance: %v", err)
	}
	if err != nil {
		return nil, fmt.Errorf("make tracing instance: %w", err)
	}
	i := &instance{dir}
	// Nothing is recorded in its buffer, which need not take room.
	if err := i.write("buffer_size_kb", "4"); err != nil {
		return nil, errors.Join(err, i.Close())
	}
	return i, nil
}

// write sets a file of the instance.
func (i *instance) write(name, text string) error {
	f, err := os.OpenFile(filepath.Join(i.dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// Close removes the instance with everything that is set in it.
func (i *instance) Close() error {
	if err := os.Remove(i.dir); err != nil {
		return fmt.Errorf("remove tracing instance: %w", err)
	}
	return nil
}
