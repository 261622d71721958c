package registry_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
)

// entry is one thing that the registry lists.
type entry struct {
	Family string // topology, tunnel, knob, engine, prober, probe
	Name   string
}

// entries lists everything that the registry has, in the order shown.
func entries() []entry {
	var out []entry
	add := func(family, name string) {
		out = append(out, entry{family, name})
	}
	for _, t := range lab.Topologies() {
		add("topology", t.Name)
	}

	for _, t := range node.Tunnels() {
		add("tunnel", t.Name())
	}

	for _, k := range node.Knobs() {
		add("knob", k.Name())
	}

	for _, e := range node.Engines() {
		add("engine", e.Name())
	}

	for _, l := range node.Probers() {
		add("prober", l.Name())
	}

	for _, p := range node.Probes() {
		add("probe", p.Name)
	}

	return out
}

// untested says of each entry what is wrong with its test: none is named, or the one that is named does not
// exist below root.
func untested(root fs.FS, entries []entry, testOf func(family, name string) string) ([]string,
	error) {
	var found []string
	tests := map[string][]string{} // package → its tests
	for _, e := range entries {
		test := testOf(e.Family, e.Name)
		dot := strings.LastIndex(test, ".")
		if dot < 0 || !strings.HasPrefix(test[dot+1:], "Test") {
			found = append(found, fmt.Sprintf("%s %s names no test on a real kernel, got %q", e.Family,
				e.Name, test))
			continue
		}

		pkg := test[:dot]
		name := test[dot+1:]
		if tests[pkg] == nil {
			var err error
			if tests[pkg], err = testsOf(root, pkg); err != nil {
				return nil, err
			}
		}

		if !slices.Contains(tests[pkg], name) {
			found = append(found, fmt.Sprintf("%s %s names %s, which does not exist", e.Family, e.Name,
				test))
		}
	}

	return found, nil
}

// testsOf parses the test files of a package.
func testsOf(root fs.FS, pkg string) ([]string, error) {
	files, err := fs.Glob(root, pkg+"/*_test.go")
	if err != nil {
		return nil, err
	}

	names := []string{}
	for _, file := range files {
		b, err := fs.ReadFile(root, file)
		if err != nil {
			return nil, err
		}

		f, err := parser.ParseFile(token.NewFileSet(), file, b, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}

		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				names = append(names, fn.Name.Name)
			}
		}
	}

	return names, nil
}

func TestEveryEntryHasATestOnARealKernel(t *testing.T) {
	found, err := untested(os.DirFS(".."), entries(), kernelTest)
	must(t, err)
	for _, f := range found {
		t.Error(f)
	}

	for _, e := range entries() {
		switch test := kernelTest(e.Family, e.Name); test {
		case "lab/knob.TestKnobsApplyWhatTheyReadAndRestore", "lab.TestGuestKnobs", "lab.TestGuestCores":
			t.Errorf("%s %s names %s, which shows that it is read back, and no effect", e.Family, e.Name,
				test)
		}
	}
}

func TestEntriesAreWholeAndUnique(t *testing.T) {
	seen := map[string]bool{}
	families := map[string]int{}
	for _, e := range entries() {
		key := e.Family + " " + e.Name
		if seen[key] || e.Name == "" {
			t.Errorf("entry %q: got it twice or without a name, want each once", key)
		}

		seen[key] = true
		families[e.Family]++
	}

	for _, family := range []string{"topology", "tunnel", "knob", "engine", "prober", "probe"} {
		if families[family] == 0 {
			t.Errorf("family %s: got no entry, want at least one", family)
		}
	}
}

// TestUntestedEntriesAreFound plants one fault of each kind.
func TestUntestedEntriesAreFound(t *testing.T) {
	root := fstest.MapFS{"lab/x_test.go": {Data: []byte("package lab\nfunc TestThere(t *testing.T) " +
		"{}\nfunc " +
		"(x) TestMethod() {}\n// TestComment\n")}}
	tests := map[string]string{"good": "lab.TestThere", "none": "", "word": "lab.helper",
		"gone": "lab.TestGone", "method": "lab.TestMethod", "comment": "lab.TestComment",
		"elsewhere": "lab/knob.TestThere"}
	var planted []entry
	for _, name := range []string{"good", "none", "word", "gone", "method", "comment", "elsewhere"} {
		planted = append(planted, entry{Family: "knob", Name: name})
	}

	got, err := untested(root, planted, func(_, name string) string { return tests[name] })
	want := []string{
		`knob none names no test on a real kernel, got ""`,
		`knob word names no test on a real kernel, got "lab.helper"`,
		`knob gone names lab.TestGone, which does not exist`,
		`knob method names lab.TestMethod, which does not exist`,
		`knob comment names lab.TestComment, which does not exist`,
		`knob elsewhere names lab/knob.TestThere, which does not exist`,
	}
	diff := cmp.Diff(want, got)
	if diff != "" || err != nil {
		t.Errorf("faults found (-want +got), %v:\n%s", err, diff)
	}
}
