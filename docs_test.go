package chokepoint_test

import (
	"encoding/json"
	"flag"
	"go/ast"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func readText(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}

	return string(b)
}

// documents returns the Markdown files that people read, by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	tr, err := wholeTree()
	if err != nil {
		t.Fatal(err)
	}

	docs := map[string]string{}
	for name, data := range tr.files {
		if strings.HasSuffix(name, ".md") && !strings.Contains(name, "testdata/") {
			docs[name] = string(data)
		}
	}

	return docs
}

var codeWord = regexp.MustCompile("`([^`]+)`")

// layerRows reads the rows "| 3 | `plan`, `analysis` … |" of a document.
func layerRows(text string) [][]string {
	var rows [][]string
	for _, line := range strings.Split(text, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 4 {
			continue
		}

		n, err := strconv.Atoi(strings.TrimSpace(cells[1]))
		if err != nil || n != len(rows) {
			continue
		}

		var names []string
		for _, m := range codeWord.FindAllStringSubmatch(cells[2], -1) {
			names = append(names, m[1])
		}

		rows = append(rows, names)
	}
	return rows
}

func TestArchitectureShowsTheLayerTable(t *testing.T) {
	diff := cmp.Diff(layers, layerRows(readText(t, "docs/architecture.md")))
	if diff != "" {
		t.Errorf("layers of layers_test.go (-) and of docs/architecture.md (+) differ:\n%s", diff)
	}
}

// deadLinks returns the links of a document that lead nowhere: to a file that
// does not exist, or to a heading that no document has.
func deadLinks(name string, docs map[string]string, exists func(string) bool) []string {
	var dead []string
	for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(withoutCode(docs[name]),
		-1) {
		link := m[1]
		if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
			continue
		}

		file, anchor, _ := strings.Cut(link, "#")
		target := name
		if file != "" {
			target = path.Join(path.Dir(name), file)
		}

		switch {
		case !exists(target):
			dead = append(dead, link)
		case anchor != "" && !slices.Contains(anchors(docs[target]), anchor):
			dead = append(dead, link)
		}
	}
	return dead
}

// withoutCode drops fenced blocks, in which brackets mean something else.
func withoutCode(text string) string {
	var kept []string
	inside := false
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "```") {
			inside = !inside
		} else if !inside {
			kept = append(kept, line)
		}
	}

	return strings.Join(kept, "\n")
}

var notInAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

// anchors returns the names that a forge gives to the headings of a document.
func anchors(text string) []string {
	var names []string
	for _, line := range strings.Split(withoutCode(text), "\n") {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line,
			"#") {
			name := notInAnchor.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
			names = append(names, strings.ReplaceAll(name, " ", "-"))
		}
	}
	return names
}

func TestLinksResolve(t *testing.T) {
	docs := documents(t)
	exists := func(name string) bool {
		_, err := os.Stat(name)
		return err == nil
	}
	for name := range docs {
		for _, link := range deadLinks(name, docs, exists) {
			t.Errorf("%s: link %s leads nowhere", name, link)
		}
	}
}

var namedFile = regexp.MustCompile("`([a-z0-9_*/]+\\.go)`")

// missingFiles are the source files that a page names, perhaps with a pattern, and that are not there.
func missingFiles(page string, sources []string) []string {
	var found []string
	for _, m := range namedFile.FindAllStringSubmatch(page, -1) {
		if !slices.ContainsFunc(sources, func(name string) bool {
			there, _ := path.Match(m[1], path.Base(name))
			return there || strings.HasSuffix("/"+name, "/"+m[1])
		}) {
			found = append(found, m[1])
		}
	}
	return found
}

// TestNamedFilesExist: what a page says stands in a file, stands in one that is there. Measurements are of
// their day.
func TestNamedFilesExist(t *testing.T) {
	tr, err := wholeTree()
	if err != nil {
		t.Fatal(err)
	}

	var sources []string
	for _, f := range tr.sources {
		sources = append(sources, f.path)
	}

	for name, page := range documents(t) {
		if strings.HasPrefix(name, "docs/measured/") {
			continue
		}

		for _, file := range missingFiles(page, sources) {
			t.Errorf("%s names %s, which does not exist", name, file)
		}
	}

	got := missingFiles("`a.go`, `b*.go`, `x/a.go`, `y/a.go`", []string{"x/a.go"})
	if !slices.Equal(got,
		[]string{"b*.go", "y/a.go"}) {
		t.Errorf("missing of a planted page: %v", got)
	}
}

func TestLinkCheckCanFail(t *testing.T) {
	docs := map[string]string{
		"README.md": "[a](docs/guide.md) [b](docs/none.md) [c](docs/guide.md#two-words) " +
			"[d](docs/guide.md#three) [e](#here) [f](https://example.org/x)\n# Here\n",
		"docs/guide.md": "## Two `words`!\n[up](../README.md)\n```text\n[x](y)\n# Three\n```\n",
	}
	exists := func(name string) bool { _, ok := docs[name]; return ok }
	want := []string{"docs/none.md", "docs/guide.md#three"}
	diff := cmp.Diff(want, deadLinks("README.md", docs, exists))
	if diff != "" {
		t.Errorf("dead links of README.md (-want +got):\n%s", diff)
	}

	got := deadLinks("docs/guide.md", docs, exists)
	if got != nil {
		t.Errorf("dead links of docs/guide.md: got %v, want none", got)
	}
}

// required returns the modules that a go.mod requires directly, with their versions, but not this repository.
func required(t *testing.T, dir string) []string {
	t.Helper()
	out, err := exec.Command("go", "-C", dir, "mod", "edit", "-json").Output()
	if err != nil {
		t.Fatal(err)
	}

	var mod struct {
		Require []struct {
			Path, Version string
			Indirect      bool
		}
		Tool []struct{ Path string }
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}

	var list []string
	for _, r := range mod.Require {
		tool := slices.ContainsFunc(mod.Tool, func(x struct{ Path string }) bool {
			return strings.HasPrefix(x.Path, r.Path+"/")
		})
		if r.Path != module && (!r.Indirect || tool) {
			list = append(list, r.Path+" "+r.Version)
		}
	}

	return list
}

// TestDependenciesHaveAReason: docs/dependencies.md has a line for every module that a go.mod requires
// directly, at the same version, and for no other.
func TestDependenciesHaveAReason(t *testing.T) {
	want := slices.Concat(required(t, "."), required(t, "bench"), required(t, "dist"))
	slices.Sort(want)
	want = slices.Compact(want)
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (v[^ |]+) \\| [^|]{4,} \\| [^|]{10,} \\|$")
	var got []string
	for _, m := range row.FindAllStringSubmatch(readText(t, "docs/dependencies.md"), -1) {
		got = append(got, m[1]+" "+m[2])
	}

	slices.Sort(got)
	diff := cmp.Diff(want, got)
	if diff != "" {
		t.Errorf("go.mod of all modules (-) and docs/dependencies.md (+) differ:\n%s", diff)
	}
}

// constants returns the string constants of a package whose names begin with
// a prefix.
func constants(t *testing.T, pkg, prefix string) []string {
	t.Helper()
	tr, err := wholeTree()
	if err != nil {
		t.Fatal(err)
	}

	var values []string
	for _, f := range tr.production() {
		if f.pkg != pkg {
			continue
		}

		ast.Inspect(f.ast, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, prefix) {
				return true
			}

			if s, ok := firstText(spec.Values[0]); ok {
				values = append(values, s)
			}

			return true
		})
	}

	if len(values) == 0 {
		t.Fatalf("package %s has no constant %s*", pkg, prefix)
	}

	return values
}

// rowNames returns the words in code quotes of the first cells of a
// document's tables.
func rowNames(text string) []string {
	var names []string
	for _, line := range strings.Split(text, "\n") {
		cells := strings.Split(line, "|")
		if strings.HasPrefix(line, "|") && len(cells) > 2 {
			for _, m := range codeWord.FindAllStringSubmatch(cells[1], -1) {
				names = append(names, m[1])
			}
		}
	}
	return names
}

var update = flag.Bool("update", false, "rewrite the parts of documents that the code knows best")

// holdBlock compares the part of a document between "<!-- name: … -->" and
// "<!-- end -->" with what the code says; -update rewrites it.
func holdBlock(t *testing.T, file, name, want string) {
	t.Helper()
	text := readText(t, file)
	before, rest, ok := strings.Cut(text, "<!-- "+name+":")
	head, rest, ok2 := strings.Cut(rest, "-->\n")
	got, after, ok3 := strings.Cut(rest, "<!-- end -->")
	if !ok || !ok2 || !ok3 {
		t.Fatalf("%s has no block %s", file, name)
	}

	if got == want {
		return
	}

	if !*update {
		t.Errorf("block %s of %s differs from the code (-code +document); go generate rewrites it:\n%s",
			name, file, cmp.Diff(want, got))
		return
	}

	text = before + "<!-- " + name + ":" + head + "-->\n" + want + "<!-- end -->" + after
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestCommandLinesStandInTestedBlocks: .ci/run executes the blocks marked
// "sh" of every document; a command line in another kind of block would never
// be tried.
func TestCommandLinesStandInTestedBlocks(t *testing.T) {
	for name, text := range documents(t) {
		for _, line := range untestedCommands(text) {
			t.Errorf("%s: %q stands in a block that is not marked sh", name, line)
		}
	}
}

var commandLine = regexp.MustCompile(`^\s*(\$ )?(sudo |[A-Z_]+=\S+ )*(chokepoint|chokepoint-agent|go (-C \S+ )?(run|test|build|generate|tool)|\.ci/\w+|git clone)( |$)`)

func untestedCommands(text string) []string {
	var lines []string
	language, inside := "", false
	for _, line := range strings.Split(text, "\n") {
		if lang, ok := strings.CutPrefix(line, "```"); ok {
			inside, language = !inside, strings.TrimSpace(lang)
			continue
		}

		if inside && language != "sh" && commandLine.MatchString(line) {
			lines = append(lines, line)
		}
	}

	return lines
}

func TestUntestedCommandsAreFound(t *testing.T) {
	text := "```sh\nchokepoint list\n```\n```text\nchokepoint run  the default plan\n$ chokepoint " +
		"list\nchokepoint: error: x\n```\n```\nsudo go run ./cmd/chokepoint\n```\n"
	want := []string{"chokepoint run  the default plan", "$ chokepoint list", "sudo go run ./cmd/chokepoint"}
	diff := cmp.Diff(want, untestedCommands(text))
	if diff != "" {
		t.Errorf("untested commands (-want +got):\n%s", diff)
	}
}
