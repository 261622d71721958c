package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// ReadSysctl returns the value of a kernel setting. White space within the value is replaced by single
// spaces.
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

// WriteSysctl writes a kernel setting without reading it back.
func WriteSysctl(name, value string) error {
	return onSysctl(name, func(f *os.File) error {
		_, err := f.WriteString(value)
		return err
	})
}

// SysctlWritable returns an error if this process cannot write a kernel setting. In a namespace, settings of
// the whole machine are read-only.
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
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s kernel setting %s: %w here", verb, name, ErrAbsent)
	}
	return fmt.Errorf("%s kernel setting %s: %w", verb, name, bare(err))
}

// Reassembly returns the share of the memory for IP fragments that incomplete packets use. It returns the
// larger of the shares for IPv4 and IPv6, or 0 if the kernel does not report the share. If the share exceeds
// 1, the kernel accepts no new fragmented packet until others are complete or have timed out. The timeout is
// 30 s for IPv4 and 60 s for IPv6 (net/ipv4/inet_fragment.c, inet_frag_create).
func Reassembly() (used float64) {
	for file, limit := range map[string]string{"sockstat": "net.ipv4.ipfrag_high_thresh",
		"sockstat6": "net.ipv6.ip6frag_high_thresh"} {
		text, _ := os.ReadFile("/proc/thread-self/net/" + file)
		most, _ := ReadSysctl(limit)
		_, held, _ := strings.Cut(string(text), "FRAG") // the line has the form "FRAG: inuse 0 memory 0"
		_, held, _ = strings.Cut(held, "memory ")
		if h, err := strconv.ParseFloat(strings.TrimSpace(held), 64); err == nil {
			if m, err := strconv.ParseFloat(most, 64); err == nil && m > 0 {
				used = max(used, h/m)
			}
		}
	}
	return used
}
