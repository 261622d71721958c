package blackbox_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

var (
	binary   = flag.String("binary", "", "the chokepoint that makes the labs, by its whole path")
	keepDir  = flag.String("keep", "", "the folder of a recording")
	lockFile = flag.String("lock", "", "a file that is locked while an instance is recorded")
	only     = flag.String("only", "", "record these classes alone, separated by commas")
	perClass = flag.Int("per-class", 20, "instances of each class")
)

// TestMain lets the test program play the roles of a lab.
func TestMain(m *testing.M) { os.Exit(rig.Tests(m)) }

// TestRecord records what is not yet recorded, and adds it to the file.
func TestRecord(t *testing.T) {
	if *binary == "" || *keepDir == "" {
		t.Skip("skip: records for half a minute per instance: -binary and -keep say by what and where")
	}

	ctx, end := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer end()
	program, err := rig.NewProgram(*keepDir, *binary, os.Geteuid())
	if err != nil {
		t.Fatal(err)
	}

	var done []recorded
	if _, err := os.Stat(stored); err == nil {
		done = readRuns(t)
	}

	unlock := func() {}
	since := time.Time{}
	defer func() { unlock() }()
	for _, x := range instances(*perClass) {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), x.Class) ||
			slices.ContainsFunc(done, func(r recorded) bool { return r.instance == x }) {
			continue
		}

		if time.Since(since) > maxLocked {
			unlock()
			if unlock, err = rig.Locked(*lockFile); err != nil {
				t.Fatal(err)
			}

			since = time.Now()
		}

		cells, err := recordOne(ctx, program, x)
		if ctx.Err() != nil {
			t.Fatal("interrupted; the same command goes on")
		}

		if err != nil {
			t.Errorf("%s: %v", x.ID, err)
			continue
		}

		done = slices.DeleteFunc(done, func(r recorded) bool { return r.ID == x.ID })
		done = append(done, recorded{x, cells})
		if err := writeRuns(done); err != nil {
			t.Fatal(err)
		}
	}
}

// maxLocked is for how long others who measure wait before a further instance is begun.
const maxLocked = 75 * time.Second

// probing is the built-in plan with short windows, and with what is planted.
func probing(x instance) (*plan.Plan, error) {
	body, ok := plan.BuiltIn("blackbox")
	if !ok {
		return nil, errors.New("there is no built-in plan blackbox")
	}

	lines := strings.Split(string(body), "\n")
	for i, line := range lines {
		tcp := strings.Contains(line, "{protocol: tcp,")
		if x.Factor != "" && strings.Contains(line, "direction: ") && (tcp || !x.atAnEnd()) {
			lines[i] = strings.Replace(line, "}", ", "+x.Factor+": "+x.Level+"}", 1)
		}
	}

	return app.ReadPlan("plan.yaml", strings.Join(lines, "\n"), app.Peer{}, "method.duration=400ms",
		"method.warmup=200ms", "method.cooldown=50ms", "method.idle=300ms", "method.runs=1",
		"measure.verify=false")
}

// atAnEnd says that what is planted is an end's application or buffer: of TCP alone.
func (x instance) atAnEnd() bool {
	return slices.Contains([]string{diagnosis.SlowSender, diagnosis.SlowReader, diagnosis.ReceiveWindow},
		x.Class)
}

// recordOne makes one run on a lab of its own.
func recordOne(ctx context.Context, program rig.Program, x instance) ([]diagnosis.Cell, error) {
	pl, err := probing(x)
	if err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	var o app.RunOptions
	if x.Factor == "" && x.Level != "" {
		id, down, err := ruledLab(ctx, program, x)
		if err != nil {
			return nil, err
		}
		defer down()
		o.Attach = id
	}

	run, err := rig.Run(ctx, program.App(), pl, x.Lab, o)
	if err != nil {
		return nil, err
	}

	d := run.Document
	var cells []diagnosis.Cell
	for i := range d.Cells {
		f := d.Cells[i].Factors
		streams := factor.Protocol.Of(f) == factor.TCP && !factor.Engine.Is(f, "flows")
		if x.Factor != "" && (streams || !x.atAnEnd()) && f[x.Factor] != x.Level {
			return nil, fmt.Errorf("cell %s is without %s=%s", d.Cells[i].Label, x.Factor, x.Level)
		}

		cells = append(cells, analysis.OfEnds(d, &d.Cells[i]))
	}

	if diagnosis.Blackbox(cells) == nil {
		return nil, errors.New("the run has no probing")
	}

	return cells, nil
}

// ruledLab brings up a lab whose router has a rule of the packet filter.
func ruledLab(ctx context.Context, program rig.Program, x instance) (id string, down func(), err error) {
	id, err = program.LabUp(ctx, "forward", x.Lab, 0)
	if err != nil {
		return "", nil, err
	}

	down = func() { _, _ = program.Say(context.WithoutCancel(ctx), "lab", "down", id) }
	_, err = program.Say(ctx, "lab", "exec", "router", "--attach", id, "--", "nft",
		"add table inet x; add chain inet x c { type filter hook forward priority 0; }; "+x.Level)
	if err != nil {
		down()
	}

	return id, down, err
}

func writeRuns(all []recorded) error {
	next := stored + ".new"
	f, err := os.Create(next)
	if err != nil {
		return err
	}

	z := gzip.NewWriter(f)
	lines := json.NewEncoder(z)
	for _, r := range all {
		err = errors.Join(err, lines.Encode(r))
	}

	if err := errors.Join(err, z.Close(), f.Close()); err != nil {
		return err
	}

	return os.Rename(next, stored)
}

const shaped = "testdata/shaped.json.gz"

// trials is a whole run, with all that its nodes' probes saw.
type trials struct {
	Run    record.Run     `json:"run"`
	Trials []record.Trial `json:"trials"`
}

var (
	keepRun = flag.String("run-of", "", "the store of which TestTelemetry keeps a run")
	runID   = flag.String("run-id", "latest", "that run")
)

// TestTelemetry: what is said of a path does not change when all that nodes' probes saw is taken away, or is
// that of other trials.
func TestTelemetry(t *testing.T) {
	var with trials
	if *keepRun != "" {
		keep(t, *keepRun)
	}

	f, err := os.Open(shaped)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}

	if err := json.NewDecoder(z).Decode(&with); err != nil {
		t.Fatal(err)
	}

	want := analysis.Derive(with.Run, with.Trials).Paths
	if len(want) != 1 || len(want[0].Directions) != 2 || want[0].Directions[0].Class != "shaper" {
		t.Fatalf("of a path with a shaper up: %+v", want)
	}

	watched := 0
	for i := range with.Trials {
		watched += len(with.Trials[i].Nodes)
	}

	if watched == 0 {
		t.Fatal("the stored trials have no telemetry that could be taken away")
	}

	others := slices.Clone(with.Trials)
	for i := range others {
		others[i].Nodes = with.Trials[(i+7)%len(with.Trials)].Nodes
	}

	if got := analysis.Derive(with.Run, others).Paths; !reflect.DeepEqual(got, want) {
		t.Errorf("with telemetry of other trials: %+v, not %+v", got, want)
	}

	for i := range others {
		others[i].Nodes = nil
	}

	if got := analysis.Derive(with.Run, others).Paths; !reflect.DeepEqual(got, want) {
		t.Errorf("without telemetry: %+v, not %+v", got, want)
	}
}

// keep writes a run with a shaper up as the test reads it.
func keep(t *testing.T, path string) {
	t.Helper()
	s, err := store.OpenReadOnly(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	run, err := rig.ReadRun(t.Context(), s, *runID)
	if err != nil {
		t.Fatal(err)
	}

	out := trials{run.Run, run.Trials}
	out.Run.Command, out.Run.Environments = "", nil
	for _, one := range out.Trials {
		for node, n := range one.Nodes { // two probes are telemetry enough
			n.Samples = slices.DeleteFunc(n.Samples, func(s record.Samples) bool {
				return s.Probe != "cpu" && s.Probe != "softnet"
			})
			n.Cost, n.Log = nil, nil
			one.Nodes[node] = n
		}
	}

	f, err := os.Create(shaped)
	if err != nil {
		t.Fatal(err)
	}

	z, _ := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err := errors.Join(json.NewEncoder(z).Encode(out), z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
}
