package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// IRQAffinity reads, for each interrupt of a device in the order of their numbers, the processors that it
// may be served on, as the kernel writes them: "0-1,3". A device without any, such as a veth, is
// ErrUnsupported.
func IRQAffinity(dev string) ([]string, error) {
	numbers, err := interrupts(dev)
	lists := make([]string, len(numbers))
	for i, n := range numbers {
		var b []byte
		if b, err = os.ReadFile(affinityFile(n)); err != nil {
			break
		}
		lists[i] = strings.TrimSpace(string(b))
	}
	if err != nil {
		return nil, explain(bare(err), "read interrupt affinity of %s", dev)
	}
	return lists, nil
}

// SetIRQAffinity writes what IRQAffinity reads; a single list is meant for every interrupt of the device.
func SetIRQAffinity(dev string, lists []string) error {
	numbers, err := interrupts(dev)
	if err != nil {
		return explain(bare(err), "set interrupt affinity of %s", dev)
	}
	if len(lists) == 1 {
		lists = slices.Repeat(lists, len(numbers))
	}
	if len(lists) != len(numbers) {
		return fmt.Errorf("set interrupt affinity of %s: %d lists for %d interrupts", dev, len(lists),
			len(numbers))
	}
	for i, n := range numbers {
		if err := os.WriteFile(affinityFile(n), []byte(lists[i]), 0o644); err != nil {
			return explain(bare(err), "set interrupt affinity of %s to %s", dev, lists[i])
		}
	}
	return nil
}

func affinityFile(irq int) string { return fmt.Sprintf("/proc/irq/%d/smp_affinity_list", irq) }

// interrupts are the numbers of a device's interrupts. A virtio device has those of the PCI device that it
// sits on.
func interrupts(dev string) ([]int, error) {
	if !plainName(dev) {
		return nil, fmt.Errorf("device name %q", dev)
	}
	dir := filepath.Join("/sys/class/net", dev)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("device %s %w in /sys", dev, ErrAbsent)
	}
	device, err := filepath.EvalSymlinks(filepath.Join(dir, "device"))
	if err != nil {
		return nil, fmt.Errorf("%w: it has no interrupts", ErrUnsupported)
	}
	for _, d := range []string{device, filepath.Dir(device)} {
		var out []int
		messages, _ := os.ReadDir(filepath.Join(d, "msi_irqs"))
		for _, m := range messages {
			if n, err := strconv.Atoi(m.Name()); err == nil {
				out = append(out, n)
			}
		}
		if line, err := os.ReadFile(filepath.Join(d, "irq")); err == nil && len(out) == 0 {
			if n, err := strconv.Atoi(strings.TrimSpace(string(line))); err == nil && n > 0 {
				out = append(out, n)
			}
		}
		// What the device has and no driver asked for has no file.
		out = slices.DeleteFunc(out, func(n int) bool {
			_, err := os.Stat(affinityFile(n))
			return err != nil
		})
		if len(out) > 0 {
			slices.Sort(out)
			return out, nil
		}
	}
	return nil, fmt.Errorf("%w: it has no interrupts", ErrUnsupported)
}

// plainName reports whether a device's name can stand in a path.
func plainName(dev string) bool {
	return dev != "" && dev != "." && dev != ".." && !strings.ContainsAny(dev, "/*?[")
}
