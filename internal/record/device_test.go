package record

import "testing"

func TestUsualDevice(t *testing.T) {
	for name, want := range map[string]bool{
		"eth0": true, "enp3s0f1np1": true, "eno1": true, "ens160": true, "enP2p1s0": true, "lan3": true,
		"wan": true, "br-lan": true, "ether1": true, "sfp-sfpplus1": true, "eth0.100": true, "igb1": true,
		"phy0-ap0": true, "pppoe-out1": true, "wg0": true, "lo": true,
		"enx001122334455": false, "enx02fc00000001": false, "office": false, "wan-vodafone": false,
		"jana": false, "wg-to-prague": false, "": false, "02:fc:00:00:00:01": false,
	} {
		got := UsualDevice(name)
		if got != want {
			t.Errorf("%q: got %v, want %v", name, got, want)
		}
	}
}
