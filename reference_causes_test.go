package chokepoint_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
)

// TestReferenceListsEveryCause: the classes of limits that a diagnosis can name, and what helps against each.
func TestReferenceListsEveryCause(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Causes\n" + written + `
The classes of limits, by their fixed name in the document. *Two ends*: whether the class can be recognised
without telemetry of the router. A class whose data source is missing is listed as not examined, never as ruled out.

| class | what it is | when it is named | two ends |
|---|---|---|---|
`)
	for _, r := range diagnosis.Rules() {
		fmt.Fprintf(&b, "| [`%[1]s`](#%[1]s) | %[2]s | %[3]s | %[4]s |\n", r.Class, r.Label, r.Means,
			map[bool]string{true: "yes", false: "no"}[r.Has("ends")])
	}

	fmt.Fprintf(&b, "| `%s` | no known class | no class has a probability of a half or more | yes |\n",
		diagnosis.Unknown)
	for _, r := range diagnosis.Rules() {
		fmt.Fprintf(&b, "\n## %s\n\n", r.Class)
		if len(r.Remedies) == 0 {
			b.WriteString("Nothing to change.\n")
			continue
		}

		b.WriteString("| system | what helps | commands | risk |\n|---|---|---|---|\n")
		for _, m := range r.Remedies {
			commands := strings.ReplaceAll(strings.Join(m.Commands, "`<br>`"), "|", "\\|")
			if commands != "" {
				commands = "`" + commands + "`"
			}

			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", cmp.Or(m.System, "any"), m.Do, orDash(commands),
				orDash(m.Risk))
		}
	}

	holdPage(t, "docs/reference/causes.md", b.String())
}
