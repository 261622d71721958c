package record

import "github.com/chokepoint-lab/chokepoint/internal/check"

// usualDevice matches the names that kernels, systemd and router vendors give to network devices.
var usualDevice = check.Pattern(`^(?:lo|br-(?:lan|wan)|phy\d+-(?:ap|sta)\d+|` +
	`(?:en|wl|ww)[opsP][opsPfnudicv0-9]*|` +
	`(?:eth|ether|lan|wan|wlan|wifi|radio|sfp|sfp-sfpplus|sfpplus|qsfp|combo|bridge|br|bond|team|` +
	`veth|tun|tap|wg|wireguard|ppp|pppoe|pppoe-out|pppoe-wan|vlan|vxlan|gre|dummy|ifb|usb|wwan|lte|` +
	`igb|igc|ix|ixl|em|re|vtnet|bge|mce|ice|lagg|vmx|hn|ue|gif|enc|pflog|pfsync)-?\d{0,5})` +
	`(?:[.:@]\d{1,4})?$`)

// UsualDevice reports whether a network device has a generic name. Other names may contain an address or a
// person's name.
func UsualDevice(name string) bool { return usualDevice().MatchString(name) }
