package kernel

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// ownSys gives the thread the /sys of its network namespace.
func ownSys(t *testing.T) {
	t.Helper()
	must(t, unix.Unshare(unix.CLONE_NEWNS))
	must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	must(t, unix.Mount("sysfs", "/sys", "sysfs", 0, ""))
}

func TestPacketSteering(t *testing.T) {
	if m, err := os.ReadFile("/proc/self/uid_map"); err == nil && !strings.Contains(string(m), "4294967295") {
		t.Skip("skip: packet steering cannot be set in a user namespace")
	}
	inNamespace(t, func(t *testing.T) {
		ownSys(t)
		pair(t)
		before, err := RPS.Read("a0")
		must(t, err)
		if len(before) != 2 {
			t.Errorf("masks are %q, want one for each of two queues", before)
		}
		must(t, RPS.Set("a0", []string{"1"}))
		if got, err := RPS.Read("a0"); err != nil || got[0] != "1" || got[1] != "1" {
			t.Errorf("masks are %q (%v), want 1 and 1", got, err)
		}
		must(t, RPS.Set("a0", before))
		if _, err := RPS.Read("nowhere"); !errors.Is(err, ErrAbsent) {
			t.Errorf("an unknown device gives %v, want ErrAbsent", err)
		}
	})
}

func TestVLANIsMadeOrUnsupported(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		pair(t)
		must(t, AddAddress("a0", prefix("198.18.0.1/24")))
		must(t, AddRoute(prefix("198.19.0.0/16"), addr("198.18.0.2"), "a0"))
		err := SetVLAN("a0", 7)
		wantDev := "a0.7"
		if errors.Is(err, ErrUnsupported) {
			t.Logf("not on this kernel: %v", err)
			wantDev = "a0"
		} else if err != nil {
			t.Error(err)
		}
		if dev, err := RouteDevice(addr("198.19.0.1")); err != nil || dev != wantDev {
			t.Errorf("route leaves by %q (%v), want %s", dev, err, wantDev)
		}
		must(t, SetVLAN("a0", 0))
		if dev, err := RouteDevice(addr("198.19.0.1")); err != nil || dev != "a0" {
			t.Errorf("route leaves by %q (%v) after removal, want a0", dev, err)
		}
	})
}

// TestMTUOfATaggedPort: a tag's device follows its port in both directions.
func TestMTUOfATaggedPort(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		pair(t)
		dev := "a0.7"
		if err := SetVLAN("a0", 7); errors.Is(err, ErrUnsupported) {
			t.Logf("not on this kernel: %v", err)
			dev = "a0"
		} else if err != nil {
			t.Fatal(err)
		}
		for _, want := range []int{1300, 1500, 1400} {
			must(t, SetMTU("a0", want))
			if got, err := MTU(dev); err != nil || got != want {
				t.Errorf("mtu of %s is %d (%v), want %d", dev, got, err, want)
			}
		}
	})
}

func TestWireGuardOfTheKernelIsMadeOrUnsupported(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		err := ProbeWireGuard()
		if err != nil && !errors.Is(err, ErrUnsupported) {
			t.Errorf("probing gives %v, want nothing or ErrUnsupported", err)
		}
		if names, _ := Devices(); len(names) != 1 {
			t.Errorf("devices are %v after probing, want only lo", names)
		}
	})
}
