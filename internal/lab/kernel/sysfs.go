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
)

// Words represents kernel files that contain one word each: of a device or, if dev is "", of the machine.
type Words struct {
	what  string
	files func(dev string) ([]string, error)
}

// RPS holds, for each receive queue of a device, the mask of the CPUs to which receive packet steering
// distributes its packets, as the kernel writes it: hexadecimal words of 32 bits with commas, "0" for off. It
// needs the /sys of the namespace.
var RPS = Words{"packet steering", rpsFiles}

// IRQAffinity holds, for each interrupt of a device in numerical order, the CPUs that may serve it, as the
// kernel writes them: "0-1,3". For a device without interrupts, such as a veth, it returns ErrUnsupported.
var IRQAffinity = Words{"interrupt affinity", affinityFiles}

// Governors holds the clock governor of each domain of CPUs that share a clock
// (Documentation/admin-guide/pm/cpufreq.rst). If the kernel does not set the machine's clock, it returns
// ErrUnsupported.
var Governors = Words{"clock governor", func(string) ([]string, error) {
	return clockFiles(cpuDir, "scaling_governor")
}}

// Read reads the words.
func (w Words) Read(dev string) ([]string, error) {
	words, err := readEach(w.files(dev))
	return words, explain(err, "read %s of %s", w.what, cmp.Or(dev, "the machine"))
}

// Set writes the words; a single one goes to all files.
func (w Words) Set(dev string, words []string) error {
	files, err := w.files(dev)
	return explain(writeEach(files, words, err), "set %s of %s", w.what, cmp.Or(dev, "the machine"))
}

func rpsFiles(dev string) ([]string, error) {
	dir, err := deviceDir(dev)
	if err != nil {
		return nil, err
	}

	files, err := filepath.Glob(filepath.Join(dir, "queues/rx-*/rps_cpus"))
	if err == nil && len(files) == 0 {
		err = lacks("no receive packet steering")
	}

	byNumber(files)
	return files, err
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

// readEach reads a word of each file, unless finding them was an error.
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

// writeEach writes a word into each file; a single one goes to all.
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

// affinityFiles lists the files of a device's interrupts. A virtio device uses those of its PCI device.
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
			if _, err := os.Stat(file); err == nil { // an interrupt without a driver has none
				files = append(files, file)
			}
		}

		if len(files) > 0 {
			return files, nil
		}
	}

	return nil, lacks("it has no interrupts")
}

// Attribute reads a setting of a device in /sys, such as "threaded". It needs the /sys of the namespace. For
// a setting that this kernel lacks, it returns ErrUnsupported.
func Attribute(dev, name string) (string, error) {
	dir, err := deviceDir(dev)
	var b []byte
	if err == nil {
		b, err = os.ReadFile(filepath.Join(dir, name))
	}

	return strings.TrimSpace(string(b)), explain(lacking(err, name), "read %s of %s", name, dev)
}

// SetAttribute sets what Attribute reads.
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

// OnlineCPUs counts the online CPUs of the machine, and all CPUs.
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

// SetOnlineCPUs takes all CPUs of the machine except the first n offline, and brings those n online.
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
		case errors.Is(err, fs.ErrNotExist) && want == "1": // a CPU that cannot be taken offline
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

// GovernorsOffered lists the governors that every domain can have.
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

// clockFiles lists the files of a name, one for each clock domain.
func clockFiles(dir, name string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "cpufreq/policy*", name))
	if err == nil && len(files) == 0 {
		err = lacks("the kernel does not set the clock here (no cpufreq)")
	}

	byNumber(files)
	return files, err
}

// byNumber sorts paths that differ in a number: rx-2 before rx-10.
func byNumber(files []string) {
	slices.SortFunc(files, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })
}
