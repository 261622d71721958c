package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"
)

// inOrder runs steps until one fails, and returns its error.
func inOrder(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// explain adds the operation to an error. It also wraps ErrUnsupported if the error means that a kernel
// feature is missing.
func explain(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}

	what := fmt.Sprintf(format, args...)
	if !isOneOf(err, ErrUnsupported, ErrAbsent) && isOneOf(err, syscall.EOPNOTSUPP, syscall.EPROTONOSUPPORT,
		syscall.EAFNOSUPPORT, syscall.ENOSYS) {
		return fmt.Errorf("%s: %w (%w)", what, ErrUnsupported, err)
	}

	return fmt.Errorf("%s: %w", what, err)
}

// lacks returns an error that wraps ErrUnsupported and states a reason.
func lacks(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrUnsupported}, args...)...)
}

// explained is like explain, but for use in a defer statement.
func explained(err *error, format string, args ...any) { *err = explain(*err, format, args...) }

// bare removes the path from an fs.PathError, for use in errors that already contain the device.
func bare(err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err
	}
	return err
}

// isOneOf reports whether err wraps one of the given errors.
func isOneOf(err error, these ...error) bool {
	return slices.ContainsFunc(these, func(e error) bool { return errors.Is(err, e) })
}

// ignore returns nil if err wraps one of the harmless errors.
func ignore(err error, harmless ...error) error {
	if isOneOf(err, harmless...) {
		return nil
	}
	return err
}
