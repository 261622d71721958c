package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v4"

	"github.com/chokepoint-lab/chokepoint/internal/registry"
)

// Every flag and every command has a script that uses it.
func TestEveryFlagHasAScript(t *testing.T) {
	lines := scriptLines(t)
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		cmd.InitDefaultHelpFlag()
		path := cmd.CommandPath()
		if !uses(lines, path, "") {
			t.Errorf("%s: got no script, want one", path)
		}

		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" && !f.Hidden && !uses(lines, path, "--"+f.Name) {
				t.Errorf("%s --%s: got no script, want one", path, f.Name)
			}
		})
		for _, sub := range cmd.Commands() {
			if !sub.Hidden {
				visit(sub)
			}
		}
	}
	visit(newRoot(&program{}))
}

// planKeys lists the keys of a plan by their full path, as the two plans name them that must name every key.
// Below a list of cells, thresholds or conditions, plans choose the keys.
func planKeys(t *testing.T) []string {
	t.Helper()
	var keys []string
	var walk func(path string, m map[string]any)
	walk = func(path string, m map[string]any) {
		for name, value := range m {
			below, ok := value.(map[string]any)
			switch _, list := value.([]any); {
			case path == "" && (list || name == "matrix" || name == "conditions" || name == "baseline"):
				keys = append(keys, name+".")
			case ok:
				walk(path+name+".", below)
			default:
				keys = append(keys, path+name)
			}
		}
	}
	for _, file := range []string{"complete.yaml", "search.yaml"} {
		text, err := os.ReadFile("../../internal/plan/testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}

		var m map[string]any
		if err := yaml.Unmarshal(text, &m); err != nil {
			t.Fatal(err)
		}

		walk("", m)
	}

	slices.Sort(keys)
	return slices.Compact(keys)
}

// Every key of a plan is set by a script, and so is every factor.
func TestEveryPlanKeyHasAScript(t *testing.T) {
	lines := scriptLines(t)
	keys := planKeys(t)
	for _, name := range registry.Vocabulary().Names() {
		keys = append(keys, "matrix."+name)
	}

	for _, key := range keys {
		if !uses(lines, "chokepoint", "--set "+key) && !uses(lines, "chokepoint", "--set '"+key) {
			t.Errorf("plan key %s: got no script, want one that sets it", key)
		}
	}
}

func uses(lines []string, command, word string) bool {
	for _, l := range lines {
		_, rest, ok := strings.Cut(l+" ", command+" ")
		if ok && strings.Contains(" "+rest, word) {
			return true
		}
	}
	return false
}

// scriptLines returns the lines of all scripts that run the program.
func scriptLines(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/script/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("scripts: got %d, %v, want some", len(files), err)
	}

	var lines []string
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}

		for l := range strings.Lines(string(data)) {
			if l = strings.TrimSpace(l); strings.Contains(l, "exec chokepoint") ||
				strings.HasPrefix(l, "exits ") || strings.Contains(l, "] exits ") {
				lines = append(lines, l)
			}
		}
	}

	return lines
}
