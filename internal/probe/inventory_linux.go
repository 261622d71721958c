package probe

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// inventory records everything in this network namespace that packets may pass through: devices, queues and
// filters.
func inventory(root Root) *record.Inventory {
	v := &record.Inventory{Missing: map[string]string{}}
	known := func(part string, err error) bool {
		if err != nil {
			v.Missing[part] = err.Error()
		}
		return err == nil
	}
	links, err := kernel.Links()
	if known("devices", err) {
		v.Devices = devicesOf(root, links, known)
	}

	dump, err := kernel.DumpFilter()
	if known("filter", err) {
		v.Filter = ReadRuleset(dump, kernel.DumpSet).PacketFilter()
	}

	legacy, err := legacyEntries(root)
	if known("iptables", err) && len(legacy) > 0 {
		if v.Filter == nil {
			v.Filter = &record.PacketFilter{}
		}

		v.Filter.LegacyEntries = legacy
	}

	text := func(part, name string) string {
		b, err := os.ReadFile(root.proc(name))
		known(part, err)
		return string(b)
	}
	AddProc(v, ProcTexts{
		Taps: text("taps", "net/packet"),
		NFQueues: text("nfqueues",
			"net/netfilter/nfnetlink_queue"),
		Max:          text("conntrack", "sys/net/netfilter/nf_conntrack_max"),
		Count:        text("conntrack", "sys/net/netfilter/nf_conntrack_count"),
		BridgeFilter: text("bridge_filter", "sys/net/bridge/bridge-nf-call-iptables"),
	}, func(index int) string {
		for _, l := range links {
			if l.Index == index {
				return l.Name
			}
		}
		return strconv.Itoa(index)
	})
	windows, err := kernel.ReplayWindows()
	if known("xfrm", err) {
		v.XFRM = &record.XFRMStates{States: len(windows)}
		for _, w := range windows {
			if w > 0 {
				v.XFRM.Replayed++
				v.XFRM.MinWindow = cmp.Or(min(w, v.XFRM.MinWindow), w)
			}
		}
	}

	return v
}

// devicesOf describes all devices that are up.
func devicesOf(root Root, links []kernel.Link, known func(string, error) bool) (out []record.NetDevice) {
	up := slices.DeleteFunc(slices.Clone(links), func(l kernel.Link) bool { return !l.Up || l.Loopback })
	for _, l := range up[:min(len(up), maxDevices)] {
		all, filters, err := kernel.Disciplines(l.Name)
		d := DeviceQueues(l.Name, all, filters)
		if err != nil {
			d = record.NetDevice{Name: l.Name, Missing: err.Error()}
		}

		d.Kind = l.Kind
		d.Master = l.Master
		d.Lower = l.Lower
		d.MTU = l.MTU
		dir := root.device(l.Name)
		if d.Kind == "" && dir != "" {
			d.Kind = record.DeviceVirtual
			if _, err := os.Stat(filepath.Join(dir, "device")); err == nil {
				d.Kind = record.DevicePhysical
			}
		}

		if dir != "" { // if the device has no speed, the file contains -1 or reading it fails
			d.SpeedMbps = max(0, plainNumber(readWord(filepath.Join(dir, "speed"))))
		}

		out = append(out, d)
	}

	if len(up) > len(out) {
		known("devices", fmt.Errorf("of %d devices, %d are listed", len(up), len(out)))
	}

	return out
}

// legacyEntries counts the entries in each table of iptables-legacy. The result is empty if the kernel
// does not support iptables-legacy.
func legacyEntries(root Root) (map[string]int, error) {
	out := map[string]int{}
	for prefix, file := range map[string]string{"": "net/ip_tables_names", "ip6 ": "net/ip6_tables_names"} {
		b, err := os.ReadFile(root.proc(file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}

		if err != nil {
			return nil, err
		}

		for _, table := range strings.Fields(string(b)) {
			n, err := kernel.LegacyEntries(prefix != "", table)
			if err != nil {
				return nil, err
			}

			out[prefix+table] = n
		}
	}
	return out, nil
}
