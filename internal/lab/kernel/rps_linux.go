package kernel

import (
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
	if err != nil {
		return nil, explain(err, "read packet steering of %s", dev)
	}
	masks := make([]string, len(files))
	for i, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, explain(bare(err), "read packet steering of %s", dev)
		}
		masks[i] = strings.TrimSpace(string(b))
	}
	return masks, nil
}

// SetRPS writes what RPS reads; a single mask is meant for every queue.
func SetRPS(dev string, masks []string) error {
	files, err := rpsFiles(dev)
	if err != nil {
		return explain(err, "set packet steering of %s", dev)
	}
	if len(masks) == 1 {
		masks = slices.Repeat(masks, len(files))
	}
	if len(masks) != len(files) {
		return fmt.Errorf("set packet steering of %s: %d masks for %d receive queues", dev, len(masks),
			len(files))
	}
	for i, f := range files {
		if err := os.WriteFile(f, []byte(masks[i]), 0o600); err != nil {
			return explain(bare(err), "set packet steering of %s to %s", dev, masks[i])
		}
	}
	return nil
}

func rpsFiles(dev string) ([]string, error) {
	if strings.ContainsAny(dev, "/*?[") || dev == "" || dev == ".." {
		return nil, fmt.Errorf("device name %q", dev)
	}
	dir := filepath.Join("/sys/class/net", dev)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("device %s %w in /sys", dev, ErrAbsent)
	}
	files, err := filepath.Glob(filepath.Join(dir, "queues/rx-*/rps_cpus"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%w: no receive packet steering", ErrUnsupported)
	}
	slices.SortFunc(files, func(a, b string) int {
		if len(a) != len(b) {
			return len(a) - len(b) // rx-2 before rx-10
		}
		return strings.Compare(a, b)
	})
	return files, err
}

// bare leaves out the path, which repeats the device.
func bare(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// SpreadQueues lets each transmit queue of a virtual link that has several serve processors of its own, in
// turn, as drivers of network cards do (XPS, Documentation/networking/scaling.rst). Else a hash of the flow
// chooses, and processors stand in each other's way. It needs the /sys of the namespace; only root may.
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
			return explain(bare(err), "let queue %d of %s serve the processors %s", q, dev, mask)
		}
	}
	return nil
}
