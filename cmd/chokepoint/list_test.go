package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

// runsToList holds runs as a homelab's store may have them, newest first.
func runsToList() []store.Head {
	at := time.Date(2026, 11, 28, 1, 56, 50, 0, time.Local)
	varied := []record.FactorLevels{{Name: "tunnel", Levels: []string{"none", "wireguard"}},
		{Name: "streams", Levels: []string{"1", "4"}}, {Name: "direction", Levels: []string{"up", "down"}}}
	best := &record.Headline{Metric: "goodput_bps", Value: 12.7e9, Cell: "4 streams · up", Grade: "valid"}
	doubtful := *best
	doubtful.Value, doubtful.Grade = 941e6, "suspect"
	return []store.Head{
		{ID: "20261128-015650-94e6", Started: at, Plan: "quick", Lab: "local", Status: record.RunRunning,
			Trials: 1, Line: store.Line{Varied: varied}},
		{ID: "20261128-015612-94e6", Name: "mt6000-offload", Started: at, Plan: "router", Lab: "ssh",
			Status: record.RunDone, Headline: &doubtful, Failed: 2, Trials: 30,
			Line: store.Line{Device: "GL.iNet GL-MT6000, OpenWrt 24.10.0", Varied: varied[1:]}},
		{ID: "20261127-015650-94e6", Started: at.AddDate(0, 0, -1), Plan: "quick", Lab: "local",
			Status: record.RunDone, Headline: best, Trials: 30, Line: store.Line{Varied: varied[1:]}},
		{ID: "20250103-015650-94e6", Started: at.AddDate(-2, 1, 0), Plan: "mtu", Lab: "local",
			Status: record.RunInterrupted, Line: store.Line{Varied: []record.FactorLevels{
				{Name: "mtu", Levels: []string{"1280", "1340", "1380", "1400", "1420"}}}}},
		{ID: "\x1b[2J", Started: at, Plan: "a\tb", Lab: "local", Damaged: "an id"},
	}
}

func TestList(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.Local)
	want := strings.Join([]string{
		"RUN             WHEN          DEVICE    PLAN    VARIED    BEST",
		"20261128-01565  28 Nov 01:56  local     quick   tunnel…   running, 1 trial",
		"mt6000-offload  28 Nov 01:56  GL.iNet…  router  streams…  941 Mbit/s !, 2 failed",
		"20261127-0156   27 Nov 01:56  local     quick   streams…  12.7 Gbit/s",
		"20250103-0156   28 Dec  2024  local     mtu     mtu 128…  interrupted",
		`"\x1b[2J"       28 Nov 01:56  local     a b     -         damaged`,
		"",
	}, "\n")
	got := listText(runsToList(), now, 80)
	for line := range strings.Lines(got) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 80 {
			t.Errorf("%d characters: %s", n, line)
		}
	}

	diff := cmp.Diff(want, got)
	if diff != "" {
		t.Errorf("at 80 columns (-want +got):\n%s", diff)
	}

	named := runsToList()[:2]
	named[1].Name = "the-router-in-the-cellar-with-a-new-firmware"
	got = listText(named, now, 80)
	for line := range strings.Lines(got) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 80 {
			t.Errorf("with a long name %d characters: %s", n, line)
		}
	}

	if !strings.Contains(got, "20261128-01565  ") || !strings.Contains(got, "\nthe-router-in") {
		t.Errorf("an id or all of a name was cut:\n%s", got)
	}

	few := listText(runsToList()[2:3], now, 80)
	wantFew := "RUN            WHEN          DEVICE  PLAN   VARIED                   BEST\n" +
		"20261127-0156  27 Nov 01:56  local   quick  streams 1,4 × direction  12.7 Gbit/s\n"
	if few != wantFew {
		t.Errorf("one run at 80 columns: got\n%swant\n%s", few, wantFew)
	}

	all := listText(runsToList(), now, 0)
	if !strings.Contains(all, "GL.iNet GL-MT6000, OpenWrt 24.10.0 · ssh  router  streams 1,4 × direction") ||
		!strings.Contains(all, "941 Mbit/s !, 2 failed  4 streams · up\n") {
		t.Errorf("without a width:\n%s", all)
	}
}

// TestCompletionIsPlain: no text of a store steers the terminal of the shell that prints it.
func TestCompletionIsPlain(t *testing.T) {
	dir := t.TempDir()
	dirs := app.Dirs{Data: dir, State: dir, Cache: dir, Runtime: dir}
	st, err := store.Open(t.Context(), dirs.StoreFile())
	if err != nil {
		t.Fatal(err)
	}

	run := labtest.Samples["good"].Run()
	run.Name = "\x1b[2J"
	run.Design.Name = "a\x1b[31m\tplan"
	if err := errors.Join(st.CreateRun(t.Context(), run), st.Close()); err != nil {
		t.Fatal(err)
	}

	var out, messages bytes.Buffer
	p := &program{streams: streams{Out: &out, Err: &messages}, App: app.App{Dirs: dirs}}
	code := p.execute(t.Context(), []string{"__complete", "show", ""})
	want := run.ID + "\ta[31m plan"
	if code != codeOK || !strings.Contains(out.String(), want) || strings.Contains(out.String(), "\x1b") {
		t.Errorf("got code %d, %q, %s; want %q in it", code, out.String(), messages.String(), want)
	}
}
