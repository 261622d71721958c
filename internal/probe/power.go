package probe

import (
	"path/filepath"
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func power(root Root) Probe {
	return Probe{
		Name:  "power",
		Scope: record.ScopeHost,
		Slow:  true,
		Stems: []record.Metric{
			counter("energy_j", "J", "energy drawn by a RAPL domain (\"intel-rapl:0.package-0\"; a "+
				"package includes its subdomains) or counted by a sensor"),
			level("power_w", "W", "power drawn now, from a sensor (\"hwmon0.name.power1\")"),
		},
		Source: func(Options) (Sampler, error) {
			// Powercap counts microjoules and wraps after max_energy_range_uj
			// (Documentation/power/powercap/powercap.rst). Since Linux 5.10, only root may read it. Hwmon has
			// microwatts and microjoules (Documentation/hwmon/sysfs-interface.rst). All files that exist are
			// used.
			var g gauges
			for _, dir := range matches(root.sys("class/powercap/*:*")) {
				label := labelled(filepath.Base(dir), readWord(filepath.Join(dir, "name")))
				if !g.add(label+"/energy_j", filepath.Join(dir, "energy_uj"), 1e-6) {
					continue
				}

				top, _ := strconv.ParseFloat(readWord(filepath.Join(dir, "max_energy_range_uj")), 64)
				g.list[len(g.list)-1].wrap = max(top, 0)
			}

			for _, path := range matches(root.sys("class/hwmon/hwmon*/energy*_input")) {
				g.add(sensorLabel(path)+"/energy_j", path, 1e-6)
			}

			for _, path := range matches(root.sys("class/hwmon/hwmon*/power*_input")) {
				g.add(sensorLabel(path)+"/power_w", path, 1e-6)
			}

			for _, path := range matches(root.sys("class/hwmon/hwmon*/power*_average")) {
				if len(matches(path[:len(path)-len("average")]+"input")) == 0 {
					g.add(sensorLabel(path)+"/power_w", path, 1e-6)
				}
			}

			return g.sampler("no energy counter or power sensor on this machine (no RAPL, no hwmon power; " +
				"usual in virtual machines)")
		},
	}
}
