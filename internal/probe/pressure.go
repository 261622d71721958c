package probe

import (
	"bytes"
	"errors"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

var errPressure = errors.New("parse pressure: want \"some avg10=… total=…\"")

// parsePressure parses a file of /proc/pressure (kernel/sched/psi.c, psi_show;
// Documentation/accounting/psi.rst). It returns the number of microseconds in which some or all non-idle
// tasks waited. The value of a missing line is NaN. Before Linux 5.13, the cpu file has no line "full".
func parsePressure(b []byte) (some, full float64, err error) {
	some, full = nan, nan
	for l := range bytes.Lines(b) {
		key, rest := word(l)
		if len(key) == 0 {
			continue
		}

		i := bytes.Index(rest, []byte("total="))
		if i < 0 {
			return 0, 0, errPressure
		}

		w, _ := word(rest[i+len("total="):])
		v, ok := number(w)
		if !ok {
			return 0, 0, errPressure
		}

		switch string(key) {
		case "some":
			some = float64(v)
		case "full":
			full = float64(v)
		}
	}

	if some != some {
		return 0, 0, errPressure
	}

	return some, full, nil
}

func pressure(root Root) Probe {
	const why = "the kernel has no pressure stall information (CONFIG_PSI, or psi=1 at boot)"
	var parts []namedFile
	var names []string
	for _, resource := range []string{"cpu", "memory", "io"} {
		some := resource + "/some_ns"
		full := resource + "/full_ns"
		names = append(names, some, full)
		parts = append(parts, namedFile{root.proc("pressure/" + resource),
			func(b []byte, want map[string]int, dst []float64) error {
				s, f, err := parsePressure(b)
				if at, ok := want[some]; ok {
					dst[at] = s
				}

				if at, ok := want[full]; ok {
					dst[at] = f
				}

				return err
			}, why, 1e3})
	}

	return Probe{
		Name:  "pressure",
		Scope: record.ScopeHost,
		Slow:  true,
		Stems: []record.Metric{
			counter("some_ns", "ns", "time during which at least one task waited for the resource"),
			counter("full_ns", "ns", "time during which all non-idle tasks waited for the resource"),
		},
		Source: func(Options) (Sampler, error) {
			s, err := openNamed(parts, names, names)
			if err != nil && !errors.Is(err, host.ErrUnsupported) { // with psi=0, the first read fails
				err = absent("%v: %s", err, why)
			}
			return s, err
		},
	}
}
