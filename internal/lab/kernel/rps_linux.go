package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// RPS reads the masks of the CPUs that receive packet steering gives a device's packets to, one per receive
// queue, as the kernel writes them: hexadecimal words of 32 bits with commas, "0" for off. It needs the
// /sys of the namespace.
func RPS(dev string) ([]string, error) {
	files, err := rpsFiles(dev)
	masks, err := readEach(files, err)
	return masks, explain(err, "read packet steering of %s", dev)
}

// SetRPS writes what RPS reads; a single mask is meant for every queue.
func SetRPS(dev string, masks []string) error {
	files, err := rpsFiles(dev)
	return explain(writeEach(files, masks, err), "set packet steering of %s", dev)
}

func rpsFiles(dev string) ([]string, error) {
	dir, err := deviceDir(dev)
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(dir, "queues/rx-*/rps_cpus"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%w: no receive packet steering", ErrUnsupported)
	}
	slices.SortFunc(files, func(a, b string) int { // rx-2 before rx-10
		return cmp.Or(len(a)-len(b), strings.Compare(a, b))
	})
	return files, err
}

// deviceDir is where /sys tells of a device.
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
	var words []string
	for _, f := range files {
		if err != nil {
			break
		}
		var b []byte
		b, err = os.ReadFile(f)
		words = append(words, strings.TrimSpace(string(b)))
	}
	if err != nil {
		return nil, bare(err)
	}
	return words, nil
}

// writeEach writes a word into each file; a single one is meant for all.
func writeEach(files, words []string, err error) error {
	if len(words) == 1 {
		words = slices.Repeat(words, len(files))
	}
	if err == nil && len(words) != len(files) {
		err = fmt.Errorf("%d values for %d", len(words), len(files))
	}
	for i, f := range files {
		if err != nil {
			break
		}
		if err = os.WriteFile(f, []byte(words[i]), 0o600); err != nil {
			err = fmt.Errorf("to %s: %w", words[i], bare(err))
		}
	}
	return err
}

// bare leaves out the path, which repeats the device.
func bare(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// SpreadQueues lets each transmit queue of a virtual link that has several serve CPUs of its own, in turn,
// as drivers of NICs do (XPS, Documentation/networking/scaling.rst). Else a hash of the flow chooses, and
// CPUs contend for one queue. It needs the /sys of the namespace; only root may.
func SpreadQueues(dev string) error {
	l, err := find(dev)
	if err != nil {
		return explain(err, "spread queues of %s", dev)
	}
	if l.Type() != "veth" || l.Attrs().NumTxQueues < 2 {
		return nil
	}
	_, cores, err := OnlineCPUs()
	if err != nil {
		return err
	}
	queues := l.Attrs().NumTxQueues
	for q := range queues {
		words := make([]uint32, (cores+31)/32) // the kernel writes the highest first
		for c := q; c < cores; c += queues {
			words[len(words)-1-c/32] |= 1 << (c % 32)
		}
		mask := strings.Trim(strings.ReplaceAll(fmt.Sprintf("%08x", words), " ", ","), "[]")
		file := fmt.Sprintf("/sys/class/net/%s/queues/tx-%d/xps_cpus", dev, q)
		err := os.WriteFile(file, []byte(mask), 0o600)
		if errors.Is(err, fs.ErrNotExist) { // no /sys of the namespace
			err = fs.ErrPermission
		}
		if err != nil {
			return explain(bare(err), "let queue %d of %s serve the CPUs %s", q, dev, mask)
		}
	}
	return nil
}
