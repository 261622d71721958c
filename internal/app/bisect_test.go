package app

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

// bench measures versions without a lab: it makes a sample run of each, whose rates have the version's scale
// and a noise of 0.5 %.
type bench struct {
	*App
	stored  bool               // runs, so that they can be continued
	scales  map[string]float64 // by version, 1 if it is missing
	measure int                // runs so far
	fail    func(version string, run int) error

	machines *record.Machines // of the runs
}

func newBench(t *testing.T) *bench {
	return &bench{App: &App{Dirs: Dirs{Data: t.TempDir(), State: t.TempDir()}}, scales: map[string]float64{}}
}

// options returns options for versions.
func (b *bench) options(names ...string) (o BisectOptions) {
	o.On = labtest.Samples["hotter"].Run()
	for _, name := range names {
		o.Versions = append(o.Versions, RouterVersion{Name: name})
		o.Plans = append(o.Plans, plan.New(o.On.Design))
	}
	return o
}

func (b *bench) run(ctx context.Context, _ int, _ *plan.Plan, place record.Series) (*analysis.Document,
	error) {
	version := place.Version
	n := b.measure
	b.measure++
	if b.fail != nil {
		if err := b.fail(version, n); err != nil {
			return nil, err
		}
	}

	s := labtest.Samples["hotter"]
	s.Started = time.Date(2026, 3, 1, 0, 2*n, 0, 0, time.UTC)
	s.ID = store.NewID(s.Started, uint16(n))
	s.Scale = math.Exp(.005 * rand.New(rand.NewPCG(7, uint64(n))).NormFloat64())
	if x, ok := b.scales[version]; ok {
		s.Scale *= x
	}

	run := s.Run()
	run.Series, run.Machines = &place, b.machines
	trials := slices.DeleteFunc(s.Trials(), func(t record.Trial) bool { return t.Row.Block > 1 })
	if !b.stored {
		d := analysis.Begin(run, len(trials))
		for _, t := range trials {
			d.Add(t)
		}
		return d.Document(), nil
	}

	st, err := store.Open(ctx, b.Dirs.StoreFile())
	if err != nil {
		return nil, err
	}

	err = st.CreateRun(ctx, run)
	for _, t := range trials {
		err = errors.Join(err, st.AppendTrial(ctx, t))
	}

	err = errors.Join(err, st.EndRun(ctx, run.ID, record.RunDone, "", s.Started.Add(time.Minute)), st.Close())
	if err != nil {
		return nil, err
	}

	return b.Dirs.Document(ctx, run.ID)
}

// bisect bisects on the bench.
func (b *bench) bisect(t *testing.T, o BisectOptions) (*analysis.Bisection, error) {
	t.Helper()
	turn, err := b.inTurn(t.Context(), o.UpgradeOptions)
	if err != nil {
		t.Fatal(err)
	}

	turn.measure, turn.prepare = b.run, o.Prepare
	s := bisection{inTurn: turn, o: o, skipped: map[int]string{}}
	return s.run(t.Context())
}

var letters = strings.Split("abcdefgh", "")

// slower sets the scale of versions from one on.
func (b *bench) slower(from string, by float64) {
	for _, name := range letters[slices.Index(letters, from):] {
		b.scales[name] = 1 - by
	}
}

// TestBisectFindsAVersion: the culprit is found, and what does not build or boot is left out.
func TestBisectFindsAVersion(t *testing.T) {
	b := newBench(t)
	b.slower("f", .05)
	o := b.options(letters...)
	prepared := map[int]bool{}
	o.Prepare = func(_ context.Context, v int) (RouterVersion, error) {
		prepared[v] = true
		if letters[v] == "d" {
			return RouterVersion{}, Mark(ErrUnusable, errors.New("its build exits with 1"))
		}
		return RouterVersion{Name: letters[v]}, nil
	}
	b.fail = func(version string, _ int) error {
		if version == "e" {
			return errors.New("it does not boot")
		}
		return nil
	}
	x, err := b.bisect(t, o)
	if err != nil {
		t.Fatal(err)
	}

	if x.Outcome != comparison.BisectCulprit || !slices.Equal(x.Culprits, []string{"d", "e", "f"}) ||
		!x.Worse() {
		t.Errorf("got %s %v, want d, e and f, of which only f can be measured: %q", x.Outcome, x.Culprits,
			x.Summary)
	}

	if x.Versions[3].Skipped != "its build exits with 1" ||
		!strings.Contains(x.Versions[4].Skipped, "it does not boot") {
		t.Errorf("got %q, %q, want the reasons", x.Versions[3].Skipped, x.Versions[4].Skipped)
	}

	if !prepared[0] || !prepared[7] {
		t.Error("the ends were not prepared")
	}
}

// TestBisectEnds: an end that does not build ends the bisection, and so do two versions in a row that do not
// boot, because then the lab may be the cause.
func TestBisectEnds(t *testing.T) {
	b := newBench(t)
	o := b.options(letters...)
	o.Prepare = func(context.Context, int) (RouterVersion, error) {
		return RouterVersion{}, Mark(ErrUnusable, errors.New("its build exits with 1"))
	}
	if x, err := b.bisect(t, o); err == nil || !strings.Contains(err.Error(), "exits with 1") || x != nil {
		t.Errorf("got %+v, %v, want the failed build of an end", x, err)
	}

	b = newBench(t)
	b.slower("c", .05)
	b.fail = func(version string, _ int) error {
		if version != "a" && version != "h" {
			return errors.New("it does not boot")
		}
		return nil
	}
	x, err := b.bisect(t, b.options(letters...))
	left := 0
	for _, v := range x.Versions {
		if v.Skipped != "" {
			left++
		}
	}

	if err == nil || left != 1 {
		t.Errorf("got %v with %d versions left out, want an error after one", err, left)
	}
}

// TestBisectKeepsGoodRuns: a later run that fails is made again, and the earlier ones of the version count.
func TestBisectKeepsGoodRuns(t *testing.T) {
	b := newBench(t)
	b.slower("e", .03)
	b.scales["d"] = .985
	ran := map[string]int{}
	failed := ""
	b.fail = func(version string, _ int) error {
		if version != "a" && version != "h" && ran[version] == 1 && failed == "" {
			failed = version
			return errors.New("the connection is gone")
		}

		ran[version]++
		return nil
	}
	x, err := b.bisect(t, b.options(letters...))
	if err != nil || failed == "" {
		t.Fatalf("got %v, failed %q after %v, want a failure that does not end the search", err, failed, ran)
	}

	v := x.Versions[slices.Index(letters, failed)]
	if v.Skipped != "" || v.Boots != ran[failed] || v.Boots < 2 {
		t.Errorf("got %+v, want %d boots", v, ran[failed])
	}
}

// TestBisectEndsWithABuild: a build that ends the search is no reason to leave its commit out.
func TestBisectEndsWithABuild(t *testing.T) {
	b := newBench(t)
	b.slower("f", .05)
	o := b.options(letters...)
	stop := errors.New("exit status 130")
	o.Prepare = func(_ context.Context, v int) (RouterVersion, error) {
		if v == 0 || v == len(letters)-1 {
			return o.Versions[v], nil
		}
		return RouterVersion{}, stop
	}
	x, err := b.bisect(t, o)
	if !errors.Is(err, stop) || x == nil || x.Outcome != "" || x.Boots != 0 {
		t.Fatalf("got %+v, %v, want no answer and the error", x, err)
	}

	for _, v := range x.Versions {
		if v.Skipped != "" {
			t.Errorf("%s was left out: %s", v.Name, v.Skipped)
		}
	}
}

// TestBisectOfNoCell: a cell that does not exist is noticed after one run.
func TestBisectOfNoCell(t *testing.T) {
	b := newBench(t)
	o := b.options(letters...)
	o.Cell = "nonesuch"
	if _, err := b.bisect(t, o); err == nil || !strings.Contains(err.Error(), "no such cell") ||
		b.measure != 1 {
		t.Errorf("got %v after %d runs, want an error after one", err, b.measure)
	}
}

// TestBisectOfTheSame: equal ends take six blocks and have no culprit.
func TestBisectOfTheSame(t *testing.T) {
	b := newBench(t)
	x, err := b.bisect(t, b.options(letters...))
	if err != nil {
		t.Fatal(err)
	}

	if x.Outcome != analysis.BisectSame || b.measure != 2*comparison.VersionBlocks || x.Worse() {
		t.Errorf("got %s after %d runs, want same after %d", x.Outcome, b.measure, 2*comparison.VersionBlocks)
	}
}

// TestBisectGoesOn: what was measured before an interruption is not measured again, in whatever part it came,
// and other versions are refused.
func TestBisectGoesOn(t *testing.T) {
	b := newBench(t)
	b.slower("c", .05)
	whole, err := b.bisect(t, b.options(letters...))
	if err != nil || !slices.Equal(whole.Culprits, []string{"c"}) {
		t.Fatalf("got %+v, %v, want c", whole, err)
	}

	all := b.measure
	b = newBench(t)
	b.stored = true
	b.slower("c", .05)
	gone := errors.New("the machine is gone")
	stops := []int{1, 5, 25, 26}
	b.fail = func(_ string, run int) error {
		if slices.Contains(stops, run) {
			return gone
		}
		return nil
	}
	o := b.options(letters...)
	o.ID = "20260301-000000-0001"
	if _, err := b.inTurn(t.Context(), o.UpgradeOptions); !errors.Is(err, ErrUsage) {
		t.Errorf("an id without a run: got %v, want a usage error", err)
	}

	b.Dirs.Cache = t.TempDir()
	if err := Prepare(b.Dirs.BuildsDir(o.ID)); err != nil {
		t.Fatal(err)
	}

	kernel := filepath.Join(t.TempDir(), "kernel")
	if err := os.WriteFile(kernel, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	o.Versions[0].Kernel = &record.OwnKernel{File: kernel}
	var x *analysis.Bisection
	times := 0
	for err = gone; err != nil && times < 10; times++ {
		x, err = b.bisect(t, o)
		if err != nil && !errors.Is(err, gone) {
			t.Fatal(err)
		}
	}

	if x == nil || !slices.Equal(x.Culprits, []string{"c"}) || times < 3 {
		t.Fatalf("after %d times: got %+v, want c", times, x)
	}

	if b.measure > all+len(stops)+4 { // each failure, half a block again, and another noise
		t.Errorf("measured %d runs with interruptions, and %d without", b.measure, all)
	}

	before := b.measure
	again, err := b.bisect(t, o)
	if err != nil || b.measure != before || again.Outcome != x.Outcome || again.Boots != x.Boots {
		t.Errorf("got %+v, %v after %d more runs, want the same answer after none", again, err,
			b.measure-before)
	}

	for _, tt := range []struct {
		name   string
		change func(o *UpgradeOptions)
	}{
		{"versions", func(o *UpgradeOptions) { o.Versions[2].Name = "x" }},
		{"order", func(o *UpgradeOptions) {
			o.Versions[2], o.Versions[3] = o.Versions[3], o.Versions[2]
		}},
		{"lab", func(o *UpgradeOptions) { o.On.Lab = "other" }},
		{"size", func(o *UpgradeOptions) { o.On.GuestSize = &record.GuestSize{CPUs: 7} }},
		{"build", func(o *UpgradeOptions) { o.Build = "make" }},
		{"kernel", func(*UpgradeOptions) {
			if err := os.WriteFile(kernel, []byte("built again"), 0o600); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		other := o.UpgradeOptions
		other.Versions = slices.Clone(o.Versions)
		tt.change(&other)
		if _, err := b.inTurn(t.Context(), other); !errors.Is(err, ErrUsage) {
			t.Errorf("another %s: got %v, want a usage error", tt.name, err)
		}
	}
}

// TestResumedOnItsPlace: versions that are measured later use the labgrid place of the earlier ones, also if
// the lab file has only tags.
func TestResumedOnItsPlace(t *testing.T) {
	b := newBench(t)
	b.stored = true
	o := b.options("old", "new").UpgradeOptions
	o.ID = NewID()
	o.On.Machines = &record.Machines{Place: &record.Place{Tags: []string{"device=a"}}}
	series := record.Series{ID: o.ID, Digest: o.digest(), Version: "old", Block: 1}
	b.machines = &record.Machines{Place: &record.Place{Name: "board-7", Tags: []string{"device=a"}}}
	if _, err := b.run(t.Context(), 0, nil, series); err != nil {
		t.Fatal(err)
	}

	for range 2 {
		turn, err := b.inTurn(t.Context(), o)
		if err != nil || turn.On.Machines.Place.Name != "board-7" || o.On.Machines.Place.Name != "" {
			t.Errorf("got %v, want board-7, and the options as they were", err)
		}
	}
}

// TestUpgradeOfSeveral: only versions that seem to differ are measured in six more blocks.
func TestUpgradeOfSeveral(t *testing.T) {
	b := newBench(t)
	b.scales["new"] = .9
	o := b.options("old", "same", "new").UpgradeOptions
	turn, err := b.inTurn(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}

	turn.measure = b.run
	if err := turn.compared(t.Context(), []int{1, 2}); err != nil {
		t.Fatal(err)
	}

	if want := 3*comparison.VersionBlocks + 2*comparison.VersionBlocks; b.measure != want {
		t.Errorf("measured %d runs, want %d", b.measure, want)
	}

	orders := map[string]bool{}
	for _, block := range turn.blocks[:comparison.VersionBlocks] {
		order := ""
		for _, d := range block.Runs {
			order += fmt.Sprint(d.Run.Started.Sub(turn.blocks[0].Runs[0].Run.Started)/time.Minute%6, " ")
		}

		orders[order] = true
	}

	if len(orders) < 2 {
		t.Error("all blocks have the same order")
	}

	got := analysis.CompareVersions(o.names(), turn.blocks)
	if len(got[0].Regressions) != 0 || len(got[1].Regressions) == 0 {
		t.Errorf("got %+v, want a regression of the last version", got)
	}
}

// TestBuilds builds commits of a real repository: one fails, one is skipped, one leaves no file, one ends the
// search. The repository stays as it is.
func TestBuilds(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) string {
		t.Helper()
		out, err := host.Run(t.Context(), host.Local(), host.Command{Path: "git", Dir: dir,
			Args: append([]string{"-c", "user.name=x", "-c", "user.email=x@x"}, args...)})
		if errors.Is(err, host.ErrUnsupported) {
			t.Skip("skip: no git here")
		}

		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "--quiet", "--initial-branch=main")
	for _, content := range []string{"0", "1", "125", "none", "130", "done"} {
		if err := os.WriteFile(filepath.Join(dir, "state"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}

		git("add", "state")
		git("commit", "--quiet", "-m", "state "+content)
	}

	git("checkout", "--quiet", "-b", "side", "HEAD~2")
	git("commit", "--quiet", "--allow-empty", "-m", "beside")
	git("checkout", "--quiet", "main")
	var lines []string
	b := Builds{
		Repository: dir,
		Dir:        filepath.Join(t.TempDir(), "builds"),
		Command: `s=$(cat state); echo "state $s"; mkdir -p "$CHOKEPOINT_MODULES"
case $s in done|0) echo "$CHOKEPOINT_COMMIT" >"$CHOKEPOINT_OUTPUT";; none) ;; *) exit $s;; esac`,
		Line: func(line string) { lines = append(lines, line) },
	}
	all, err := b.Commits(t.Context(), "main~5", "main")
	if err != nil || len(all) != 6 || !strings.HasSuffix(all[2].Name(), "state 125") ||
		all[0].Hash != git("rev-parse", "main~5") || all[5].Hash != git("rev-parse", "main") {
		t.Fatalf("got %v, %v, want six commits, the oldest first", all, err)
	}

	for _, r := range [][3]string{{"main", "main~5", "line of first parents"},
		{"side", "main", "line of first parents"},
		{"nonesuch", "main", "names no commit"}, {"main", "--all", "names no commit"},
		{"main", "HEAD", "the same commit"}} {
		_, err := b.Commits(t.Context(), r[0], r[1])
		if !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), r[2]) {
			t.Errorf("%v: got %v, want a usage error", r, err)
		}
	}

	state := git("status", "--porcelain", "--branch")
	hooks := filepath.Join(t.TempDir(), "hooks")
	hook := filepath.Join(hooks, "post-checkout")
	err = errors.Join(os.Mkdir(hooks, 0o700), os.WriteFile(hook, []byte("#!/bin/sh\ntouch $0.ran\n"), 0o700))
	if err != nil {
		t.Fatal(err)
	}

	config := filepath.Join(hooks, "config")
	if err := os.WriteFile(config, []byte("[core]\n\thooksPath = "+hooks+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	t.Setenv("GIT_CONFIG_GLOBAL", config)
	t.Setenv("GIT_DIR", filepath.Join(dir, ".git")) // as in a hook of this repository
	b.Command = `test -z "$GIT_DIR" || exit 99; ` + b.Command
	for i, want := range []string{"", "exits with 1", "skips it", "left no file", "build ", ""} {
		file, err := b.Build(t.Context(), all[i])
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", all[i].Name(), err, want)
		}

		if unusable := i == 1 || i == 2; errors.Is(err, ErrUnusable) != unusable {
			t.Errorf("%s: got %v, want it left out: %v", all[i].Name(), err, unusable)
		}

		if content, _ := os.ReadFile(file); err == nil && string(content) != all[i].Hash+"\n" {
			t.Errorf("%s: got %q, want the commit", all[i].Name(), content)
		}
	}

	if len(lines) != 6 || lines[0] != "state 0" {
		t.Errorf("got %q, want what each build prints", lines)
	}

	again := b // as after an interruption
	if _, err := again.Build(t.Context(), all[0]); err != nil || len(lines) != 6 {
		t.Errorf("got %v, %q: a commit is built once", err, lines)
	}

	for i, want := range map[int]string{1: "its build exits with 1", 2: "its build skips it"} {
		_, err := again.Build(t.Context(), all[i])
		if !errors.Is(err, ErrUnusable) || err.Error() != want || len(lines) != 6 {
			t.Errorf("%s: got %v, %q, want %q without another build", all[i].Name(), err, lines, want)
		}
	}

	if got := git("status", "--porcelain", "--branch"); got != state {
		t.Errorf("the repository: got %s, was %s", got, state)
	}

	if _, err := os.Stat(hook + ".ran"); err == nil {
		t.Error("a hook ran")
	}

	below := filepath.Join(dir, "below")
	if err := os.Mkdir(below, 0o700); err != nil {
		t.Fatal(err)
	}

	source := filepath.Join(b.Dir, "source")
	for _, damage := range []func() error{
		func() error { return os.RemoveAll(source) }, // a clone from a folder in the repository
		func() error { return os.WriteFile(filepath.Join(source, ".git", "index.lock"), nil, 0o600) },
		func() error { return os.RemoveAll(filepath.Join(source, ".git")) },
		func() error { return errors.Join(os.RemoveAll(source), os.Mkdir(source+".part", 0o700)) },
	} {
		b.Repository = below
		if err := errors.Join(damage(), os.Remove(filepath.Join(b.Dir, all[0].Hash))); err != nil {
			t.Fatal(err)
		}

		if _, err := b.Build(t.Context(), all[0]); err != nil {
			t.Error(err)
		}
	}

	if err := b.Clear(); err != nil {
		t.Error(err)
	}

	if _, err := os.Stat(b.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want the builds gone", err)
	}
}
