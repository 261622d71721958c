package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// vcpu is a thread of QEMU that runs a vCPU of a guest.
type vcpu struct {
	guest    string
	number   int
	pid, tid int
}

// vcpus returns the vCPUs of a lab's guests. dir is the directory that contains the lab's files.
func vcpus(dir string) ([]vcpu, error) {
	guests, err := Guests(dir)
	if err != nil {
		return nil, err
	}

	var out []vcpu
	for pid, guest := range guests {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", pid))
		for _, t := range threads {
			comm, _ := os.ReadFile(t)
			if n, ok := vcpuOf(strings.TrimSpace(string(comm))); ok {
				tid, _ := strconv.Atoi(filepath.Base(filepath.Dir(t)))
				out = append(out, vcpu{guest, n, pid, tid})
			}
		}
	}

	slices.SortFunc(out, func(a, b vcpu) int { return cmp.Or(a.pid-b.pid, a.tid-b.tid) })
	return out, nil
}

// GuestCPUTime returns the CPU time that the busiest vCPU of a lab's guests has used so far.
func GuestCPUTime(dir string) (time.Duration, error) {
	list, err := vcpus(dir)
	var most time.Duration
	for _, p := range list {
		text, failed := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/schedstat", p.pid, p.tid))
		ns, _, _ := strings.Cut(string(text), " ")
		used, failed2 := strconv.ParseInt(ns, 10, 64)
		if err = errors.Join(err, failed, failed2); err == nil {
			most = max(most, time.Duration(used))
		}
	}

	return most, explain(err, "read CPU time of the guests")
}

// Guests returns the PIDs of a lab's QEMU processes and the names of their guests. It recognises a process by
// an open file below dir, such as the guest's console, because the command line does not always name such a
// file.
func Guests(dir string) (map[int]string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}

	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}

	out := map[int]string{}
	names, _ := filepath.Glob("/proc/[1-9]*/comm") // cannot fail, because the pattern is valid
	for _, name := range names {
		comm, err := os.ReadFile(name)
		if err != nil || !strings.HasPrefix(string(comm), "qemu") {
			continue
		}

		process := filepath.Dir(name)
		line, _ := os.ReadFile(filepath.Join(process, "cmdline"))
		guest, named := guestOf(string(line))
		open, _ := filepath.Glob(filepath.Join(process, "fd", "*"))
		if named && slices.ContainsFunc(open, func(fd string) bool {
			file, _ := os.Readlink(fd)
			return strings.HasPrefix(file, strings.TrimSuffix(dir, "/")+"/")
		}) {
			pid, _ := strconv.Atoi(filepath.Base(process))
			out[pid] = guest
		}
	}

	return out, nil
}

// someVCPUs returns the vCPUs of a lab and the cgroup hierarchy that can limit them. It returns
// ErrUnsupported if there are no vCPUs.
func someVCPUs(dir string) (h hierarchy, list []vcpu, err error) {
	if h, err = openHierarchy(dir); err == nil {
		list, err = vcpus(dir)
	}

	if err == nil && len(list) == 0 {
		err = lacks("the lab has no virtual machine")
	}
	return h, list, err
}

// hierarchy is a mounted cgroup hierarchy that limits CPU time.
type hierarchy struct {
	cgroupMount
	lab string // name prefix of our cgroups for the lab
}

func openHierarchy(dir string) (hierarchy, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return hierarchy{}, err
	}

	m, err := cpuMount(string(text))
	return hierarchy{m, "chokepoint-" + filepath.Base(dir) + "."}, err
}

// of returns the directory of the cgroup that contains thread tid of process pid.
func (h hierarchy) of(pid, tid int) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/cgroup", pid, tid))
	if err != nil {
		return "", err
	}

	controller := "cpu"
	if h.unified {
		controller = ""
	}

	path, err := cgroupPath(string(text), controller)
	if err != nil {
		return "", err
	}

	return h.at(path)
}

// ours reports whether the cgroup in dir was created by SetCPUQuota for this lab. SetCPUQuota creates a
// cgroup for each guest, and below it a cgroup for each vCPU.
func (h hierarchy) ours(dir string) bool {
	return strings.HasPrefix(filepath.Base(filepath.Dir(dir)), h.lab)
}

// CPUQuota returns the quota of the vCPUs of a lab's guests. dir is the directory that contains the lab's
// files. CPUQuota returns 0 if there are no guests or no cgroup can limit them.
func CPUQuota(dir string) (_ Quota, err error) {
	defer func() {
		if errors.Is(err, ErrUnsupported) {
			err = nil
		}

		err = explain(err, "read CPU quota of the guests")
	}()
	h, list, err := someVCPUs(dir)
	if err != nil {
		return 0, err
	}

	var all []Quota
	for _, p := range list {
		q, err := h.quota(p)
		if err != nil {
			return 0, fmt.Errorf("vCPU %d of %s: %w", p.number, p.guest, err)
		}

		all = append(all, q)
	}

	if all = slices.Compact(all); len(all) > 1 {
		return 0, fmt.Errorf("they differ: %v hundredths of a percent", all)
	}

	return all[0], nil
}

func (h hierarchy) quota(p vcpu) (Quota, error) {
	dir, err := h.of(p.pid, p.tid)
	if err != nil || !h.ours(dir) {
		return 0, err
	}

	files := []string{filepath.Join(dir, "cpu.cfs_quota_us"), filepath.Join(dir, "cpu.cfs_period_us")}
	if h.unified {
		files = []string{filepath.Join(dir, "cpu.max")}
	}

	words, err := readEach(files, nil)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", files[0], err)
	}

	return parseMax(strings.Join(words, " "))
}

// ThrottleFile returns the cpu.stat file of a thread's cgroup, or "" if there is none. The file reports how
// long the quota has throttled the thread, as "throttled_time" in ns or "throttled_usec" in µs.
func ThrottleFile(pid, tid int) string {
	dir := ""
	h, err := openHierarchy("")
	if err == nil {
		dir, err = h.of(pid, tid)
	}

	if err != nil {
		return ""
	}

	return filepath.Join(dir, "cpu.stat")
}

// SetCPUQuota moves each vCPU of a lab's guests to a separate cgroup with a quota. If q is 0, it moves the
// vCPUs back to the cgroup in which QEMU was started, and removes our cgroups, including those of guests that
// have ended.
func SetCPUQuota(dir string, q Quota) error {
	h, err := openHierarchy(dir)
	if errors.Is(err, ErrUnsupported) && q == 0 {
		return nil
	}

	if err == nil {
		err = h.release(dir)
	}

	if err == nil && q > 0 {
		if err = h.limit(dir, q); err != nil {
			err = errors.Join(err, h.release(dir))
		}
	}

	return explain(err, "set CPU quota of the guests")
}

// ProbeCPUQuota tests whether a cgroup with a quota can be created. It removes the cgroup again.
func ProbeCPUQuota(dir string) error {
	h, list, err := someVCPUs(dir)
	if err != nil {
		return explain(err, "limit vCPUs")
	}

	above, began, err := h.above(list[0])
	if began {
		defer h.stop(above)
	}

	probe := filepath.Join(above, fmt.Sprintf("chokepoint-probe-%d", os.Getpid()))
	if err == nil {
		err = os.Mkdir(probe, 0o755)
	}

	if err == nil {
		file := "cpu.cfs_quota_us"
		if h.unified {
			file = "cpu.max"
		}

		if _, err = os.Stat(filepath.Join(probe, file)); errors.Is(err, fs.ErrNotExist) {
			err = lacks("its scheduler has no bandwidth control")
		}

		err = errors.Join(err, os.Remove(probe))
	}

	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
		err = lacks("no cgroup is writable: %w", bare(err))
	}

	return explain(err, "limit vCPUs")
}

// above returns the cgroup in which to create a guest's cgroup. In cgroup version 1, this is the cgroup in
// which QEMU was started. In version 2, it is the nearest ancestor that delegates the cpu controller, because
// a cgroup that contains processes cannot delegate controllers. If no ancestor delegates it, above returns
// the root, which can always delegate. In this case, above enables the controller there, and began is true.
func (h hierarchy) above(p vcpu) (dir string, began bool, err error) {
	dir, err = h.of(p.pid, p.pid)
	if err != nil || !h.unified {
		return dir, false, err
	}

	for {
		text, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
		if err != nil {
			return "", false, err
		}

		if slices.Contains(strings.Fields(string(text)), "cpu") {
			return dir, false, nil
		}

		if dir == h.point {
			break
		}

		dir = filepath.Dir(dir)
	}

	if err := put(dir, "cgroup.subtree_control", "+cpu"); err != nil {
		return "", false, lacks("no cgroup here may limit vCPUs: %w", bare(err))
	}

	return dir, true, nil
}

// begun is the suffix of the name of a guest's cgroup if SetCPUQuota has enabled the controller in the
// parent. When such a cgroup is removed, the controller is disabled again.
const begun = ".first"

// stop disables the cpu controller for the children of a cgroup. It fails while other processes use the
// controller there.
func (h hierarchy) stop(dir string) { put(dir, "cgroup.subtree_control", "-cpu") }

func put(dir, file, text string) error {
	return os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644)
}

func (h hierarchy) limit(dir string, q Quota) error {
	_, list, err := someVCPUs(dir)
	if err != nil {
		return err
	}

	groups := map[int]string{} // cgroup by PID of QEMU, looked up before the process is moved
	for _, p := range list {
		if groups[p.pid] != "" {
			continue
		}

		above, began, err := h.above(p)
		if err != nil {
			return err
		}

		groups[p.pid] = filepath.Join(above, h.lab+p.guest)
		if began {
			groups[p.pid] += begun
		}
	}

	for _, p := range list {
		if err := h.limitOne(p, groups[p.pid], q); err != nil {
			return fmt.Errorf("vCPU %d of %s: %w", p.number, p.guest, err)
		}
	}

	return nil
}

// limitOne moves a vCPU to a separate cgroup. In cgroup version 1, a thread can be moved like a process. In
// version 2, the whole QEMU process is moved to the guest's cgroup, whose children are threaded.
func (h hierarchy) limitOne(p vcpu, guest string, q Quota) error {
	own := filepath.Join(guest, fmt.Sprintf("vcpu%d", p.number))
	if err := os.MkdirAll(own, 0o755); err != nil {
		return err
	}

	type write struct{ dir, file, text string }
	quota, period := q.times()
	tid := strconv.Itoa(p.tid)
	writes := []write{{own, "cpu.cfs_period_us", strconv.FormatUint(period, 10)},
		{own, "cpu.cfs_quota_us", strconv.FormatUint(quota, 10)}, {own, "tasks", tid}}
	if h.unified {
		writes = []write{{own, "cgroup.type", "threaded"}, {guest, "cgroup.subtree_control", "+cpu"},
			{own, "cpu.max", fmt.Sprintf("%d %d", quota, period)}}
		now, err := h.of(p.pid, p.pid)
		if err != nil {
			return err
		}

		if now != guest {
			writes = append(writes, write{guest, "cgroup.procs", strconv.Itoa(p.pid)})
		}

		writes = append(writes, write{own, "cgroup.threads", tid})
	}

	for _, w := range writes {
		if err := put(w.dir, w.file, w.text); err != nil {
			return err
		}
	}

	return nil
}

// release moves guests out of our cgroups and removes the cgroups.
func (h hierarchy) release(dir string) error {
	list, err := vcpus(dir)
	if err != nil {
		return err
	}

	for _, p := range list {
		now, err := h.of(p.pid, p.tid)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // because the process has exited
		}

		if err != nil {
			return err
		}

		if !h.ours(now) {
			continue
		}

		if err := h.putBack(p, now); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}

	var left error
	err = filepath.WalkDir(h.point, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil // because the cgroup has disappeared meanwhile
		}

		if strings.HasPrefix(d.Name(), h.lab) {
			left = errors.Join(left, removeGroup(path))
			if strings.HasSuffix(path, begun) {
				h.stop(filepath.Dir(path))
			}
			return fs.SkipDir
		}
		return nil
	})
	return errors.Join(err, left)
}

// putBack moves a vCPU (in cgroup version 2, the whole QEMU process) back to the cgroup in which QEMU was
// started. In version 2, that is the cgroup of QEMU's parent process.
func (h hierarchy) putBack(p vcpu, now string) error {
	if !h.unified {
		return put(filepath.Dir(filepath.Dir(now)), "tasks", strconv.Itoa(p.tid))
	}

	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if err != nil {
		return unix.ESRCH
	}

	_, rest, _ := strings.Cut(string(text), ") ")
	var state string
	var parent int
	if _, err := fmt.Sscan(rest, &state, &parent); err != nil {
		return fmt.Errorf("read parent of process %d: %q", p.pid, text)
	}

	was, err := h.of(parent, parent)
	if err != nil {
		return err
	}

	return put(was, "cgroup.procs", strconv.Itoa(p.pid))
}

// groupTime bounds the wait for a killed thread to leave its cgroup.
const groupTime = 3 * time.Second

// removeGroup removes a cgroup and its children after they have become empty.
func removeGroup(dir string) error {
	below, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err != nil {
		return err
	}

	for _, d := range below {
		if d.IsDir() {
			if err := removeGroup(filepath.Join(dir, d.Name())); err != nil {
				return err
			}
		}
	}

	for deadline := time.Now().Add(groupTime); ; time.Sleep(5 * time.Millisecond) {
		err := os.Remove(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}

		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return fmt.Errorf("remove cgroup: %w", err)
		}
	}
}

// These are limits of the kernel's CPU bandwidth control (sched(7)). The kernel rejects quotas below 1 ms.
// The period is only 10 ms, so that the pauses are short when a guest has used up its quota.
const (
	minQuota    = 1_000  // in µs
	quotaPeriod = 10_000 // in µs
)

// times returns the quota and its period in µs.
func (q Quota) times() (quota, period uint64) {
	quota = uint64(q) * quotaPeriod / 1e4
	if quota >= minQuota {
		return quota, quotaPeriod
	}
	return minQuota, uint64(math.Round(minQuota * 1e4 / float64(q)))
}

// quotaOf returns the Quota that corresponds to a quota and a period in µs.
func quotaOf(quota, period uint64) Quota {
	if period == 0 {
		return 0
	}
	return Quota(math.Round(float64(quota) * 1e4 / float64(period)))
}

// parseMax parses cpu.max, which contains a quota or "max" and then the period, both in µs. In cgroup version
// 1, whose files contain the same two values, the quota is -1 instead of "max".
func parseMax(text string) (Quota, error) {
	first, second, _ := strings.Cut(strings.TrimSpace(text), " ")
	period, err1 := strconv.ParseUint(second, 10, 63)
	if (first == "max" || first == "-1") && err1 == nil {
		return 0, nil
	}

	quota, err2 := strconv.ParseUint(first, 10, 63)
	if err1 != nil || err2 != nil || period == 0 || quota > period*64 {
		return 0, fmt.Errorf("parse cpu.max %q: want a quota and a period", text)
	}

	return quotaOf(quota, period), nil
}

// vcpuOf returns the number of a vCPU, given the name of its QEMU thread: "CPU 0/TCG" or "CPU 0/KVM", or "ALL
// CPUs/TCG" if one thread runs all vCPUs.
func vcpuOf(comm string) (int, bool) {
	if strings.HasPrefix(comm, "ALL CPUs/") {
		return 0, true
	}

	rest, ok := strings.CutPrefix(comm, "CPU ")
	number, _, named := strings.Cut(rest, "/")
	n, err := strconv.ParseUint(number, 10, 16)
	return int(n), ok && named && err == nil
}

// guestOf returns the name of a guest, given the command line of its QEMU. Each word of the command line ends
// in NUL.
func guestOf(line string) (guest string, ok bool) {
	words := strings.Split(line, "\x00")
	i := slices.Index(words, "-name")
	if i >= 0 && i+1 < len(words) {
		guest, _, _ = strings.Cut(words[i+1], ",")
	}

	return guest, guest != "" && !strings.ContainsAny(guest, "/ ") && guest[0] != '.'
}

// cgroupPath returns the cgroup for the hierarchy of a controller, given the text of /proc/PID/cgroup. The
// controller "" stands for the unified hierarchy.
func cgroupPath(text, controller string) (string, error) {
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) == 3 && slices.Contains(strings.Split(f[1], ","), controller) &&
			(controller != "" || f[0] == "0") {
			return f[2], nil
		}
	}
	return "", lacks("the process is in no cgroup of %q", controller)
}

// cgroupMount describes a mounted cgroup hierarchy. root is the cgroup at the mount point.
type cgroupMount struct {
	unified     bool
	root, point string
}

// cpuMount returns the hierarchy that limits CPU time, given the text of /proc/self/mountinfo. This is the
// hierarchy of the cpu controller in cgroup version 1 if it exists, and the unified hierarchy otherwise.
func cpuMount(mountinfo string) (cgroupMount, error) {
	var found cgroupMount
	for line := range strings.Lines(mountinfo) {
		head, tail, ok := strings.Cut(line, " - ")
		f := strings.Fields(head)
		g := strings.Fields(tail)
		if !ok || len(f) < 5 || len(g) < 3 {
			continue
		}

		switch g[0] {
		case "cgroup":
			if slices.Contains(strings.Split(g[2], ","), "cpu") {
				return cgroupMount{false, f[3], f[4]}, nil
			}
		case "cgroup2":
			found = cgroupMount{true, f[3], f[4]}
		}
	}

	if found.point == "" {
		return found, lacks("no cgroup is mounted that limits CPUs")
	}

	return found, nil
}

// at returns the directory of a cgroup.
func (m cgroupMount) at(path string) (string, error) {
	rel, ok := strings.CutPrefix(path, strings.TrimSuffix(m.root, "/"))
	if !ok || strings.HasPrefix(path, "/..") || rel != "" && rel[0] != '/' {
		return "", lacks("cgroup %s is outside of what is mounted", path)
	}
	return m.point + rel, nil
}
