package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	yaml "go.yaml.in/yaml/v4"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
)

// The events of a CI server for which the jobs of docs/howto/ci.md run.
const (
	pushEvent   = "push"   // to the default branch
	changeEvent = "change" // a pull or merge request
)

// A githubWorkflow and a gitlabPipeline are what the page has of these forms.
type (
	githubWorkflow struct {
		Jobs map[string]struct {
			Env   map[string]string
			Steps []githubStep
		}
	}
	githubStep struct {
		Run, Uses, If string
		With          map[string]string
	}
	gitlabPipeline struct {
		Router struct {
			Variables map[string]string
			Rules     []struct {
				If        string
				Variables map[string]string
			}
			Cache struct {
				Paths  []string
				Policy string
			}
			Script []string
		}
	}
)

// ci plays a CI server in a script: a workspace for each job, and what is kept between jobs.
type ci struct {
	ts         *testscript.TestScript
	kept, room string
	planted    bool // something makes the router slower
	install    bool // as the job does, by compiling this tree
}

// jobCommand implements "job github|gitlab push|change": it runs the job of docs/howto/ci.md in a checkout
// that holds ci.yaml, in the lab that is up. "! job" wants it to fail with the code of a regression.
func jobCommand(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 || !slices.Contains([]string{pushEvent, changeEvent}, args[1]) {
		ts.Fatalf("usage: job github|gitlab push|change")
	}

	c := ci{ts: ts, kept: ts.MkAbs("kept-by-" + args[0]), planted: neg}
	_, err := os.Stat(c.kept)
	c.install = os.IsNotExist(err) && apart.Wanted()
	ts.Check(os.MkdirAll(c.kept, 0o700))
	room, err := os.MkdirTemp(ts.Getenv("WORK"), "checkout-")
	ts.Check(err)
	c.room = room
	c.copy(ts.MkAbs("ci.yaml"), filepath.Join(room, "ci.yaml"))

	restore := map[string]string{}
	for _, name := range []string{"XDG_DATA_HOME", "LAB", "COMPARE", "PATH"} {
		restore[name] = ts.Getenv(name)
	}

	back := ts.MkAbs(".")
	ts.Check(ts.Chdir(room))
	if args[0] == "github" {
		err = c.github(args[1])
	} else {
		err = c.gitlab(args[1])
	}

	ts.Check(ts.Chdir(back))
	for name, value := range restore {
		ts.Setenv(name, value)
	}

	var exit *exec.ExitError
	switch {
	case neg && errors.As(err, &exit) && exit.ExitCode() == codeThreshold:
	case neg:
		ts.Fatalf("got %v, want exit code %d", err, codeThreshold)
	default:
		ts.Check(err)
	}
}

// page decodes the nth block of YAML of the page.
func (c ci) page(n int, into any) {
	text, err := os.ReadFile("../../docs/howto/ci.md")
	c.ts.Check(err)
	blocks := strings.Split(string(text), "```yaml\n")
	if len(blocks) != 3 {
		c.ts.Fatalf("docs/howto/ci.md: got %d blocks of YAML, want 2", len(blocks)-1)
	}

	block, _, _ := strings.Cut(blocks[n], "```")
	c.ts.Check(yaml.Unmarshal([]byte(block), into))
}

// github runs the job as GitHub does: each step in a shell of its own, until one fails; then those that
// always run.
func (c ci) github(event string) error {
	var w githubWorkflow
	c.page(1, &w)
	job, ok := w.Jobs["router"]
	if !ok || len(job.Steps) == 0 {
		c.ts.Fatalf("docs/howto/ci.md: GitHub's job has no steps")
	}

	c.variables(job.Env)
	variables := filepath.Join(c.room, ".github-env")
	c.ts.Setenv("GITHUB_ENV", variables)
	c.ts.Setenv("GITHUB_STEP_SUMMARY", filepath.Join(c.room, ".github-summary"))
	var failed error
	for _, s := range job.Steps {
		wanted := failed == nil
		switch s.If {
		case "":
		case "always()":
			wanted = true
		case "github.event_name == 'push'":
			wanted = wanted && event == pushEvent
		default:
			c.ts.Fatalf("step %+v: unknown condition", s)
		}

		if !wanted {
			continue
		}

		if s.Uses != "" {
			c.use(s)
			continue
		}

		err := c.shell(s.Run)
		if failed == nil {
			failed = err
		}

		added, err := os.ReadFile(variables)
		if err == nil {
			for line := range strings.Lines(string(added)) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
				c.ts.Setenv(name, value)
			}
		}
	}

	return failed
}

// use does what the actions of the job do with files.
func (c ci) use(s githubStep) {
	action, _, _ := strings.Cut(s.Uses, "@")
	kept := filepath.Join(c.kept, "cache")
	switch action {
	case "actions/checkout":
	case "actions/cache/restore":
		if !strings.HasPrefix(s.With["key"], s.With["restore-keys"]) || s.With["restore-keys"] == "" {
			c.ts.Fatalf("a cache of %q is not restored by %q", s.With["key"], s.With["restore-keys"])
		}

		if _, err := os.Stat(kept); err == nil {
			c.copy(kept, filepath.Join(c.room, s.With["path"]))
		}
	case "actions/cache/save":
		c.copy(filepath.Join(c.room, s.With["path"]), kept)
	case "actions/upload-artifact":
		for pattern := range strings.FieldsSeq(s.With["path"]) {
			found, err := filepath.Glob(filepath.Join(c.room, pattern))
			if err != nil || len(found) == 0 {
				c.ts.Fatalf("%s: no such file, %v", pattern, err)
			}
		}
	default:
		c.ts.Fatalf("unknown action %s", s.Uses)
	}
}

// gitlab runs the job as GitLab does: all lines in one shell. The cache is saved if the job succeeds and its
// policy says so.
func (c ci) gitlab(event string) error {
	var p gitlabPipeline
	c.page(2, &p)
	rule := map[string]string{
		pushEvent:   "$CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH",
		changeEvent: `$CI_PIPELINE_SOURCE == "merge_request_event"`,
	}[event]
	policy := ""
	for _, r := range p.Router.Rules {
		if r.If == rule {
			policy = r.Variables["CACHE"]
		}
	}

	if policy == "" || p.Router.Cache.Policy != "$CACHE" || len(p.Router.Script) == 0 {
		c.ts.Fatalf("docs/howto/ci.md: GitLab's job has no rule for %s, or no script: %+v", event, p)
	}

	c.variables(p.Router.Variables)
	for _, path := range p.Router.Cache.Paths {
		if _, err := os.Stat(filepath.Join(c.kept, path)); err == nil {
			c.copy(filepath.Join(c.kept, path), filepath.Join(c.room, path))
		}
	}

	if err := c.shell(strings.Join(p.Router.Script, "\n")); err != nil {
		return err
	}

	if strings.Contains(policy, "push") {
		for _, path := range p.Router.Cache.Paths {
			c.copy(filepath.Join(c.room, path), filepath.Join(c.kept, path))
		}
	}

	return nil
}

// variables sets those of a job. The lab is the script's own. Beside other tests all cells may be suspect: a
// planted regression counts nevertheless.
func (c ci) variables(all map[string]string) {
	if all["LAB"] == "" || all["COMPARE"] != "--fail-on-regression" {
		c.ts.Fatalf("docs/howto/ci.md: a job has the variables %q, without LAB or COMPARE", all)
	}

	for name, value := range all {
		c.ts.Setenv(name, value)
	}

	c.ts.Check(c.ts.Exec("chokepoint", "lab", "list"))
	id, _, _ := strings.Cut(c.ts.ReadFile("stdout"), " ")
	c.ts.Setenv("LAB", "--attach "+id)
	if c.planted {
		c.ts.Setenv("COMPARE", all["COMPARE"]+" --strict")
	}
}

// installation are the lines of a job that install chokepoint.
const installation = "git clone --depth 1 https://github.com/chokepoint-lab/chokepoint\n" +
	"go -C chokepoint install ./cmd/chokepoint"

// shell runs lines of a job. Where long tests are asked for, the first job of a server installs chokepoint
// from a clone of this tree; all others use the program under test.
func (c ci) shell(script string) error {
	switch {
	case c.install:
		top, err := filepath.Abs("../..")
		c.ts.Check(err)
		bin := filepath.Join(c.room, "bin")
		for name, value := range map[string]string{
			"GOBIN":              bin,
			"PATH":               bin + string(filepath.ListSeparator) + c.ts.Getenv("PATH"),
			"GIT_CONFIG_COUNT":   "2",
			"GIT_CONFIG_KEY_0":   "url.file://" + top + ".insteadOf",
			"GIT_CONFIG_VALUE_0": "https://github.com/chokepoint-lab/chokepoint",
			"GIT_CONFIG_KEY_1":   "safe.directory",
			"GIT_CONFIG_VALUE_1": "*",
		} {
			c.ts.Setenv(name, value)
		}

		// The script's HOME has no modules.
		for _, name := range []string{"GOMODCACHE", "GOCACHE", "GOPROXY", "GOSUMDB"} {
			value, err := exec.Command("go", "env", name).Output()
			c.ts.Check(err)
			c.ts.Setenv(name, strings.TrimSpace(string(value)))
		}
	case slices.Contains(strings.Split(installation, "\n"), script): // a step of its own
		return nil
	default:
		script = strings.Replace(script, installation, ":", 1)
		if strings.Contains(script, "git clone") {
			c.ts.Fatalf("chokepoint is not installed by %q: %q", installation, script)
		}
	}

	return c.ts.Exec("sh", "-e", "-c", script)
}

// copy replaces a file.
func (c ci) copy(from, to string) {
	content, err := os.ReadFile(from)
	c.ts.Check(err)
	c.ts.Check(os.WriteFile(to, content, 0o600))
}
