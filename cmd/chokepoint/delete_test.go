package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
)

// TestDeleteBesideARun: while a run is in progress another can be deleted, and its space stays until the
// store is left alone.
func TestDeleteBesideARun(t *testing.T) {
	dir := t.TempDir()
	dirs := app.Dirs{Data: dir, State: dir, Cache: dir, Runtime: dir}
	if err := labtest.WriteSample(t.Context(), dirs.StoreFile(), "good"); err != nil {
		t.Fatal(err)
	}

	if err := app.Prepare(dirs.Journals()); err != nil {
		t.Fatal(err)
	}

	j, err := journal.Create(dirs.Journals(), "20260101-000000-0000", dirs.Labs())
	if err != nil {
		t.Fatal(err)
	}

	execute := func(args ...string) (code int, said string) {
		var out, messages bytes.Buffer
		p := &program{streams: streams{Out: &out, Err: &messages}, App: app.App{Dirs: dirs}}
		code = p.execute(t.Context(), args)
		return code, out.String() + messages.String()
	}
	const note = "note: the space of deleted runs is not returned: run 20260101-000000-0000 is"
	code, said := execute("delete", "latest")
	if code != codeOK || !strings.Contains(said, "deleted run ") || !strings.Contains(said, note) {
		t.Errorf("beside a run: got code %d, %q", code, said)
	}

	code, said = execute("delete", "--compact")
	if code != codeError || !strings.Contains(said, "hint: wait for it") {
		t.Errorf("--compact beside a run: got code %d, %q", code, said)
	}

	if err := j.Close(); err != nil {
		t.Fatal(err)
	}

	code, said = execute("delete", "--compact")
	if code != codeOK || !strings.Contains(said, " MB, was ") {
		t.Errorf("--compact afterwards: got code %d, %q", code, said)
	}
}
