package probe

import "testing"

// The files' form is that of os-release(5) and of OpenWrt's base-files; these texts are composed.
func TestFirmware(t *testing.T) {
	for text, want := range map[string]string{
		"NAME=\"OpenWrt\"\nID=\"openwrt\"\nVERSION_ID=\"24.10.2\"\nDISTRIB_RELEASE='24.10.2'\n" +
			"DISTRIB_REVISION='r28739-d9340319c6'\n": "openwrt 24.10.2 r28739-d9340319c6, kernel 6.6.93",
		"ID=debian\nVERSION_ID=\"13\"\nVERSION=\"13 (trixie)\"\n": "debian 13, kernel 6.6.93",
		"": "kernel 6.6.93",
	} {
		facts := SystemFacts(text)
		facts["kernel"] = "6.6.93"
		got := Firmware(facts)
		if got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}

	if got := Firmware(nil); got != "" {
		t.Errorf("of nothing: %q", got)
	}
}
