package kernel

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Quota is how much of one core each vCPU of a lab's guests may use, in hundredths of a percent; 0 is
// without a limit.
type Quota uint32

// Bounds of the kernel's bandwidth control (sched(7)): a quota of less than a millisecond is refused. A
// period of ten keeps the pauses short that a guest makes when its time is used up.
const (
	quotaLeast  = 1_000  // µs
	quotaPeriod = 10_000 // µs
)

// times are the quota and its period, in µs.
func (q Quota) times() (quota, period uint64) {
	quota = uint64(q) * quotaPeriod / 1e4
	if quota >= quotaLeast {
		return quota, quotaPeriod
	}
	return quotaLeast, uint64(math.Round(quotaLeast * 1e4 / float64(q)))
}

// quotaOf is the quota that times stand for.
func quotaOf(quota, period uint64) Quota {
	if period == 0 {
		return 0
	}
	return Quota(math.Round(float64(quota) * 1e4 / float64(period)))
}

// parseMax reads cpu.max: a quota or "max", and the period.
func parseMax(text string) (Quota, error) {
	f := strings.Fields(text)
	if len(f) == 2 && f[0] == "max" {
		return 0, nil
	}
	if len(f) != 2 {
		return 0, fmt.Errorf("parse cpu.max %q: want a quota and a period", text)
	}
	quota, err1 := strconv.ParseUint(f[0], 10, 63)
	period, err2 := strconv.ParseUint(f[1], 10, 63)
	if err1 != nil || err2 != nil || period == 0 || quota > period*64 {
		return 0, fmt.Errorf("parse cpu.max %q: want a quota and a period", text)
	}
	return quotaOf(quota, period), nil
}

// vcpuOf is the number of the vCPU whose thread has this name. QEMU calls them "CPU 0/TCG" and "CPU 0/KVM",
// or "ALL CPUs/TCG" where one thread does the work of all.
func vcpuOf(comm string) (int, bool) {
	if strings.HasPrefix(comm, "ALL CPUs/") {
		return 0, true
	}
	rest, ok := strings.CutPrefix(comm, "CPU ")
	number, _, named := strings.Cut(rest, "/")
	n, err := strconv.ParseUint(number, 10, 16)
	return int(n), ok && named && err == nil
}

// runsGuestOf names the guest that a QEMU with this command line (words that end in NUL) runs, if it is one
// of the lab whose files lie in dir.
func runsGuestOf(line, dir string) (guest string, ok bool) {
	words := strings.Split(line, "\x00")
	for i, w := range words {
		if i > 0 && words[i-1] == "-name" {
			guest, _, _ = strings.Cut(w, ",")
		}
		// QEMU doubles a comma in a value.
		ok = ok || strings.Contains(w, "path="+strings.ReplaceAll(dir, ",", ",,")+"/")
	}
	return guest, ok && guest != "" && !strings.ContainsAny(guest, "/ ") && guest[0] != '.'
}

// cgroupPath finds in the text of /proc/PID/cgroup where the process is in the hierarchy that has a
// controller; "" names the unified one.
func cgroupPath(text, controller string) (string, error) {
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 {
			continue
		}
		for name := range strings.SplitSeq(f[1], ",") {
			if name == controller && (controller != "" || f[0] == "0") {
				return f[2], nil
			}
		}
	}
	return "", fmt.Errorf("%w: the process is in no cgroup of %q", ErrUnsupported, controller)
}

// cgroupMount is where a hierarchy is mounted: root is the cgroup that point shows.
type cgroupMount struct {
	unified     bool
	root, point string
}

// cpuMount finds in the text of /proc/self/mountinfo the hierarchy that has the controller cpu: one of
// version 1, or else the unified one.
func cpuMount(mountinfo string) (cgroupMount, error) {
	var found cgroupMount
	for line := range strings.Lines(mountinfo) {
		head, tail, ok := strings.Cut(line, " - ")
		f, g := strings.Fields(head), strings.Fields(tail)
		if !ok || len(f) < 5 || len(g) < 3 {
			continue
		}
		switch g[0] {
		case "cgroup":
			for option := range strings.SplitSeq(g[2], ",") {
				if option == "cpu" {
					return cgroupMount{false, f[3], f[4]}, nil
				}
			}
		case "cgroup2":
			found = cgroupMount{true, f[3], f[4]}
		}
	}
	if found.point == "" {
		return found, fmt.Errorf("%w: no cgroup is mounted that limits CPUs", ErrUnsupported)
	}
	return found, nil
}

// at is the directory of a cgroup.
func (m cgroupMount) at(path string) (string, error) {
	rel, ok := strings.CutPrefix(path, strings.TrimSuffix(m.root, "/"))
	if !ok || strings.HasPrefix(path, "/..") || rel != "" && rel[0] != '/' {
		return "", fmt.Errorf("%w: cgroup %s is outside of what is mounted", ErrUnsupported, path)
	}
	return m.point + rel, nil
}
