package probe

import "strings"

// Firmware describes a machine's system in one line: distribution, version and kernel. It returns "" if all
// are unknown. Levels of the firmware factor are matched against this text.
func Firmware(facts map[string]string) string {
	system := strings.Fields(facts["distribution"] + " " + facts["distribution_version"] + " " +
		facts["distribution_release"] + " " + facts["distribution_revision"])
	kernel := facts["kernel"]
	if kernel != "" {
		kernel = "kernel " + kernel
	}

	return strings.Trim(strings.Join(system, " ")+", "+kernel, ", ")
}

// SystemFacts parses the release files of a Linux system. They are /etc/os-release (os-release(5)) and, on
// OpenWrt and its derivatives, /etc/openwrt_release, the only file with the exact version.
func SystemFacts(text string) map[string]string {
	names := map[string]string{"ID": "distribution", "VERSION_ID": "distribution_version",
		"DISTRIB_RELEASE": "distribution_release", "DISTRIB_REVISION": "distribution_revision",
		"DISTRIB_TARGET": "distribution_target"}
	facts := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		value = strings.Trim(value, `'"`)
		name := names[key]
		if name != "" && value != "" {
			facts[name] = value
		}
	}

	if facts["distribution_release"] != "" {
		delete(facts, "distribution_version")
	}

	return facts
}
