//go:build !linux && !freebsd

package traffic

import "errors"

// fixedCongestion is in use on macOS since 10.10; one socket cannot choose.
const fixedCongestion = "cubic"

// SetCongestion returns the congestion control of a stream if it is the wanted one; an empty name is any.
func SetCongestion(_ int, want string) (string, error) { return TryCongestion(want) }

// TryCongestion is SetCongestion of a socket that goes nowhere.
func TryCongestion(name string) (string, error) {
	if name != "" && name != fixedCongestion {
		return "", errors.New("a socket cannot choose it there, its streams use " + fixedCongestion)
	}
	return name, nil
}
