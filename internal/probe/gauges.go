package probe

import (
	"cmp"
	"errors"
	"path/filepath"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// gauge describes a file that contains one number.
type gauge struct {
	f     *file
	scale float64
	wrap  float64 // value at which the number wraps to 0; 0 means that it never wraps
	raw   float64 // last number read, to detect a wrap
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

// gauges samples all files of a list that exist and are readable.
type gauges struct {
	columns
	list   []gauge
	denied string // reason why an existing file is not readable
}

// add adds a file as a column. It reports whether the file contains a number.
func (g *gauges) add(column, path string, scale float64) bool {
	f, err := openFile(path, "")
	if err != nil {
		if !errors.Is(err, host.ErrUnsupported) {
			g.denied = err.Error()
		}
		return false
	}

	v := f.number()
	if v != v { // v is NaN; some files fail every read
		f.Close()
		return false
	}

	g.columns, g.list = append(g.columns, column), append(g.list, gauge{f: f, scale: scale})
	return true
}

// gaugeFile holds the name of a file with one number, and the stem of its column.
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

// sampler returns g, or the reason why it has no columns.
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

func (g *gauges) Close() (err error) {
	for _, g := range g.list {
		err = errors.Join(err, g.f.Close())
	}
	return err
}

// matches lists the paths that match a pattern, in natural order: "zone2" comes before "zone10".
func matches(pattern string) []string {
	paths, _ := filepath.Glob(pattern) // Glob fails only if the pattern is invalid
	sortNatural(paths)
	return paths
}

// labelled joins parts into a label and replaces spaces and slashes.
func labelled(parts ...string) string {
	return strings.NewReplacer("/", "_", " ", "_").Replace(strings.Join(parts, "."))
}
