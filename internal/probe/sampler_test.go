package probe

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// tree makes a root of files by name: "proc/stat", "sys/class/…".
func tree(t *testing.T, files map[string]string) Root {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		write(t, filepath.Join(dir, name), text)
	}

	return Root{
		Proc: filepath.Join(dir, "proc"),
		Sys:  filepath.Join(dir, "sys"),
		Dev: filepath.Join(dir,
			"dev"),
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// open opens a probe and closes it with the test.
func open(t testing.TB, p Probe) Sampler {
	t.Helper()
	s, err := p.Open(Options{})
	if err != nil {
		t.Fatalf("open %s: %v", p.Name, err)
	}

	t.Cleanup(func() { s.Close() })
	return s
}

// sample reads once, following changes of the columns.
func sample(t testing.TB, s Sampler) map[string]float64 {
	t.Helper()
	for range 5 {
		dst := make([]float64, len(s.Columns()))
		err := s.Sample(dst)
		if errors.Is(err, ErrColumns) {
			continue
		}

		if err != nil {
			t.Fatalf("sample: %v", err)
		}

		values := map[string]float64{}
		for i, c := range s.Columns() {
			values[c] = dst[i]
		}

		return values
	}

	t.Fatal("columns change at every sample")
	return nil
}
