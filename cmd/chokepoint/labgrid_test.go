package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	yaml "go.yaml.in/yaml/v4"

	"github.com/chokepoint-lab/chokepoint/internal/app"
)

// TestLabgridPage: the lab files of the page can be read, and the steps of its job are commands of a shell
// that name the lab file.
func TestLabgridPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/howto/labgrid.md")
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "targets"), 0o700); err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"targets/openwrt_one.yaml", "ssh_config"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	var labs, jobs int
	for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		if strings.HasPrefix(block, "name: ") {
			jobs++
			checkLabgridJob(t, block)
			continue
		}

		labs++
		if strings.HasPrefix(block, "firmware:") { // a part of a file
			block += "place: {name: board-7}\n"
		}

		file := filepath.Join(dir, "lab.yaml")
		if err := os.WriteFile(file, []byte(block), 0o600); err != nil {
			t.Fatal(err)
		}

		m, err := app.ReadLabFile(file)
		if err != nil || m.Place == nil {
			t.Errorf("%v, place %v:\n%s", err, m.Place, block)
		}
	}

	if labs != 3 || jobs != 1 {
		t.Errorf("got %d lab files and %d jobs, want 3 and 1", labs, jobs)
	}
}

func checkLabgridJob(t *testing.T, block string) {
	t.Helper()
	var w githubWorkflow
	if err := yaml.Unmarshal([]byte(block), &w); err != nil {
		t.Fatal(err)
	}

	var all strings.Builder
	for _, s := range w.Jobs["openwrt-one"].Steps {
		all.WriteString(s.Run + "\n")
	}

	check := exec.Command("bash", "-n")
	check.Stdin = strings.NewReader(all.String())
	if said, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, said)
	}

	for _, want := range []string{
		"chokepoint run ci.yaml --lab chokepoint.yaml --accept-new --output report.html\n",
		"chokepoint lab restore\n", "chokepoint report latest --format junit --output junit.xml;"} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("the job has no step %s", want)
		}
	}
}
