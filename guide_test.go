package chokepoint_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/registry"
)

// TestGuideShowsTheCompletePlan: the one that the plan's own tests read.
func TestGuideShowsTheCompletePlan(t *testing.T) {
	text := strings.TrimSpace(readText(t, "internal/plan/testdata/complete.yaml"))
	holdBlock(t, "docs/guide.md", "complete-plan", "\n```yaml\n"+text+"\n```\n\n")
}

// TestGuideListsEveryFactor: what a plan may speak of, from the registry.
func TestGuideListsEveryFactor(t *testing.T) {
	v := registry.Vocabulary()
	var b strings.Builder
	b.WriteString("\n| factor | default | levels | meaning |\n|---|---|---|---|\n")
	for _, name := range v.Names() {
		full, shown := name, name
		if strings.HasSuffix(name, ":") {
			full, shown = name+"net.core.rmem_max", name+"NAME"
		}
		f, ok := v.Factor(full)
		if !ok {
			t.Errorf("factor %s: listed, but not found", full)
			continue
		}
		if f.Placed {
			shown += "[@PLACE]"
		}
		def := f.Default
		switch {
		case def == "" && f.Derive != nil:
			def = "from the others"
		case def == "":
			def = "as found"
		}
		levels := strings.Join(f.Levels, ", ")
		if levels == "" {
			levels = f.Unit
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", shown, def, levels, f.Doc)
	}
	b.WriteString("\n")
	holdBlock(t, "docs/guide.md", "factors", b.String())
}

// TestGuideListsEveryCommand: the help of every command of the built program, and so every flag.
func TestGuideListsEveryCommand(t *testing.T) {
	program := filepath.Join(t.TempDir(), "chokepoint")
	if said, err := exec.Command("go", "build", "-buildvcs=false", "-o", program,
		"./cmd/chokepoint").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, said)
	}
	var b strings.Builder
	b.WriteString("\n")
	describe(t, &b, program)
	holdBlock(t, "docs/guide.md", "commands", b.String())
}

// describe writes the help of a command and of those below it.
func describe(t *testing.T, b *strings.Builder, program string, words ...string) {
	t.Helper()
	cmd := exec.Command(program, append(slices.Clone(words), "--help")...)
	cmd.Env = append(os.Environ(), "HOME=/nonexistent", "XDG_DATA_HOME=/nonexistent",
		"XDG_STATE_HOME=/nonexistent")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v --help: %v", words, err)
	}
	about, rest, ok := strings.Cut(string(out), "\n\nUSAGE\n")
	if !ok {
		t.Fatalf("%v --help: got %q, want a section USAGE", words, out)
	}
	usage, _, _ := strings.Cut(rest, "\n\nEXIT STATUS\n")
	subs := subcommands(usage)
	if len(subs) == 0 {
		fmt.Fprintf(b, "#### %s\n\n%s\n\n```text\n%s\n```\n\n", strings.Join(words, " "), about,
			indented(usage))
	}
	for _, sub := range subs {
		if len(words) > 0 || sub != "help" && sub != "completion" && sub != "version" {
			describe(t, b, program, append(slices.Clone(words), sub)...)
		}
	}
}

// subcommands reads the names below "COMMANDS".
func subcommands(usage string) []string {
	_, rest, ok := strings.Cut(usage, "\nCOMMANDS\n")
	if !ok {
		return nil
	}
	list, _, _ := strings.Cut(rest, "\n\n")
	var names []string
	for _, line := range strings.Split(list, "\n") {
		if fields := strings.Fields(line); len(fields) > 1 {
			names = append(names, fields[0])
		}
	}
	return names
}

// indented marks the usage line as what it is, so that nobody takes it for a command line to be tried.
func indented(usage string) string {
	first, rest, _ := strings.Cut(usage, "\n")
	return "usage: " + strings.TrimSpace(first) + "\n" + strings.ReplaceAll(rest, "\nFLAGS\n", "\n")
}
