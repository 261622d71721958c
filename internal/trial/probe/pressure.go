package probe

import (
	"bytes"
	"errors"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

var errPressure = errors.New("parse pressure: want \"some avg10=… total=…\"")

// parsePressure reads a file of /proc/pressure (kernel/sched/psi.c, psi_show;
// Documentation/accounting/psi.rst): the microseconds in which some, and in which all, runnable tasks
// waited; NaN where a line is missing (cpu has no "full" before 5.13).
func parsePressure(b []byte) (some, full float64, err error) {
	some, full = nan, nan
	for len(b) > 0 {
		var l []byte
		l, b = line(b)
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
	metrics := []record.Metric{
		counter(record.ScopeHost, "some_ns", "ns", "time in which at least one task waited for the resource"),
		counter(record.ScopeHost, "full_ns", "ns",
			"time in which all tasks that were not idle waited for it"),
	}
	path := root.proc("pressure/cpu")
	return entry{name: "pressure", slow: true, metrics: metrics, check: fileCheck(path, why),
		open: func() (Sampler, error) { return openPressure(root, why) }}
}

type pressureSampler struct {
	files   []*file
	columns []string
}

func openPressure(root Root, why string) (Sampler, error) {
	s := &pressureSampler{}
	for _, resource := range []string{"cpu", "memory", "io"} {
		f, err := openFile(root.proc("pressure/"+resource), why)
		if err == nil {
			if _, err = f.read(); err != nil { // psi=0 fails here
				f.Close()
				err = absent("%v: %s", err, why)
			}
		}
		if err != nil {
			s.Close()
			return nil, err
		}
		s.files = append(s.files, f)
		s.columns = append(s.columns, resource+"/some_ns", resource+"/full_ns")
	}
	return s, nil
}

func (s *pressureSampler) Columns() []string { return s.columns }

func (s *pressureSampler) Sample(dst []float64) error {
	for i, f := range s.files {
		b, err := f.read()
		if err != nil {
			return err
		}
		some, full, err := parsePressure(b)
		if err != nil {
			return err
		}
		dst[2*i], dst[2*i+1] = some*1e3, full*1e3
	}
	return nil
}

func (s *pressureSampler) Close() error {
	for _, f := range s.files {
		f.Close()
	}
	return nil
}
