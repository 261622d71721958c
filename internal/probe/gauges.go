package probe

import (
	"cmp"
	"errors"
	"path/filepath"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// gauge is a small file that contains one number.
type gauge struct {
	f     *file
	scale float64
	wrap  float64 // value after which the raw number restarts at 0; 0 = never
	raw   float64 // last raw number, for wrap
	turns float64
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

// gauges samples the files that exist and are readable.
type gauges struct {
	columns
	list   []gauge
	denied string // a file that exists but is not readable
}

// add adds a file with a number as a column; it reports whether it could.
func (g *gauges) add(column, path string, scale float64) bool {
	f, err := openFile(path, "")
	if err != nil {
		if !errors.Is(err, host.ErrUnsupported) {
			g.denied = err.Error()
		}
		return false
	}

	v := f.number()
	if v != v { // some files refuse every read
		f.Close()
		return false
	}

	g.columns, g.list = append(g.columns, column), append(g.list, gauge{f: f, scale: scale})
	return true
}

// gaugeFile is a file in a directory that contains one number, and the stem of its column.
type gaugeFile struct {
	stem, name string
	scale      float64
}

// addFolder adds files of a directory as columns with a label.
func (g *gauges) addFolder(label, dir string, files ...gaugeFile) {
	for _, f := range files {
		g.add(label+"/"+f.stem, filepath.Join(dir, f.name), f.scale)
	}
}

// sampler returns the collection, or the reason why it is empty.
func (g *gauges) sampler(why string) (Sampler, error) {
	if len(g.list) > 0 {
		return g, nil
	}
	return nil, absent("%s", cmp.Or(g.denied, why))
}

func (g *gauges) Sample(dst []float64) error {
	for i := range g.list {
		dst[i] = g.list[i].value()
	}
	return nil
}

func (g *gauges) Close() error {
	var errs []error
	for _, g := range g.list {
		errs = append(errs, g.f.Close())
	}
	return errors.Join(errs...)
}

// matches lists the paths of a pattern in numerical order: "zone2" before "zone10".
func matches(pattern string) []string {
	paths, _ := filepath.Glob(pattern) // only an invalid pattern is an error
	sortNatural(paths)
	return paths
}

// labelled joins parts to a column's label, without blanks and slashes.
func labelled(parts ...string) string {
	return strings.NewReplacer("/", "_", " ", "_").Replace(strings.Join(parts, "."))
}
