//go:build !linux && !freebsd

package traffic

import "errors"

// fixedCongestion is used by macOS since 10.10; a single socket cannot choose.
const fixedCongestion = "cubic"

// SetCongestion returns the congestion control of a stream if it is the wanted one; an empty name accepts
// any.
func SetCongestion(_ int, want string) (string, error) { return TryCongestion(want) }

// TryCongestion is SetCongestion for an unconnected socket.
func TryCongestion(name string) (string, error) {
	if name != "" && name != fixedCongestion {
		return "", errors.New("a socket cannot choose it there, its streams use " + fixedCongestion)
	}
	return name, nil
}
