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
	"strings"
)

// Words represents kernel files in /sys or /proc that contain one word each. The files belong to a device or,
// if dev is "", to the machine.
type Words struct {
	what  string
	files func(dev string) ([]string, error)
}

// RPS contains, for each receive queue of a device, the mask of CPUs for receive packet steering. The mask
// has the kernel's format: 32-bit words in hexadecimal, separated by commas. "0" means off. RPS requires a
// /sys that was mounted in the network namespace.
var RPS = Words{"packet steering", rpsFiles}

// IRQAffinity contains, for each interrupt of a device in numerical order, the list of CPUs that may serve
// the interrupt, such as "0-1,3". The error is ErrUnsupported for devices without interrupts, such as a veth.
var IRQAffinity = Words{"interrupt affinity", affinityFiles}

// Governors contains the governor of each CPU frequency domain (Documentation/admin-guide/pm/cpufreq.rst).
// The error is ErrUnsupported if the kernel does not control the frequency.
var Governors = Words{"clock governor", func(string) ([]string, error) {
	return clockFiles(cpuDir, "scaling_governor")
}}

// Read returns the words of all files.
func (w Words) Read(dev string) ([]string, error) {
	words, err := readEach(w.files(dev))
	return words, explain(err, "read %s of %s", w.what, cmp.Or(dev, "the machine"))
}

// Set writes one word to each file. If there is only one word, it is written to all files.
func (w Words) Set(dev string, words []string) error {
	files, err := w.files(dev)
	return explain(writeEach(files, words, err), "set %s of %s", w.what, cmp.Or(dev, "the machine"))
}

func rpsFiles(dev string) ([]string, error) {
	dir, err := deviceDir(dev)
	if err != nil {
		return nil, err
	}

	return numbered(filepath.Join(dir, "queues/rx-*/rps_cpus"), "no receive packet steering")
}

// numbered returns the files that match a pattern in the order of the number in their paths, for example rx-2
// before rx-10. If there are none, missing describes what the kernel lacks.
func numbered(pattern, missing string) ([]string, error) {
	files, _ := filepath.Glob(pattern) // cannot fail, because the pattern is valid
	if len(files) == 0 {
		return nil, lacks("%s", missing)
	}

	byNumber(files)
	return files, nil
}

// deviceDir returns a device's directory in /sys.
func deviceDir(dev string) (string, error) {
	if dev == "" || dev == "." || dev == ".." || strings.ContainsAny(dev, "/*?[") {
		return "", fmt.Errorf("device name %q", dev)
	}

	dir := filepath.Join("/sys/class/net", dev)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("device %s %w in /sys", dev, ErrAbsent)
	}

	return dir, nil
}

// readEach returns the words in files. If err is not nil, it only returns err.
func readEach(files []string, err error) ([]string, error) {
	if err != nil {
		return nil, bare(err)
	}

	var words []string
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, bare(err)
		}

		words = append(words, strings.TrimSpace(string(b)))
	}

	return words, nil
}

// writeEach writes one word to each file, or a single word to all files. If err is not nil, it only returns
// err.
func writeEach(files, words []string, err error) error {
	if len(words) == 1 {
		words = slices.Repeat(words, len(files))
	}

	if err == nil && len(words) != len(files) {
		err = fmt.Errorf("%d values for %d", len(words), len(files))
	}

	if err != nil {
		return err
	}

	for i, f := range files {
		if err := os.WriteFile(f, []byte(words[i]), 0o600); err != nil {
			return fmt.Errorf("to %s: %w", words[i], bare(err))
		}
	}

	return nil
}

// affinityFiles returns the affinity files of a device's interrupts. The interrupts of a virtio device belong
// to the underlying PCI device.
func affinityFiles(dev string) ([]string, error) {
	dir, err := deviceDir(dev)
	if err != nil {
		return nil, err
	}

	device, err := filepath.EvalSymlinks(filepath.Join(dir, "device"))
	if err != nil {
		return nil, lacks("it has no interrupts")
	}

	for _, d := range []string{device, filepath.Dir(device)} {
		var numbers []string
		messages, _ := os.ReadDir(filepath.Join(d, "msi_irqs"))
		for _, m := range messages {
			numbers = append(numbers, m.Name())
		}

		if line, err := os.ReadFile(filepath.Join(d, "irq")); err == nil && len(numbers) == 0 {
			numbers = append(numbers, strings.TrimSpace(string(line)))
		}

		var files []string
		for _, n := range numbers {
			file := "/proc/irq/" + n + "/smp_affinity_list"
			// An unused interrupt has no file. Number 0 means that the device has no interrupt.
			if _, err := os.Stat(file); err == nil && n != "0" {
				files = append(files, file)
			}
		}

		if len(files) > 0 {
			byNumber(files)
			return files, nil
		}
	}

	return nil, lacks("it has no interrupts")
}

// Attribute returns an attribute of a device in /sys, such as "threaded". It requires a /sys that was mounted
// in the network namespace. The error is ErrUnsupported if the kernel lacks the attribute.
func Attribute(dev, name string) (string, error) {
	dir, err := deviceDir(dev)
	var b []byte
	if err == nil {
		b, err = os.ReadFile(filepath.Join(dir, name))
	}

	return strings.TrimSpace(string(b)), explain(lacking(err, name), "read %s of %s", name, dev)
}

// SetAttribute sets an attribute of a device in /sys.
func SetAttribute(dev, name, value string) error {
	dir, err := deviceDir(dev)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name), []byte(value), 0o600)
	}
	return explain(lacking(err, name), "set %s of %s", name, dev)
}

func lacking(err error, name string) error {
	if errors.Is(err, fs.ErrNotExist) {
		return lacks("no %s", name)
	}
	return bare(err)
}

const cpuDir = "/sys/devices/system/cpu"

// OnlineCPUs returns the number of CPUs that are online and the total number of CPUs of the machine.
func OnlineCPUs() (online, has int, err error) {
	for what, into := range map[string]*int{"online": &online, "present": &has} {
		b, err := os.ReadFile(filepath.Join(cpuDir, what))
		if err == nil {
			list, ok := CPUList(strings.TrimSpace(string(b)), math.MaxUint16)
			if *into = len(list); !ok {
				err = fmt.Errorf("parse list of CPUs %q", strings.TrimSpace(string(b)))
			}
		}

		if err != nil {
			return 0, 0, explain(bare(err), "read CPUs %s", what)
		}
	}
	return online, has, nil
}

// SetOnlineCPUs brings the machine's first n CPUs online and takes the others offline.
func SetOnlineCPUs(n int) error {
	_, has, err := OnlineCPUs()
	if err != nil {
		return err
	}

	if n < 1 || n > has {
		return explain(ErrUnsupported, "work with %d CPUs: there are %d", n, has)
	}

	for i := range has {
		file := filepath.Join(cpuDir, fmt.Sprintf("cpu%d", i), "online")
		want := "1"
		if i >= n {
			want = "0"
		}

		now, err := os.ReadFile(file)
		switch {
		case errors.Is(err, fs.ErrNotExist) && want == "1": // a CPU without this file is always online
			continue
		case err == nil && strings.TrimSpace(string(now)) == want:
			continue
		case err == nil:
			err = os.WriteFile(file, []byte(want), 0o644)
		}

		if err = lacking(err, "switch to take a CPU offline"); err != nil {
			return explain(err, "set CPU %d", i)
		}
	}

	return nil
}

// GovernorsOffered returns the governors available in all frequency domains.
func GovernorsOffered() ([]string, error) {
	lists, err := readEach(clockFiles(cpuDir, "scaling_available_governors"))
	if err != nil {
		return nil, explain(err, "read clock governors")
	}

	offered := strings.Fields(lists[0])
	for _, list := range lists[1:] {
		offered = slices.DeleteFunc(offered, func(name string) bool {
			return !slices.Contains(strings.Fields(list), name)
		})
	}

	return offered, nil
}

// clockFiles returns the file with the given name in each frequency domain.
func clockFiles(dir, name string) ([]string, error) {
	return numbered(filepath.Join(dir, "cpufreq/policy*", name),
		"the kernel does not set the clock here (no cpufreq)")
}

// byNumber sorts paths that differ only in a number by that number.
func byNumber(files []string) {
	slices.SortFunc(files, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })
}
