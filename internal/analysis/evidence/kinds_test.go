package evidence

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestKindsAreWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range Kinds() {
		key := k.Class + k.Name
		if k.Name == "" || k.Class == "" || k.Of == "" || len(k.Means) < 20 ||
			seen[key] {
			t.Errorf("kind %+v: got an empty field, or the name of another one", k)
		} else {
			seen[key] = true
		}
	}

	if KindOf("drift").Class != ClassReason || KindOf("of a newer version").Name != "of a newer version" {
		t.Error("kinds are not found by name")
	}
}

// said matches the kind of a reason, caveat or finding in the code: {Kind: "cut", Text: …}.
var said = regexp.MustCompile(`(report\.Item)?\{\s*Kind: "([a-z0-9-]+)",\s*Text: `)

// TestKindsAreDeclared: Kinds has every kind that the code uses.
func TestKindsAreDeclared(t *testing.T) {
	var names []string
	for _, k := range Kinds() {
		names = append(names, k.Name)
	}

	found := 0
	err := filepath.WalkDir("../../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && d.Name() == "testdata" {
			return filepath.SkipDir
		}

		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
			strings.Contains(path, "/report/") { // whose items are lines of a page
			return nil
		}

		text, err := os.ReadFile(path)
		for _, m := range said.FindAllStringSubmatch(string(text), -1) {
			if found++; m[1] == "" && !slices.Contains(names, m[2]) { // an item is a line of a page
				t.Errorf("%s has the kind %s, which Kinds lacks", path, m[2])
			}
		}

		return err
	})
	if err != nil || found < 20 {
		t.Errorf("found %d kinds in the code, %v; want 20 or more", found, err)
	}
}

// TestKindsHaveShortWords: a reason, and a caveat of a cell or a trial, has words that a list has room for.
func TestKindsHaveShortWords(t *testing.T) {
	for _, k := range Kinds() {
		counted := k.Class == ClassReason || k.Class == ClassCaveat && k.Of != OfRun
		if words := k.Words(); counted && (k.Short == "" || len(words) > 60 || words == k.Name) {
			t.Errorf("%s: %q", k.Name, words)
		}
	}

	if got := KindOf("of-a-newer-version").Words(); got != "of-a-newer-version" {
		t.Errorf("an unknown kind is called %q", got)
	}
}
