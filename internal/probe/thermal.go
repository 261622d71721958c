package probe

import (
	"path/filepath"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func thermal(root Root) Probe {
	return Probe{
		Name:  "thermal",
		Scope: record.ScopeHost,
		Slow:  true,
		Stems: []record.Metric{
			level("temperature_c", "°C",
				"temperature of a thermal zone (\"zone0.type\") or sensor chip (\"hwmon0.name.temp1\")"),
			level("cooling_state", "count",
				"present state of a cooling device (\"cooling0.type\"), from 0 to cooling_limit; if the "+
					"device is a CPU, a state above 0 means that it is throttled"),
			level("cooling_limit", "count", "highest state of the cooling device"),
			counter("core_throttles", "count",
				"times that heat slowed the core down, on x86 (thermal_throttle/core_throttle_count)"),
			counter("package_throttles", "count",
				"times that heat slowed the core's package down, on x86 "+
					"(thermal_throttle/package_throttle_count)"),
			counter("core_throttled_ns", "ns", "time for which heat slowed the core down, on x86 "+
				"(core_throttle_total_time_ms)"),
			counter("package_throttled_ns", "ns",
				"time for which heat slowed the core's package down, on x86 "+
					"(package_throttle_total_time_ms)"),
		},
		Source: func(Options) (Sampler, error) {
			// Sources: Documentation/driver-api/thermal/sysfs-api.rst,
			// Documentation/hwmon/sysfs-interface.rst and arch/x86/kernel/cpu/mce/therm_throt.c. All files
			// that exist are used.
			var g gauges
			for _, dir := range matches(root.sys("class/thermal/thermal_zone*")) {
				label := labelled(strings.TrimPrefix(filepath.Base(dir), "thermal_"),
					readWord(filepath.Join(dir, "type")))
				g.addFolder(label, dir, gaugeFile{"temperature_c", "temp", 1e-3})
			}

			for _, path := range matches(root.sys("class/hwmon/hwmon*/temp*_input")) {
				g.add(sensorLabel(path)+"/temperature_c", path, 1e-3)
			}

			for _, dir := range matches(root.sys("class/thermal/cooling_device*")) {
				label := labelled(strings.Replace(filepath.Base(dir), "_device", "", 1),
					readWord(filepath.Join(dir, "type")))
				g.addFolder(label, dir, gaugeFile{"cooling_state", "cur_state", 1},
					gaugeFile{"cooling_limit", "max_state", 1})
			}

			for _, dir := range matches(root.sys("devices/system/cpu/cpu[0-9]*/thermal_throttle")) {
				g.addFolder(filepath.Base(filepath.Dir(dir)), dir, []gaugeFile{
					{"core_throttles", "core_throttle_count", 1},
					{"package_throttles", "package_throttle_count", 1},
					{"core_throttled_ns", "core_throttle_total_time_ms", 1e6},
					{"package_throttled_ns", "package_throttle_total_time_ms", 1e6},
				}...)
			}

			return g.sampler("no thermal zone, temperature sensor or throttle counter on this machine " +
				"(usual in virtual machines)")
		},
	}
}

// sensorLabel returns the label of a hwmon file, made of chip and input: "hwmon0.coretemp.temp1".
func sensorLabel(path string) string {
	dir, name := filepath.Split(path)
	input, _, _ := strings.Cut(name, "_")
	return labelled(filepath.Base(dir), readWord(filepath.Join(dir, "name")), input)
}
