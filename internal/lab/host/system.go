package host

import "runtime"

// System is the name of the operating system as people know it.
func System() string {
	switch runtime.GOOS {
	case "darwin":
		return "macOS"
	case "freebsd":
		return "FreeBSD"
	case "linux":
		return "Linux"
	}
	return runtime.GOOS
}
