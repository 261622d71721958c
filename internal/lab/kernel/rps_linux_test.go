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
		reads(t, "masks", []string{"1", "1"})(RPS.Read("a0"))
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

		reads(t, "device of the route", wantDev)(RouteDevice(addr("198.19.0.1")))
		must(t, SetVLAN("a0", 0))
		reads(t, "device of the route after removal", "a0")(RouteDevice(addr("198.19.0.1")))
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
			reads(t, "mtu of "+dev, want)(MTU(dev))
		}
	})
}

func TestWireGuardOfTheKernelIsMadeOrUnsupported(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		err := ProbeWireGuard()
		if err != nil && !errors.Is(err, ErrUnsupported) {
			t.Errorf("probing gives %v, want nothing or ErrUnsupported", err)
		}

		devices(t, "lo")
	})
}
