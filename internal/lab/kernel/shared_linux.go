package kernel

import (
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
)

// Shared describes what else uses the link of a device: a bridge or bond that the device belongs to, the
// ports of a bridge, or a default route through the device or through a device stacked on it. It returns ""
// if nothing does. A service on a shared link would affect other machines.
func Shared(dev string) (by string, err error) {
	links, err := dump(netlink.LinkList)
	if err != nil {
		return "", explain(err, "list devices")
	}

	if _, err := find(dev); err != nil {
		return "", err
	}

	leads, err := DefaultDevices()
	if err != nil {
		return "", err
	}

	// Ignore errors: the file does not exist if there are no sessions.
	pppoe, _ := os.ReadFile("/proc/net/pppoe")
	return sharedBy(links, leads, string(pppoe), dev), nil
}

// overOneLink lists the kinds of stacked devices whose frames are sent unchanged by the device below.
var overOneLink = [...]string{"macvlan", "macvtap", "ipvlan", "ipvtap"}

func sharedBy(links []netlink.Link, leads []string, pppoe, dev string) string {
	byIndex := map[int]netlink.Link{}
	of := map[string]netlink.Link{}
	for _, l := range links {
		byIndex[l.Attrs().Index] = l
		of[l.Attrs().Name] = l
	}

	seen := map[string]bool{}
	l := of[dev]
	for l != nil && !seen[l.Attrs().Name] {
		a := l.Attrs()
		seen[a.Name] = true
		master := byIndex[a.MasterIndex]
		if master != nil {
			return a.Name + " belongs to " + master.Attrs().Name + ", a " + master.Type()
		}

		if a.MasterIndex != 0 {
			return a.Name + " belongs to a device of another namespace"
		}

		var ports []string
		for _, port := range links {
			if port.Attrs().MasterIndex == a.Index {
				ports = append(ports, port.Attrs().Name)
			}
		}

		if l.Type() == "bridge" && len(ports) > 0 {
			return a.Name + " is a bridge of " + strings.Join(ports, ", ")
		}

		up := leadsOver(links, leads, pppoe, l, map[int]bool{})
		if up != "" {
			return up
		}

		if !slices.Contains(overOneLink[:], l.Type()) {
			return ""
		}

		if a.NetNsID >= 0 {
			return a.Name + " lies on a device of another namespace"
		}

		l = byIndex[a.ParentIndex]
	}

	return ""
}

// leadsOver describes how a default route uses a device or a device stacked on it. It returns "" if none
// does.
func leadsOver(links []netlink.Link, leads []string, pppoe string, below netlink.Link,
	seen map[int]bool) string {
	a := below.Attrs()
	if slices.Contains(leads, a.Name) {
		return "this machine's default route leads out of " + a.Name
	}

	seen[a.Index] = true
	for _, l := range links {
		up := l.Attrs()
		session := l.Type() == "ppp" && slices.Contains(strings.Fields(pppoe), a.Name)
		// The parent of a veth is its peer. If a parent is in another namespace, its index belongs to that
		// namespace.
		above := up.ParentIndex == a.Index && up.NetNsID < 0 && l.Type() != "veth"
		if seen[up.Index] || !above && !session && up.Index != a.MasterIndex {
			continue
		}

		text := leadsOver(links, leads, pppoe, l, seen)
		if text != "" {
			return text + ", which lies on " + a.Name
		}
	}

	return ""
}
