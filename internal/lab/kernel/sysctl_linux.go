package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// ReadSysctl reads a kernel setting; white space between the values of one setting becomes single spaces.
func ReadSysctl(name string) (string, error) {
	path, err := SysctlPath(name)
	if err != nil {
		return "", err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", sysctlError("read", name, err)
	}
	return strings.Join(strings.Fields(string(b)), " "), nil
}

// WriteSysctl writes a kernel setting. It does not read it back.
func WriteSysctl(name, value string) error {
	return onSysctl(name, func(f *os.File) error {
		_, err := f.WriteString(value)
		return err
	})
}

// SysctlWritable reports whether a kernel setting exists and may be written by this process: some belong to
// the whole machine and are read-only in a namespace.
func SysctlWritable(name string) error { return onSysctl(name, func(*os.File) error { return nil }) }

func onSysctl(name string, do func(*os.File) error) error {
	path, err := SysctlPath(name)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		err = errors.Join(do(f), f.Close())
	}
	return sysctlError("write", name, err)
}

func sysctlError(verb, name string, err error) error {
	var at *fs.PathError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s kernel setting %s: %w here", verb, name, ErrAbsent)
	case errors.As(err, &at):
		err = at.Err // the path says the name again
	}
	return fmt.Errorf("%s kernel setting %s: %w", verb, name, err)
}
