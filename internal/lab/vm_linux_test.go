package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLastWords(t *testing.T) {
	crash := "[ 1] sysrq: Trigger a crash\n[ 2] Kernel panic - not syncing: x\r\n[ 3] a\n[ 4] b\n[ 5] c\n[ " +
		"6] d\n[ 7] e\n[ 8] f\n[ 9] g\n"
	tests := []struct{ name, qemu, console, want string }{
		{"nothing", "", consoleMark + "\n\n", " (it said nothing)"},
		{"no file", "", "", " (it said nothing)"},
		{"few lines", "", consoleMark + "\na\n\n b\x1b\r\n", ": a | b"},
		{"QEMU's complaint", "qemu: no such model\n", consoleMark + "\n", ": qemu: no such model"},
		{"the tail", "", "1\n2\n3\n4\n5\n6\n7\n", ": 2 | 3 | 4 | 5 | 6 | 7"},
		{"a panic above registers", "", crash,
			": [ 2] Kernel panic - not syncing: x | … | [ 7] e | [ 8] f | [ 9] g"},
		{"not of the guest before", "", crash + consoleMark + "\nready\n", ": ready"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			console := filepath.Join(t.TempDir(), "router.console")
			for name, text := range map[string]string{console: tt.console, console + ".qemu": tt.qemu} {
				if text == "" {
					continue
				}

				must(t, os.WriteFile(name, []byte(text), 0o600))
			}

			got := lastWords(console)
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestAConsoleThatIsFlooded: of what a guest writes without end the file keeps the end, and whoever reads it
// as much.
func TestAConsoleThatIsFlooded(t *testing.T) {
	console := filepath.Join(t.TempDir(), "router.console")
	f, err := os.OpenFile(console, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	must(t, err)
	defer f.Close()
	put := func(size int, last string) {
		must(t, f.Truncate(int64(size)))
		if _, err := f.WriteString(last); err != nil {
			t.Fatal(err)
		}
	}
	put(1<<30, "\nthe end\n") // most of it a hole
	if got := lastWords(console); !strings.HasSuffix(got, "the end") {
		t.Errorf("got %.80q", got)
	}

	must(t, cutConsole(console))
	if _, err := f.WriteString("more\n"); err != nil {
		t.Fatal(err)
	}

	i, err := f.Stat()
	if err != nil || i.Size() != keptConsole+int64(len("more\n")) {
		t.Errorf("the file has %v, %v", i.Size(), err)
	}

	if got := lastWords(console); !strings.HasSuffix(got, "the end | more") {
		t.Errorf("cut: got %.80q", got)
	}

	must(t, cutConsole(console))
	if i, err := f.Stat(); err != nil || i.Size() != keptConsole+int64(len("more\n")) {
		t.Errorf("a short one was cut, to %v, %v", i.Size(), err)
	}
}
