package guest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

func TestRole(t *testing.T) {
	tests := []struct {
		name string
		pid  int
		want string
	}{
		{"/init", 1, "init"},
		{"init", 1, "init"},
		{"/init", 77, ""},     // a user starts it again
		{"chokepoint", 1, ""}, // a container, or a lab's holder
		{"/sbin/modprobe", 77, "modprobe"},
		{"modprobe", 77, "modprobe"},
		{"chokepoint-agent", 77, ""},
		{"", 1, ""},
	}
	for _, tt := range tests {
		got := role(tt.name, tt.pid)
		if got != tt.want {
			t.Errorf("role of %q, process %d: got %q, want %q", tt.name, tt.pid, got, tt.want)
		}
	}
}

func TestParameter(t *testing.T) {
	tests := []struct {
		cmdline, value string
		ok             bool
	}{
		{"console=ttyS0 quiet chokepoint.agent=ttyS1 panic=-1\n", "ttyS1", true},
		{"chokepoint.agent=ttyS1 chokepoint.agent=ttyS2", "ttyS2", true},
		{"chokepoint.agent=", "", true},
		{"xchokepoint.agent=ttyS1 chokepoint.agentx=1", "", false},
		{"", "", false},
	}
	for _, tt := range tests {
		if value, ok := parameter(tt.cmdline, portName); value != tt.value || ok != tt.ok {
			t.Errorf("command line %q: got %q, %v; want %q, %v", tt.cmdline, value, ok, tt.value, tt.ok)
		}
	}
}

func TestSerialDevice(t *testing.T) {
	if got, err := serialDevice("ttyAMA1"); err != nil || got != "/dev/ttyAMA1" {
		t.Errorf("ttyAMA1: got %q, %v; want /dev/ttyAMA1", got, err)
	}

	for _, name := range []string{"", "sda", "tty/../sda", "/dev/ttyS1"} {
		if got, err := serialDevice(name); err == nil || got != "" {
			t.Errorf("%q: got %q, %v; want an error", name, got, err)
		}
	}
}

func TestVirtioPort(t *testing.T) {
	class := t.TempDir()
	add := func(port, name string) {
		t.Helper()
		must(t, os.MkdirAll(filepath.Join(class, port), 0o755))
		must(t, os.WriteFile(filepath.Join(class, port, "name"), []byte(name), 0o644))
	}
	add("vport1p1", "org.qemu.guest_agent.0\n")
	expect.Same(t, "before it is there", "", virtioPort(class, portName))
	add("vport1p2", portName+"\n")
	expect.Same(t, "port", "/dev/vport1p2", virtioPort(class, portName))
}

func TestModuleList(t *testing.T) {
	got := moduleList("# first\nvirtio_console\n\n  virtio_net  # NIC\nsch_cake")
	expect.Same(t, "modules", []string{"virtio_console", "virtio_net", "sch_cake"}, got)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
