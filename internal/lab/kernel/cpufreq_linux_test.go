package kernel

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// TestGovernors reads and writes clock domains laid out as Documentation/admin-guide/pm/cpufreq.rst has them,
// and this machine's where it has any.
func TestGovernors(t *testing.T) {
	dir := t.TempDir()
	for i, now := range map[int]string{0: "schedutil", 4: "powersave", 10: "ondemand"} {
		at := filepath.Join(dir, "cpufreq", "policy"+strconv.Itoa(i))
		must(t, os.MkdirAll(at, 0o700))
		must(t, os.WriteFile(filepath.Join(at, "scaling_governor"), []byte(now+"\n"), 0o600))
	}

	files, err := clockFiles(dir, "scaling_governor")
	must(t, err)
	before := []string{"schedutil", "powersave", "ondemand"}
	reads(t, "governors", before)(readEach(files, nil))
	must(t, writeEach(files, []string{"performance"}, nil))
	reads(t, "set to one", slices.Repeat([]string{"performance"}, 3))(readEach(files, nil))
	must(t, writeEach(files, before, nil))
	reads(t, "put back", before)(readEach(files, nil))
	if err := writeEach(files, before[:2], nil); err == nil {
		t.Error("two governors for three domains: got no error")
	}

	if _, err := clockFiles(t.TempDir(), "scaling_governor"); !errors.Is(err, ErrUnsupported) {
		t.Errorf("without cpufreq: got %v, want ErrUnsupported", err)
	}

	switch names, err := Governors.Read(""); {
	case errors.Is(err, ErrUnsupported):
	case err != nil || len(names) == 0:
		t.Errorf("this machine: got %q, %v", names, err)
	default:
		offered, err := GovernorsOffered()
		if err != nil || !slices.Contains(offered, names[0]) {
			t.Errorf("this machine offers %q (%v), want %s among them", offered, err, names[0])
		}
	}
}
