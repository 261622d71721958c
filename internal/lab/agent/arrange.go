package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// VerbArrange sets up a node according to a Layout. The configuration outlives the session. It remains until
// the node is removed.
const VerbArrange = "lab/arrange"

// Layout describes the configuration of a lab's node.
type Layout struct {
	Node   string `json:"node"`
	Router bool   `json:"router"`
	// Names maps hardware addresses to port names. The devices with these addresses have names from the
	// kernel, and are renamed before anything else is done.
	Names     map[string]string `json:"names,omitempty"`
	Ports     []string          `json:"ports"`
	Addresses []PortAddress     `json:"addresses"`
	Routes    []Route           `json:"routes"`
	Sysctls   [][2]string       `json:"sysctls"` // paths and values, written in order before links are up
	// Interrupts lists the CPUs that serve the ports' interrupts, such as "0". If empty, the kernel chooses
	// them.
	Interrupts string `json:"interrupts,omitempty"`
}

// Arranged reports, for each port, the CPUs that serve its interrupts. Ports without interrupts are omitted.
type Arranged struct {
	Interrupts map[string]string `json:"interrupts,omitempty"`
}

// PortAddress is an address and the port that has it.
type PortAddress struct {
	Port    string       `json:"port"`
	Address netip.Prefix `json:"address"`
}

// Route is a route to a network through a gateway on a device.
type Route struct {
	To  netip.Prefix `json:"to"`
	Via netip.Addr   `json:"via"`
	Dev string       `json:"dev"`
}

func arrange(ctx context.Context, l Layout) (Arranged, error) {
	if err := Arrange(ctx, l); err != nil {
		return Arranged{}, err
	}

	pinned, err := pin(l)
	return Arranged{pinned}, err
}

// pin assigns the ports' interrupts to the CPUs in l.Interrupts, and returns the assignment that it reads
// back. The kernel's own assignment varies from boot to boot, and the machine's forwarding rate varies with
// it. pin skips ports whose interrupts cannot be assigned.
func pin(l Layout) (map[string]string, error) {
	if l.Interrupts == "" {
		return nil, nil
	}

	out := map[string]string{}
	for _, port := range l.Ports {
		err := kernel.IRQAffinity.Set(port, []string{l.Interrupts})
		if err != nil && !errors.Is(err, kernel.ErrUnsupported) && !errors.Is(err, syscall.EIO) {
			return nil, err
		}

		lists, err := kernel.IRQAffinity.Read(port)
		if errors.Is(err, kernel.ErrUnsupported) {
			continue
		}

		if err != nil {
			return nil, err
		}

		out[port] = strings.Join(slices.Compact(lists), " ")
	}

	return out, nil
}

// Arrange sets up the network namespaces of this process according to l. It is idempotent.
func Arrange(ctx context.Context, l Layout) error {
	if err := setHostname(l.Node); err != nil {
		return fmt.Errorf("name the node %s: %w", l.Node, err)
	}

	if err := rename(ctx, l.Names); err != nil {
		return err
	}

	for _, s := range l.Sysctls {
		if err := kernel.WriteSysctl(s[0], s[1]); err != nil {
			return err
		}
	}

	if err := kernel.Up("lo"); err != nil {
		return err
	}

	for _, port := range l.Ports {
		if err := kernel.Up(port); err != nil {
			return err
		}

		// Ignore a lack of permission, because spreading queues requires root and is optional.
		if err := kernel.SpreadQueues(port); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}

	for _, a := range l.Addresses {
		if err := kernel.AddAddress(a.Port, a.Address); err != nil {
			return err
		}
	}

	for _, r := range l.Routes {
		if err := kernel.AddRoute(r.To, r.Via, r.Dev); err != nil {
			return err
		}
	}

	return nil
}

// rename sets the names of the devices with the given hardware addresses. A device with a wrong name is given
// a temporary name first, because two devices may have to swap names.
func rename(ctx context.Context, names map[string]string) error {
	aside := map[string]string{} // maps temporary to final names
	for i, text := range slices.Sorted(maps.Keys(names)) {
		mac, err := net.ParseMAC(text)
		if err != nil {
			return fmt.Errorf("name port %s: %w", names[text], err)
		}

		dev, err := deviceOf(ctx, mac)
		if err != nil {
			return fmt.Errorf("name port %s: %w", names[text], err)
		}

		if dev == names[text] {
			continue
		}

		moment := fmt.Sprintf("port%d.aside", i)
		if err := kernel.Rename(dev, moment); err != nil {
			return err
		}

		aside[moment] = names[text]
	}

	for _, moment := range slices.Sorted(maps.Keys(aside)) {
		if err := kernel.Rename(moment, aside[moment]); err != nil {
			return err
		}
	}

	return nil
}

// deviceTime is the maximum time to wait for a device after its driver's module was loaded.
const deviceTime = 2 * time.Second

func deviceOf(ctx context.Context, mac net.HardwareAddr) (string, error) {
	for deadline := time.Now().Add(deviceTime); ; {
		dev, err := kernel.DeviceOf(mac)
		if !errors.Is(err, kernel.ErrAbsent) || time.Now().After(deadline) {
			return dev, err
		}

		if err := host.Pause(ctx, 5*time.Millisecond); err != nil {
			return "", err
		}
	}
}
