//go:build !linux && !freebsd

package traffic

import "errors"

// fixedCongestion is the congestion control of macOS since 10.10. Sockets cannot select another one.
const fixedCongestion = "cubic"

// SetCongestion returns the congestion control of a stream, or an error if it is not the requested one. An
// empty name accepts any congestion control.
func SetCongestion(_ int, want string) (string, error) { return TryCongestion(want) }

// TryCongestion is like SetCongestion, but needs no socket.
func TryCongestion(name string) (string, error) {
	if name != "" && name != fixedCongestion {
		return "", errors.New("a socket cannot choose it there, its streams use " + fixedCongestion)
	}
	return name, nil
}
