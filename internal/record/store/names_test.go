package store

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

func TestCheckName(t *testing.T) {
	for name, why := range map[string]string{
		"stock": "", "MT6000_24.10-rc1": "", "2": "id of a run", "24.10": "", "9-x": "", "20261121": "id of a run",
		"20261121-x": "id of a run", "202611211": "", "latest": "newest run", "Latest": "newest run",
		"latest~1": "letters", "": "letters", "-x": "letters", "a b": "letters", "a/b": "letters", "ä": "letters",
		strings.Repeat("a", 65): "letters",
	} {
		err := CheckName(name)
		if (err == nil) != (why == "") || err != nil && !strings.Contains(err.Error(), why) {
			t.Errorf("%q: got %v, want %q in it", name, err, why)
		}
	}
}

// namedRuns stores three runs: the oldest without a name, the others with one.
func namedRuns(t *testing.T, s *Store) {
	t.Helper()
	for i, name := range []string{"", "mt6000-stock", "mt6000-offload"} {
		at := sampleStart.AddDate(0, 0, i)
		run := sampleRun(NewID(at, 0xaa))
		run.Started = at
		run.Name = name
		must(t, s.CreateRun(t.Context(), run))
	}
}

func testNamesFindRuns(t *testing.T, s *Store) {
	const first, second, third = "20261121-153012-00aa", "20261122-153012-00aa", "20261123-153012-00aa"
	namedRuns(t, s)
	for name, want := range map[string]string{
		"latest": third, "latest~0": third, "latest~1": second, "latest~2": first, "mt6000-stock": second,
		"mt6000-s": second, "mt6000-offload": third, "20261121": first, third: third,
	} {
		got, err := s.Resolve(t.Context(), name)
		if err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %s", name, got, err, want)
		}
	}

	run, err := s.Find(t.Context(), "latest")
	if err != nil || run.Name != "mt6000-offload" {
		t.Errorf("the latest run is called %q, %v", run.Name, err)
	}

	for name, hint := range map[string]string{
		"mt6000":                "one of: mt6000-offload, mt6000-stock",
		"mt600-stock":           "did you mean mt6000-stock? ",
		"MT6000-stokc":          "did you mean mt6000-stock? ",
		"lates":                 "did you mean latest? ",
		"20261121-153013-00aa":  "did you mean " + first + " or " + third + " or " + second + "? ",
		"Offload":               "did you mean mt6000-offload? ",
		"stoc":                  "did you mean mt6000-stock? ",
		"of":                    "RUN is an id, a name",
		"latest~3":              "the oldest of 3 runs is latest~2; ",
		"latest~1000000000":     "RUN is an id, a name",
		"latest~-1":             "RUN is an id, a name",
		"something else":        "RUN is an id, a name",
		"":                      "RUN is an id, a name",
		"20261121-153012-00aab": "did you mean " + first,
	} {
		_, err := s.Resolve(t.Context(), name)
		missing := errors.As(err, new(*NotFoundError)) || errors.As(err, new(*AmbiguousError))
		if !missing || !strings.Contains(check.HintOf(err), hint) {
			t.Errorf("%q: got %v, hint %q, want %q in it", name, err, check.HintOf(err), hint)
		}
	}
}

// A name is of one run; it moves on only when that run gives it up.
func testNamesAreUnique(t *testing.T, s *Store) {
	ctx := t.Context()
	namedRuns(t, s)
	const first, second = "20261121-153012-00aa", "20261122-153012-00aa"
	again := sampleRun("20261130-100000-00aa")
	again.Name = "mt6000-stock"
	for what, err := range map[string]error{
		"a new run": s.CreateRun(ctx, again), "another run": s.SetName(ctx, first, "mt6000-stock"),
		"a question": s.Taken(ctx, "mt6000-stock")} {
		taken, ok := errors.AsType[*NameTakenError](err)
		if !ok || taken.Run != second {
			t.Errorf("%s: got %v, want that %s has the name", what, err, second)
		}
	}

	if _, err := s.Find(ctx, again.ID); !errors.As(err, new(*NotFoundError)) {
		t.Errorf("a run without its name was stored: %v", err)
	}

	must(t, s.SetName(ctx, second, "mt6000-stock")) // as it is called
	must(t, s.SetName(ctx, second, ""))
	must(t, s.Taken(ctx, "mt6000-stock"))
	must(t, s.SetName(ctx, first, "mt6000-stock"))
	must(t, s.Remove(ctx, first))
	must(t, s.SetName(ctx, second, "mt6000-stock"))
	must(t, s.Verify(ctx))
	if err := s.SetName(ctx, second, "no name"); err == nil {
		t.Error("a name with a blank was stored")
	}

	if err := s.SetName(ctx, "nobody", "n"); err == nil {
		t.Error("a run that is not stored got a name")
	}
}

// The last headline counts, and none is one, too.
func testHeadline(t *testing.T, s *Store) {
	ctx := t.Context()
	must(t, s.CreateRun(ctx, sampleRun("r1")))
	of := func() any {
		t.Helper()
		heads, err := s.Runs(ctx)
		must(t, err)
		return heads[0].Headline
	}
	must(t, s.SetHeadline(ctx, "r1", nil))
	better := sampleHeadline()
	better.Value *= 2
	must(t, s.SetHeadline(ctx, "r1", sampleHeadline()))
	must(t, s.SetHeadline(ctx, "r1", better))
	d := cmp.Diff(better, of())
	if d != "" {
		t.Errorf("headline (-want +got):\n%s", d)
	}

	_, err := s.db.ExecContext(ctx, `INSERT INTO run_labels (run, kind, text) VALUES ('r1', 'headline', '{')`)
	must(t, err)
	heads, err := s.Runs(ctx)
	if err != nil || heads[0].Damaged == "" {
		t.Errorf("a torn headline: got %+v, %v, want a damaged run", heads, err)
	}

	must(t, s.EndRun(ctx, "r1", "done", "", sampleStart.Add(time.Minute)))
}
