package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// tree makes a root of files by name: "proc/stat", "sys/class/…".
func tree(t *testing.T, files map[string]string) Root {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		write(t, filepath.Join(dir, name), text)
	}
	return Root{Proc: filepath.Join(dir, "proc"), Sys: filepath.Join(dir, "sys"), Dev: filepath.Join(dir,
		"dev")}
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
	s, err := p.Open(context.Background(), nil)
	if err != nil {
		t.Fatalf("open %s: %v", p.Name(), err)
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

func TestPrintIsLineDelimitedJSON(t *testing.T) {
	root := tree(t, map[string]string{"proc/stat": "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 " +
		"10\nctxt 77\n"})
	var out bytes.Buffer
	if err := Print(context.Background(), &out, []Probe{cpu(root), pressure(root)}, root, time.Millisecond,
		2); err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, l := range bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n")) {
		var v struct {
			Format, Probe, Scope, Unavailable string
			Values                            map[string]*float64
		}
		if err := json.Unmarshal(l, &v); err != nil {
			t.Fatalf("line %s: %v", l, err)
		}
		kinds = append(kinds, v.Format+v.Probe+"/"+v.Scope)
		if v.Probe == "pressure" && v.Unavailable == "" {
			t.Errorf("pressure: got no reason in %s", l)
		}
		if v.Probe != "cpu" {
			continue
		}
		if got := v.Values["cpu0/user_ns"]; got == nil || *got != 1e7 {
			t.Errorf("cpu0/user_ns: got %v, want 1e7 in %s", got, l)
		}
		if got, ok := v.Values["procs_running"]; got != nil || !ok {
			t.Errorf("procs_running: got %v, want null", got)
		}
	}
	want := []string{"chokepoint-probe/1/", "pressure/host", "cpu/host", "cpu/host"}
	if d := cmp.Diff(kinds, want); d != "" {
		t.Errorf("lines (-got +want):\n%s", d)
	}
}
