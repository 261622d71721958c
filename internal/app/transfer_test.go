package app

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

// What is recorded while the server is away is sent by the next command, what was recorded before the server
// was named is not, and the outcome of the command stays as it is.
func TestRecorded(t *testing.T) {
	u, err := url.Parse(apart.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	socket := u.Query().Get("host")
	link := filepath.Join(dir, "socket") // not there yet
	u.RawQuery = url.Values{"host": {link}}.Encode()
	own := Dirs{Data: filepath.Join(dir, "data"), State: filepath.Join(dir, "state")}
	team := own.At(u.String())
	var notes []string
	a := &App{
		Dirs: team,
		Note: func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) },
	}
	sample := func(name string) string {
		if err := labtest.WriteSample(t.Context(), own.StoreFile(), name); err != nil {
			t.Fatal(err)
		}
		return labtest.Samples[name].ID
	}
	outcome := errors.New("the outcome")
	record := func(names ...string) (said string) {
		t.Helper()
		notes = nil
		a.Dirs = team
		ctx, cancel := context.WithCancel(t.Context())
		err := a.Recorded(ctx, func() error {
			cancel() // as by Ctrl-C: what the command recorded is sent nevertheless
			for _, name := range names {
				if err := a.Dirs.addNote(t.Context(), sample(name), store.Note{}); err != nil {
					t.Error(err)
				}
			}

			if a.Dirs.Store != "" {
				t.Error("a command records on the server")
			}
			return outcome
		})
		if err != outcome {
			t.Errorf("got %v, want the outcome of the command", err)
		}
		return strings.Join(notes, "\n")
	}
	arrived := func() (ids []string) {
		t.Helper()
		runs, err := team.Runs(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		for _, r := range runs {
			ids = append(ids, r.ID)
		}
		return ids
	}

	sample("before")
	if said := record("good"); !strings.Contains(said, "not sent to postgres://owner@/") ||
		!strings.Contains(said, "chokepoint push") {
		t.Errorf("without the server: got %q, want a note", said)
	}

	if err := os.Symlink(socket, link); err != nil {
		t.Fatal(err)
	}

	said := record("slow", "killed")
	if strings.Count(said, "was sent to") != 2 || strings.Contains(said, "not") {
		t.Errorf("with the server: got %q, want that two were sent", said)
	}

	want := []string{labtest.Samples["slow"].ID, labtest.Samples["good"].ID}
	if d := cmp.Diff(arrived(), want); d != "" {
		t.Errorf("arrived (-got +want):\n%s", d)
	}

	if said := record(); said != "" {
		t.Errorf("nothing recorded: got %q, want no note", said)
	}

	// One that the server never takes is noted once.
	if _, err := team.Delete(t.Context(), []string{labtest.Samples["good"].ID}, -1); err != nil {
		t.Fatal(err)
	}

	sending := own
	sending.Team = team.StoreName()
	if err := sending.addNote(t.Context(), labtest.Samples["good"].ID, store.Note{}); err != nil {
		t.Fatal(err)
	}

	if said := record(); !strings.Contains(said, "it was deleted there") {
		t.Errorf("a run that was deleted there: got %q, want a note", said)
	}

	if said := record(); said != "" {
		t.Errorf("the same again: got %q, want no note", said)
	}

	// push sends what is older, and not what was deleted or has not ended.
	sent, err := own.Transfer(t.Context(), team, nil)
	if err != nil || len(sent) != 1 || sent[0].Run != labtest.Samples["before"].ID {
		t.Errorf("all that is lacking: got %+v, %v, want the older run", sent, err)
	}

	_, err = own.Transfer(t.Context(), team, []string{labtest.Samples["killed"].ID})
	if !errors.As(err, new(*store.UnendedError)) {
		t.Errorf("a killed run: got %v, want an UnendedError", err)
	}

	if ids := arrived(); len(ids) != 2 || slices.Contains(ids, labtest.Samples["good"].ID) {
		t.Errorf("at last: got %v, want two runs", ids)
	}
}

// A run that was resumed, or that the server refuses, does not stop the others, and is noted once.
func TestRecordedIsRefused(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	own := Dirs{Data: filepath.Join(dir, "data"), State: filepath.Join(dir, "state")}
	team := own.At(apart.Postgres(t))
	var notes []string
	a := &App{Note: func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }}
	command := func(names ...string) string {
		notes = nil
		a.Dirs = team
		err := a.Recorded(ctx, func() error {
			for _, name := range names {
				err := labtest.WriteSample(ctx, own.StoreFile(), name)
				err = errors.Join(err, a.Dirs.addNote(ctx, labtest.Samples[name].ID, store.Note{}))
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		return strings.Join(notes, "\n")
	}
	good, before := labtest.Samples["good"].ID, labtest.Samples["before"].ID
	for _, name := range []string{"good", "before"} {
		if err := labtest.WriteSample(ctx, own.StoreFile(), name); err != nil {
			t.Fatal(err)
		}
	}

	st, err := store.Open(ctx, own.StoreFile())
	if err != nil {
		t.Fatal(err)
	}

	st.SendTo(team.StoreName())
	err = errors.Join(st.AddNote(ctx, before, store.Note{}),
		st.EndRun(ctx, good, record.RunRunning, "", time.Now()), st.Close())
	if err != nil {
		t.Fatal(err)
	}

	file, err := sql.Open("sqlite", own.StoreFile())
	if err != nil {
		t.Fatal(err)
	}

	_, err = file.ExecContext(ctx, `INSERT INTO run_ends (run, status, reason, ended_ns)
		VALUES (?, 'done', 'the device said ' || CAST(x'ff' AS TEXT), 0)`, before)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}

	said := command("slow")
	third := labtest.Samples["slow"].ID
	if !strings.Contains(said, "run "+third+" was sent") || strings.Contains(said, good) ||
		!strings.Contains(said, "UTF8") || !strings.Contains(said, before) {
		t.Errorf("after the two: got %q, want the third run sent and the second refused", said)
	}

	if said := command(); said != "" {
		t.Errorf("the same again: got %q, want no note", said)
	}

	a.Dirs = team
	err = a.Recorded(ctx, func() error { return &store.NotFoundError{Name: "r1"} })
	if !strings.Contains(check.HintOf(err), "chokepoint pull") {
		t.Errorf("a run that is not here: got hint %q", check.HintOf(err))
	}
}
