//go:build linux

package kernel

import (
	"errors"
	"net"
	"os/exec"
	"slices"
	"syscall"
	"testing"
)

func TestVethAndItsSettings(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		pair(t)
		devices(t, "a0", "b0", "lo")
		reads(t, "mtu", 1400)(MTU("a0"))
		must(t, SetMTU("a0", 1280))
		reads(t, "mtu after setting", 1280)(MTU("a0"))
		must(t, SetTxQueueLen("a0", 77))
		reads(t, "txqueuelen", 77)(TxQueueLen("a0"))
		must(t, DeleteLink("a0"))
		must(t, DeleteLink("a0")) // gone already
		reads(t, "other end is there", false)(Exists("b0"))
		if _, err := MTU("a0"); !errors.Is(err, ErrAbsent) {
			t.Errorf("mtu of a deleted device gives %v, want ErrAbsent", err)
		}
	})
}

func TestVethIntoAnotherNamespace(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		other := exec.Command("/bin/sleep", "20")
		other.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		must(t, other.Start())
		defer func() {
			_ = other.Process.Kill()
			_ = other.Wait()
		}()
		must(t, AddVeth(VethEnd{Name: "here"}, VethEnd{Name: "there", PID: other.Process.Pid}, 1))
		devices(t, "here", "lo")
	})
}

func TestAddressesAndRoutes(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		pair(t)
		must(t, Up("lo"))
		for _, p := range []string{"198.18.0.1/24", "2001:2:0:1::1/64"} {
			must(t, AddAddress("a0", prefix(p)))
			must(t, AddAddress("a0", prefix(p))) // there already
		}

		if got, err := Addresses("a0"); err != nil || len(got) != 2 || got[0] != prefix("198.18.0.1/24") {
			t.Errorf("addresses are %v (%v), want the two added", got, err)
		}

		for dst, via := range map[string]string{"198.19.0.0/16": "198.18.0.2",
			"2001:2:0:9::/64": "2001:2:0:1::2"} {
			must(t, AddRoute(prefix(dst), addr(via), "a0"))
			to := prefix(dst).Addr().Next()
			reads(t, "device of the route to "+dst, "a0")(RouteDevice(to))
			must(t, DelRoute(prefix(dst), addr(via), "a0"))
			must(t, DelRoute(prefix(dst), addr(via), "a0")) // gone already
			if dev, err := RouteDevice(to); err == nil {
				t.Errorf("route to %s leaves by %q after its deletion, want none", to, dev)
			}
		}

		must(t, DelAddress("a0", prefix("198.18.0.1/24")))
		must(t, DelAddress("a0", prefix("198.18.0.1/24")))
	})
}

func TestCountersMoveWithTraffic(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		pair(t)
		before, err := Counters("a0")
		must(t, err)
		must(t, AddAddress("a0", prefix("198.18.0.1/24")))
		neighbour(t, "a0", "198.18.0.2", "b0")
		send(t, "198.18.0.2:9", 10)
		after, err := Counters("a0")
		must(t, err)
		moved := after.TxPackets - before.TxPackets
		if moved < 10 {
			t.Errorf("%d packets counted, want at least the 10 sent", moved)
		}

		drivers, err := OpenNICStats()
		must(t, err)
		defer drivers.Close()
		names, values, err := drivers.Read("a0")
		if err != nil || len(names) == 0 || len(values) != len(names) || names[0] != "peer_ifindex" {
			t.Errorf("driver counters are %v (%v), want some", names, err)
		}

		want, err := net.InterfaceByName("b0")
		must(t, err)
		if values[0] != uint64(want.Index) {
			t.Errorf("%s: got %d, want %d", names[0], values[0], want.Index)
		}

		if _, _, err := drivers.Read("c0"); !errors.Is(err, ErrAbsent) {
			t.Errorf("driver counters of no device give %v, want ErrAbsent", err)
		}

		if _, err := PauseFrames("a0"); !errors.Is(err, ErrUnsupported) {
			t.Errorf("pause frames of a virtual link give %v, want ErrUnsupported", err)
		}
	})
}

func TestFeaturesAreReadBack(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		pair(t)
		must(t, SetFeatures("a0", map[string]bool{"tx-tcp-segmentation": false, "rx-gro": true}))
		f, err := Features("a0")
		must(t, err)
		if f["tx-tcp-segmentation"] || !f["rx-gro"] {
			t.Errorf("tso is %v and gro %v, want off and on", f["tx-tcp-segmentation"], f["rx-gro"])
		}

		fixed, err := FixedFeatures("a0")
		must(t, err)
		if len(fixed) == 0 || fixed["rx-gro"] {
			t.Errorf("fixed offloads are %v, want some, rx-gro not among them", fixed)
		}

		for name := range fixed {
			err := SetFeatures("a0", map[string]bool{name: !f[name]})
			if !errors.Is(err, ErrUnsupported) {
				t.Errorf("changing the fixed offload %s gives %v, want ErrUnsupported", name, err)
			}
		}

		if err := SetFeatures("a0", map[string]bool{"no-such": true}); !errors.Is(err, ErrUnsupported) {
			t.Errorf("an unknown offload gives %v, want ErrUnsupported", err)
		}
	})
}

func TestSysctl(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		must(t, WriteSysctl("net.ipv4.ip_forward", "1"))
		reads(t, "ip_forward", "1")(ReadSysctl("net/ipv4/ip_forward"))
		if _, err := ReadSysctl("net.ipv4.no_such_setting"); !errors.Is(err, ErrAbsent) {
			t.Errorf("an unknown setting gives %v, want ErrAbsent", err)
		}

		if _, err := ReadSysctl("net/../../etc/passwd"); err == nil {
			t.Error("a name that leaves /proc/sys is read, want an error")
		}
	})
}

// devices wants these devices, and no others.
func devices(t *testing.T, want ...string) {
	t.Helper()
	got, err := Devices()
	slices.Sort(got)
	reads(t, "devices", want)(got, err)
}
