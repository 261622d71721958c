package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/foreign"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/quick"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

// watchedRun stores a run between two machines, and returns what a probe on the router printed meanwhile,
// whose wall clock was ahead.
func watchedRun(t *testing.T, d app.Dirs, ahead time.Duration) (printed string) {
	t.Helper()
	s := labtest.Samples["good"]
	run := s.Run()
	run.Lab = record.LabPair
	run.Status = record.RunDone
	run.Topologies = []record.Topology{quick.Forward()}
	st, err := store.Open(t.Context(), d.StoreFile())
	if err != nil {
		t.Fatal(err)
	}

	if err := st.CreateRun(t.Context(), run); err != nil {
		t.Fatal(err)
	}

	const second, offset = int64(time.Second), int64(5e12)
	wall := run.Started.Add(ahead)
	var b strings.Builder
	fmt.Fprintf(&b, `{"format":"chokepoint-probe/1","at_ns":%d,"realtime_ns":%d}`+"\n", offset, wall.UnixNano())
	at, total := second, 0.0
	step := func(rate float64) {
		fmt.Fprintf(&b, `{"at_ns":%d,"probe":"netdev","scope":"node","values":{"lan/rx_bytes":%d}}`+"\n",
			at+offset, int64(total))
		at = at + second/10
		total = total + rate/10
	}
	for i, tr := range s.Trials() {
		for range 10 + i {
			step(0)
		}

		table := record.NewTable("bytes")
		tr.Origin, tr.Started = at, run.Started.Add(time.Duration(at))
		rate := float64(100e6 * (i%3 + 1))
		for k := range 21 {
			table.Append(at+int64(k)*second/10, rate*float64(k)/10)
		}

		tr.Traffic.Flows[0].Received = table
		tr.Window = record.Window{Begin: at, Start: at, End: at + 2*second, Stop: at + 2*second}
		for range 20 {
			step(rate)
		}

		tr.Ended = at
		tr.Caveats = []record.Caveat{{Kind: "router-not-watched", Text: "router has no agent: its counters"}}
		if err := st.AppendTrial(t.Context(), tr); err != nil {
			t.Fatal(err)
		}
	}

	for range 10 {
		step(0)
	}

	if err := st.Close(); err != nil {
		t.Fatal(err)
	}

	return b.String()
}

// TestImport: import prints the offset of the clock, and believes one of an hour only with --clock-wrong. A
// second file replaces the first, and --undo takes all back.
func TestImport(t *testing.T) {
	for _, tt := range []struct {
		ahead time.Duration
		wrong bool
		want  string
	}{
		{90 * time.Second, false, `its clock is 1m30s ahead, within ±50 ms, by the traffic itself`},
		{-time.Hour, true, `its clock is 1h behind, within`},
		{-time.Hour, false, ""},
	} {
		d := app.Dirs{Data: filepath.Join(t.TempDir(), "chokepoint"), State: t.TempDir()}
		printed := watchedRun(t, d, tt.ahead)
		file := filepath.Join(t.TempDir(), "router.jsonl")
		if err := os.WriteFile(file, []byte(printed), 0o600); err != nil {
			t.Fatal(err)
		}

		var out strings.Builder
		p := &program{streams: streams{Out: &out, Err: &out}, App: app.App{Dirs: d}}
		args := []string{"import", file}
		if tt.wrong {
			args = append(args, "--clock-wrong")
		}

		for range 2 {
			code := p.execute(context.Background(), args)
			if tt.want == "" {
				if code != codeError || !strings.Contains(out.String(), "--clock-wrong") {
					t.Errorf("%v ahead: got code %d and %q, want a refusal", tt.ahead, code, &out)
				}
				continue
			}

			if code != codeOK || !regexp.MustCompile(tt.want).MatchString(out.String()) {
				t.Fatalf("%v ahead: got code %d and %q, want %s", tt.ahead, code, &out, tt.want)
			}
		}

		if tt.want == "" {
			continue
		}

		doc, err := d.Document(t.Context(), "latest")
		if err != nil {
			t.Fatal(err)
		}

		notes := 0
		for _, c := range doc.Caveats {
			if c.Kind == "imported" {
				notes++
			}
		}

		for _, tr := range doc.Trials {
			for _, c := range tr.Caveats {
				if strings.Contains(c.Text, "has no agent") {
					t.Errorf("trial %s: got %q, want it gone", tr.ID, c.Text)
				}
			}
		}

		if notes != 1 {
			t.Errorf("after two imports: it is said %d times, want once", notes)
		}

		if code := p.execute(context.Background(), []string{"import", "--undo"}); code != codeOK {
			t.Fatalf("undo: got code %d and %q", code, &out)
		}

		run, _, err := loadRun(t.Context(), d, "latest")
		if err != nil || len(run.Imports) != 0 || len(run.Caveats) != 0 {
			t.Errorf("after undo: got %d imports, %v, %v, want none", len(run.Imports), run.Caveats, err)
		}

		if code := p.execute(context.Background(), []string{"import", "--undo"}); code != codeUsage {
			t.Errorf("undo of nothing: got code %d, want %d", code, codeUsage)
		}
	}
}

// TestImportPasted: what the agent printed is found behind a prompt and a byte order mark, in UTF-16 and
// before another prompt.
func TestImportPasted(t *testing.T) {
	d := app.Dirs{Data: filepath.Join(t.TempDir(), "chokepoint"), State: t.TempDir()}
	printed := watchedRun(t, d, 0)
	pasted := "\ufeffroot@OpenWrt:~# chokepoint-agent probe --json\n" + printed + "root@OpenWrt:~# \n"
	var wide []byte
	for _, u := range utf16.Encode([]rune(printed)) {
		wide = binary.LittleEndian.AppendUint16(wide, u)
	}

	for name, text := range map[string][]byte{"pasted": []byte(pasted), "UTF-16": wide} {
		file := filepath.Join(t.TempDir(), "router.jsonl")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}

		var out strings.Builder
		p := &program{streams: streams{Out: &out, Err: &out}, App: app.App{Dirs: d}}
		code := p.execute(t.Context(), []string{"import", file})
		if code != codeOK {
			t.Errorf("%s: got code %d and %q", name, code, &out)
		}
	}
}

// counted is an endless text that counts the bytes read.
type counted struct{ n int64 }

func (c *counted) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = '1'
	}

	c.n += int64(len(b))
	return len(b), nil
}

// TestImportStandardInput: an interrupt ends the waiting for it, and one without end is not read to it.
func TestImportStandardInput(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(app.ErrInterrupted)
	silent, end := io.Pipe()
	defer end.Close()
	if _, err := openImport(ctx, standard, silent); !errors.Is(err, app.ErrInterrupted) {
		t.Errorf("interrupted: got %v, want %v", err, app.ErrInterrupted)
	}

	endless := &counted{}
	_, err := openImport(t.Context(), standard, endless)
	if !errors.Is(err, app.ErrUsage) || endless.n > foreign.MaxText+1 {
		t.Errorf("without end: got %v after %d bytes, want a refusal after %d", err, endless.n,
			foreign.MaxText)
	}
}
