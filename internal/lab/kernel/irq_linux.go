package kernel

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// IRQAffinity reads, for each interrupt of a device in the order of their numbers, the CPUs that it may be
// served on, as the kernel writes them: "0-1,3". A device without any, such as a veth, is ErrUnsupported.
func IRQAffinity(dev string) ([]string, error) {
	files, err := affinityFiles(dev)
	lists, err := readEach(files, err)
	return lists, explain(err, "read interrupt affinity of %s", dev)
}

// SetIRQAffinity writes what IRQAffinity reads; a single list is meant for every interrupt of the device.
func SetIRQAffinity(dev string, lists []string) error {
	files, err := affinityFiles(dev)
	return explain(writeEach(files, lists, err), "set interrupt affinity of %s", dev)
}

// affinityFiles are those of a device's interrupts. A virtio device has the interrupts of the PCI device
// that it sits on.
func affinityFiles(dev string) ([]string, error) {
	dir, err := deviceDir(dev)
	if err != nil {
		return nil, err
	}
	device, err := filepath.EvalSymlinks(filepath.Join(dir, "device"))
	if err != nil {
		return nil, fmt.Errorf("%w: it has no interrupts", ErrUnsupported)
	}
	for _, d := range []string{device, filepath.Dir(device)} {
		var numbers []int
		messages, _ := os.ReadDir(filepath.Join(d, "msi_irqs"))
		for _, m := range messages {
			if n, err := strconv.Atoi(m.Name()); err == nil {
				numbers = append(numbers, n)
			}
		}
		if line, err := os.ReadFile(filepath.Join(d, "irq")); err == nil && len(numbers) == 0 {
			if n, err := strconv.Atoi(strings.TrimSpace(string(line))); err == nil && n > 0 {
				numbers = append(numbers, n)
			}
		}
		slices.Sort(numbers)
		var files []string
		for _, n := range numbers {
			file := fmt.Sprintf("/proc/irq/%d/smp_affinity_list", n)
			if _, err := os.Stat(file); err == nil { // what no driver asked for has none
				files = append(files, file)
			}
		}
		if len(files) > 0 {
			return files, nil
		}
	}
	return nil, fmt.Errorf("%w: it has no interrupts", ErrUnsupported)
}
