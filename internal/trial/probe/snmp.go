package probe

import (
	"bytes"
	"errors"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

var errSnmp = errors.New("parse protocol counters: want pairs of a heading and a line of numbers")

// parseSnmp reads the format of /proc/net/snmp and /proc/net/netstat: for each protocol a line "Proto:
// Name…" and a line "Proto: value…" (net/ipv4/proc.c). It sets dst[want[Proto+Name]], which is nstat(8)'s
// name. On an error nothing is to be taken from dst.
func parseSnmp(b []byte, want map[string]int, dst []float64) error {
	var scratch [64]byte
	for len(b) > 0 {
		var names, values []byte
		names, b = line(b)
		values, b = line(b)
		proto, names := word(names)
		again, values := word(values)
		if len(proto) == 0 && len(again) == 0 {
			continue
		}
		if !bytes.Equal(proto, again) || !bytes.HasSuffix(proto, []byte(":")) {
			return errSnmp
		}
		proto = proto[:len(proto)-1]
		for {
			var n, v []byte
			n, names = word(names)
			v, values = word(values)
			if len(n) == 0 && len(v) == 0 {
				break
			}
			x, ok := signed(v)
			if !ok || len(n) == 0 {
				return errSnmp
			}
			if i, ok := want[string(append(append(scratch[:0], proto...), n...))]; ok {
				dst[i] = x
			}
		}
	}
	return nil
}

var errPairs = errors.New("parse counters: want lines of a name and a number")

// parsePairs reads lines of "name value …", such as /proc/net/snmp6, /proc/vmstat and /proc/meminfo (whose
// names end in a colon).
func parsePairs(b []byte, want map[string]int, dst []float64) error {
	for len(b) > 0 {
		var l []byte
		l, b = line(b)
		n, rest := word(l)
		if len(n) == 0 {
			continue
		}
		v, _ := word(rest)
		x, ok := signed(v)
		if !ok {
			return errPairs
		}
		if i, ok := want[string(bytes.TrimSuffix(n, []byte(":")))]; ok {
			dst[i] = x
		}
	}
	return nil
}

func snmp(root Root) Probe {
	const why = "the kernel has no protocol counters in /proc"
	var metrics []record.Metric
	for _, name := range snmpNames {
		metrics = append(metrics, counter(record.ScopeNode, name, "count",
			"protocol counter by nstat's name, see the kernel's snmp_counter document"))
	}
	return namedProbe("snmp", metrics, []namedFile{
		{root.proc("net/snmp"), parseSnmp, why, 1},
		{root.proc("net/netstat"), parseSnmp, "", 1},
		{root.proc("net/snmp6"), parsePairs, "", 1},
	}, snmpNames[:])
}

// namedProbe reads the wanted names out of some files, of which the first must exist.
func namedProbe(name string, metrics []record.Metric, parts []namedFile, names []string,
	stems ...string) Probe {
	return entry{name: name, slow: true, metrics: metrics, check: fileCheck(parts[0].path, parts[0].why),
		open: func() (Sampler, error) { return openNamed(parts, names, stems...) }}
}

// namedFile is a file that names its numbers. The first of a list must exist.
type namedFile struct {
	path  string
	parse func(b []byte, want map[string]int, dst []float64) error
	why   string
	scale float64
}

// namedSampler reads the wanted names out of some files; a name that no file has is no column.
type namedSampler struct {
	files   []*file
	parts   []namedFile
	want    map[string]int
	columns []string
	raw     []float64
}

// openNamed finds which of the names there are. stems are the columns' names; they are names themselves
// where names is left out.
func openNamed(parts []namedFile, names []string, stems ...string) (Sampler, error) {
	s := &namedSampler{want: map[string]int{}}
	for i, p := range parts {
		f, err := openFile(p.path, p.why)
		if err != nil && i == 0 {
			return nil, err
		}
		if err == nil {
			s.files, s.parts = append(s.files, f), append(s.parts, p)
		}
	}
	if len(stems) == 0 {
		stems = names
	}
	all := map[string]int{}
	for i, n := range names {
		all[n] = i
	}
	dst := make([]float64, len(names))
	fill(dst, nan)
	if err := s.readInto(all, dst); err != nil {
		s.Close()
		return nil, err
	}
	for i, v := range dst {
		if v == v { // present
			s.want[names[i]] = len(s.columns)
			s.columns = append(s.columns, stems[i])
		}
	}
	return s, nil
}

func (s *namedSampler) Columns() []string { return s.columns }

func (s *namedSampler) Sample(dst []float64) error {
	fill(dst, nan)
	return s.readInto(s.want, dst)
}

func (s *namedSampler) readInto(want map[string]int, dst []float64) error {
	if s.raw == nil || len(s.raw) != len(dst) {
		s.raw = make([]float64, len(dst))
	}
	for i, f := range s.files {
		b, err := f.read()
		if err != nil {
			return err
		}
		fill(s.raw, nan)
		if err := s.parts[i].parse(b, want, s.raw); err != nil {
			return err
		}
		for j, v := range s.raw {
			if v == v {
				dst[j] = v * s.parts[i].scale
			}
		}
	}
	return nil
}

func (s *namedSampler) Close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
