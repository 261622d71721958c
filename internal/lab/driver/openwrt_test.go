package driver

import (
	"strings"
	"testing"
)

func TestParseFacts(t *testing.T) {
	const board = `{"kernel":"6.6.93","hostname":"my-router","system":"ARMv8 Processor rev 4",` +
		`"model":"Example AX6000","board_name":"example,ax6000","release":{"version":"24.10.2","target":"mediatek/filogic"}}`
	const files = "uci:network.packet_steering=1\nsqm:eth1=on\nDISTRIB_RELEASE='24.10.1'\nID=\"openwrt\"\n" +
		"KERNEL=6.6.90\nhostname=my-router\n"
	byFiles := map[string]string{"os": "linux", "kernel": "6.6.90", "distribution": "openwrt",
		"distribution_release": "24.10.1", "uci:network.packet_steering": "1", "sqm:eth1": "on"}
	for text, want := range map[string]map[string]string{
		board + "\n" + files: {"os": "linux", "kernel": "6.6.93", "distribution": "openwrt",
			"distribution_release": "24.10.2", "distribution_target": "mediatek/filogic",
			"uci:network.packet_steering": "1", "sqm:eth1": "on", "product": "Example AX6000",
			"board": "example,ax6000", "cpu_model": "ARMv8 Processor rev 4"},
		"\n" + files:               byFiles, // without ubus
		"{\"kernel\":7}\n" + files: byFiles,
		"":                         {"os": "linux"},
	} {
		same(t, want, parseFacts(text), "%q", text)
	}
}

func FuzzParseFacts(f *testing.F) {
	f.Add("{\"model\":\"a\\u001b[2J\"}\nuci:x=1\nsqm:\x1b=on\nID=openwrt\n")
	f.Fuzz(func(t *testing.T, text string) {
		facts := parseFacts(text)
		if len(facts) > maxFacts {
			t.Errorf("%q: got %d facts, want %d at most", text, len(facts), maxFacts)
		}

		for name, value := range facts {
			odd := strings.ContainsFunc(name+value, func(r rune) bool { return r < ' ' })
			if odd || len(value) > maxFact {
				t.Errorf("%q: got %q=%q, want it short and plain", text, name, value)
			}
		}
	})
}
