package kernel

import (
	"fmt"
	"strings"
)

// SysctlPath is the file of a kernel setting below /proc/sys. A name is written with dots, as sysctl(8)
// does; where a part of it contains a dot itself, such as the device in net/ipv4/conf/eth0.5/forwarding,
// with slashes.
func SysctlPath(name string) (string, error) {
	path := name
	if !strings.Contains(name, "/") {
		path = strings.ReplaceAll(name, ".", "/")
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || part == "." || part == ".." || strings.ContainsFunc(part, odd) {
			return "", fmt.Errorf("kernel setting %q: want a name such as net.ipv4.ip_forward", name)
		}
	}
	return "/proc/sys/" + path, nil
}

func odd(r rune) bool { return r <= ' ' || r > '~' || r == '=' }
