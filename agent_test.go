package chokepoint_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// target is a system that the agent is built for.
type target struct{ os, arch string }

var agentTargets = []target{
	{"linux", "amd64"}, {"linux", "arm64"}, {"linux", "arm"}, {"linux", "mips"},
	{"linux", "mipsle"}, {"linux", "riscv64"}, {"freebsd", "amd64"}, {"freebsd", "arm64"},
	{"darwin", "amd64"}, {"darwin", "arm64"},
}

// notInAgent are import paths, and everything below them, that have no place on a router: store, report,
// plan files, web and terminal.
var notInAgent = []string{
	"database/sql", "modernc.org", "html", "text/template", "go.yaml.in", "net/http", "crypto/tls",
	"golang.org/x/term", "github.com/spf13", "testing", "runtime/cgo",
	module + "/internal/record/store", module + "/internal/report", module + "/internal/plan",
	module + "/internal/analysis", module + "/internal/progress", module + "/internal/trial$",
	module + "/internal/lab$", module + "/internal/registry$", module + "/internal/labtest",
}

// forbiddenIn returns the dependencies that notInAgent names. A "$" means the package itself and nothing
// below it.
func forbiddenIn(dependencies []string) []string {
	var found []string
	for _, dep := range dependencies {
		if slices.ContainsFunc(notInAgent, func(p string) bool {
			exact, only := strings.CutSuffix(p, "$")
			return dep == exact || !only && strings.HasPrefix(dep, p+"/")
		}) {
			found = append(found, dep)
		}
	}
	return found
}

func dependencies(t *testing.T, dir, pkg string, to target) []string {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", pkg)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+to.os, "GOARCH="+to.arch)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -deps %s for %s/%s: %v\n%s", pkg, to.os, to.arch, err, stderr.String())
	}

	return strings.Fields(string(out))
}

func TestAgentCarriesNoHeavyDependency(t *testing.T) {
	for _, to := range agentTargets {
		t.Run(to.os+"-"+to.arch, func(t *testing.T) {
			deps := dependencies(t, ".", "./cmd/chokepoint-agent", to)
			if !slices.Contains(deps, module+"/internal/registry/node") {
				t.Errorf("dependencies: got %d without internal/registry/node, want the agent's families "+
					"among them", len(deps))
			}

			for _, dep := range forbiddenIn(deps) {
				t.Errorf("dependencies: got %s, want none of %v", dep, notInAgent)
			}
		})
	}
}

// TestAgentsOfEveryTargetAreFound: the program looks for an agent of each target, as packages have them.
func TestAgentsOfEveryTargetAreFound(t *testing.T) {
	want := vm.AgentArches()
	var got []string
	for _, to := range agentTargets {
		name := unit.Arch(to.arch)
		if to.os != "linux" {
			name = to.os + "-" + name
		}

		got = append(got, name)
	}

	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("targets of agents: got %q, want those that the program looks for, %q", got, want)
	}
}

// TestAgentDependencyRuleCanFail builds the list of a planted agent that reaches net/http and html/template
// through a package of its own, and only on one system.
func TestAgentDependencyRuleCanFail(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/agent/heavy.txtar")
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	for _, f := range archive.Files {
		name := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(name, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}

	got := forbiddenIn(dependencies(t, dir, ".", target{"linux", "arm64"}))
	for _, want := range []string{"net/http", "html/template", module + "/internal/record/store"} {
		if !slices.Contains(got, want) {
			t.Errorf("forbidden dependencies on linux/arm64: got %v, want %s among them", got, want)
		}
	}

	if got := forbiddenIn(dependencies(t, dir, ".", target{"freebsd", "amd64"})); len(got) != 0 {
		t.Errorf("forbidden dependencies on freebsd/amd64: got %v, want none", got)
	}
}
