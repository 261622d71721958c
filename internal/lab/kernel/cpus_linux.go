package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const cpuDir = "/sys/devices/system/cpu"

// OnlineCPUs is how many CPUs the machine works with, of how many it has.
func OnlineCPUs() (online, has int, err error) {
	for what, into := range map[string]*int{"online": &online, "present": &has} {
		b, err := os.ReadFile(filepath.Join(cpuDir, what))
		if err == nil {
			*into, err = countCPUs(strings.TrimSpace(string(b)))
		}
		if err != nil {
			return 0, 0, explain(bare(err), "read CPUs %s", what)
		}
	}
	return online, has, nil
}

// SetOnlineCPUs takes all but the first n CPUs offline, or back. It is of the whole machine.
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
		if errors.Is(err, fs.ErrNotExist) && want == "1" {
			continue // one that cannot be taken offline
		}
		if err == nil && strings.TrimSpace(string(now)) == want {
			continue
		}
		if err == nil {
			err = os.WriteFile(file, []byte(want), 0o644)
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: the kernel takes no CPU offline", ErrUnsupported)
		}
		if err != nil {
			return explain(bare(err), "set CPU %d", i)
		}
	}
	return nil
}

// countCPUs counts a list such as "0-1,3".
func countCPUs(list string) (int, error) {
	n := 0
	for part := range strings.SplitSeq(list, ",") {
		from, to, ranged := strings.Cut(part, "-")
		if !ranged {
			to = from
		}
		a, err1 := strconv.ParseUint(from, 10, 16)
		b, err2 := strconv.ParseUint(to, 10, 16)
		if err1 != nil || err2 != nil || a > b {
			return 0, fmt.Errorf("parse list of CPUs %q", list)
		}
		n += int(b-a) + 1
	}
	return n, nil
}
