package kernel

import (
	"errors"
	"net"
	"testing"
)

func TestRename(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		pair(t) // both up
		mac := hardware(t, "a0")
		reads(t, "device of the address", "a0")(DeviceOf(mac))
		must(t, Rename("a0", "lan"))
		reads(t, "device of the address", "lan")(DeviceOf(mac))
		must(t, AddAddress("lan", prefix("198.18.0.1/30")))
		// Still up, or the route would be refused.
		must(t, AddRoute(prefix("198.18.9.0/24"), addr("198.18.0.2"), "lan"))
		if err := Rename("b0", "lan"); err == nil {
			t.Error("rename to a name that is taken: got no error")
		}

		if err := Rename("none", "wan"); !errors.Is(err, ErrAbsent) {
			t.Errorf("rename of no device: got %v, want ErrAbsent", err)
		}

		if _, err := DeviceOf(net.HardwareAddr{2, 0, 0, 0, 0, 9}); !errors.Is(err, ErrAbsent) {
			t.Errorf("device of no address: got %v, want ErrAbsent", err)
		}
	})
}
