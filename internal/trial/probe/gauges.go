package probe

import (
	"errors"
	"path/filepath"
	"strings"
)

// gauge is one small file that holds one number.
type gauge struct {
	column string
	f      *file
	scale  float64
	wrap   float64 // the raw number starts again at 0 after this one; 0 = never
	raw    float64 // last raw number, for wrap
	turns  float64
}

// gauges collects the files that exist and can be read.
type gauges struct {
	list   []gauge
	denied string // a file that exists and may not be read
}

// add takes a file of a number as a column; it reports whether it could.
func (g *gauges) add(column, path string, scale float64) bool {
	f, err := openFile(path, "")
	if err != nil {
		var missing *absentError
		if !errors.As(err, &missing) {
			g.denied = err.Error()
		}
		return false
	}
	if v := f.number(); v != v { // some files refuse every read
		f.Close()
		return false
	}
	g.list = append(g.list, gauge{column: column, f: f, scale: scale})
	return true
}

// sampler returns the collection as a sampler, or the reason why it is empty.
func (g *gauges) sampler(why string) (Sampler, error) {
	if len(g.list) > 0 {
		return &gaugeSampler{list: g.list}, nil
	}
	if g.denied != "" {
		return nil, absent("%s", g.denied)
	}
	return nil, absent("%s", why)
}

type gaugeSampler struct{ list []gauge }

func (s *gaugeSampler) Columns() []string {
	columns := make([]string, len(s.list))
	for i, g := range s.list {
		columns[i] = g.column
	}
	return columns
}

func (s *gaugeSampler) Sample(dst []float64) error {
	for i := range s.list {
		dst[i] = s.list[i].value()
	}
	return nil
}

func (g *gauge) value() float64 {
	v := g.f.number()
	if g.wrap > 0 && v == v {
		if v < g.raw {
			g.turns++
		}
		g.raw = v
		v += g.turns * g.wrap
	}
	return v * g.scale
}

func (s *gaugeSampler) Close() error {
	var errs []error
	for _, g := range s.list {
		errs = append(errs, g.f.Close())
	}
	return errors.Join(errs...)
}

// matches lists the paths of a pattern in numerical order: "zone2" before "zone10".
func matches(pattern string) []string {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return nil
	}
	sortNatural(paths)
	return paths
}

// labelled joins parts to a column's label: no blanks, no slash.
func labelled(parts ...string) string {
	l := strings.Join(parts, ".")
	return strings.NewReplacer("/", "_", " ", "_").Replace(l)
}
