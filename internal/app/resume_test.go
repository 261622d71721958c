package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

func TestOtherBed(t *testing.T) {
	host := func(facts ...string) record.Run {
		r := record.Run{
			RunHead: record.RunHead{Lab: record.LabVM},
			Nodes: []record.NodeFacts{{
				Name:   "router",
				Driven: "agent",
				CPUs:   record.CPUsVirtual,
			}},
		}
		e := record.Environment{
			Node: "host",
			Facts: map[string]string{"guest_memory_mb": "512",
				"cpu_threads": "4", "sysctl:net.ipv4.tcp_mem": "1 2 3", "os": "Linux", "kernel": "6.1",
				"governor": "performance"},
		}
		for _, f := range facts {
			name, value, _ := strings.Cut(f, "=")
			e.Facts[name] = value
		}

		r.Environments = []record.Environment{e}
		return r
	}
	queues := host()
	driven := host()
	accel := host()
	queues.Queues = 2
	driven.Driver, driven.Nodes[0].Driven = "linux", "linux"
	accel.Nodes[0].CPUs = record.CPUsEmulated
	path := func(peer string, facts ...string) record.Run {
		r := host()
		e := record.Environment{Node: "router", Facts: map[string]string{}}
		for _, f := range facts {
			name, value, _ := strings.Cut(f, "=")
			e.Facts["path_ipv4:"+name] = value
		}

		r.Peer = peer
		r.Environments = []record.Environment{e}
		return r
	}
	tests := []struct {
		name string
		is   record.Run
		want []string
	}{
		{"the same", host(), nil},
		{"what varies by itself", host("sysctl:net.ipv4.tcp_mem=3 4 5", "memory_bytes=1",
			"clocksource=tsc"), nil},
		{"a smaller guest", host("guest_memory_mb=320"), []string{"guest_memory_mb of host was 512, is 320"}},
		{"another image", host("guest_image=stock"), []string{"guest_image of host was none, is stock"}},
		{"fewer cores", host("cpu_threads=2"), []string{"cpu_threads of host was 4, is 2"}},
		{"another kernel", host("kernel=6.2", "os=Other"), []string{"kernel of host was 6.1, is 6.2"}},
		{"another governor", host("governor=powersave"),
			[]string{"governor of host was performance, is powersave"}},
		{"queues", queues, []string{"queues of each virtual link was 1, is 2"}},
		{"a driver", driven, []string{"driver of the routers was none, is linux",
			"by what router is driven was agent, is linux"}},
		{"the same path", path("192.0.2.7:20100", "near=10.0.0.1", "far=192.0.2.7", "nat=near", "mtu=1500",
			"route=10.0.0.2", "udp_opened_by=far"), nil},
		{"translation untold", path("192.0.2.7:20100", "near=10.0.0.1", "far=192.0.2.7", "mtu=1500",
			"route=10.0.0.2"), nil},
		{"another peer", path("192.0.2.8", "near=10.0.0.3", "far=192.0.2.8", "nat=none", "mtu=1492"),
			[]string{"peer was 192.0.2.7:20100, is 192.0.2.8:20100",
				"path_ipv4:far of router was 192.0.2.7, is 192.0.2.8",
				"path_ipv4:mtu of router was 1500, is 1492", "path_ipv4:nat of router was near, is none",
				"path_ipv4:near of router was 10.0.0.1, is 10.0.0.3",
				"path_ipv4:route of router was 10.0.0.2, is none"}},
		{"emulation", accel, []string{"what CPUs router has was virtual, is emulated"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			was := host()
			if tt.is.Peer != "" {
				was = path("192.0.2.7", "near=10.0.0.1", "far=192.0.2.7", "nat=near", "mtu=1500",
					"route=10.0.0.2", "udp_opened_by=near")
			}

			got := otherBed(&was, &tt.is)
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestOtherPeerVersion(t *testing.T) {
	const a, b = "v1 go1.26.8 linux/amd64", "v2 go1.26.8 linux/amd64"
	of := func(theirs string) *record.Run {
		return &record.Run{Caveats: []record.Caveat{{
			Kind: peerVersion,
			Text: versionText + theirs +
				", this is v3 go1.26.8 linux/amd64",
		}}}
	}
	for _, tt := range []struct {
		was  *record.Run
		is   string
		want []string
	}{
		{&record.Run{}, "", nil},
		{of(a), a, nil},
		{of(a), "v1 go1.26.8 linux/arm64", nil},
		{of(a), b, []string{"version of the peer was " + a + ", is " + b}},
		{of(a), "", []string{"version of the peer was " + a + ", is ours"}},
		{&record.Run{}, b, []string{"version of the peer was ours, is " + b}},
	} {
		got := otherPeerVersion(tt.was, tt.is)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%v, then %q: got %q, want %q", tt.was.Caveats, tt.is, got, tt.want)
		}
	}
}

// TestWhoElseIsThere: a journal's owner is a run, or another command that makes labs.
func TestWhoElseIsThere(t *testing.T) {
	for id, want := range map[string]string{"20260102-030405-aaaa": "run 20260102-030405-aaaa",
		"doctor-20260102-030405-aaaa": "another chokepoint (doctor-20260102-030405-aaaa)"} {
		got := owner(id)
		if got != want {
			t.Errorf("owner %s: got %q, want %q", id, got, want)
		}
	}
}

// TestResumeFindsTheLatestRunThatWasCutShort.
func TestResumeFindsTheLatestRunThatWasCutShort(t *testing.T) {
	d := Dirs{Data: t.TempDir() + "/chokepoint", State: t.TempDir()}
	ctx := context.Background()
	var notes bytes.Buffer
	p := &App{Dirs: d, Note: func(format string, args ...any) { fmt.Fprintf(&notes, format+"\n", args...) }}
	if _, err := p.lastCutShort(ctx); err == nil || check.HintOf(err) == "" {
		t.Errorf("without a run: got %v, want an error with a hint", err)
	}

	for _, name := range []string{"good", "killed", "before"} { // the newest has come to its end
		if err := labtest.WriteSample(ctx, d.StoreFile(), name); err != nil {
			t.Fatal(err)
		}
	}

	// Two that a kill left no head of, the older of which is before the run that can be resumed.
	for _, id := range []string{"20260101-000000-aaaa", "20260109-030405-ffff",
		"check-20260109-030405-ffff"} {
		writeJournal(t, d, id)
	}

	want := labtest.Samples["killed"].ID
	if got, err := p.lastCutShort(ctx); err != nil || got != want {
		t.Errorf("got %q, %v, want %s", got, err, want)
	}

	text := notes.String()
	if strings.Count(text, "nothing to resume") != 1 ||
		!strings.Contains(text, "run 20260109-030405-ffff was killed before anything") ||
		!strings.Contains(text, "continuing run "+want+" of plan sample, started 2026-01-05 ") {
		t.Errorf("said %q, want which run, and the one that is newer", text)
	}

	// One that cannot be read is skipped.
	damage(t, d.StoreFile(), want)
	notes.Reset()
	over := "skipped " + want
	if got, err := p.lastCutShort(ctx); err == nil || !strings.Contains(notes.String(), over) {
		t.Errorf("damaged: got %q, %v, said %q", got, err, notes.String())
	}
}

// damage changes the beginning of the head that is stored of a run: behind its id, two times, the names of
// its plan and lab, and its line.
func damage(t *testing.T, file, run string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	for rest := data; ; {
		at := bytes.Index(rest, []byte(run))
		if at < 0 {
			t.Fatal("the head is not there")
		}

		rest = rest[at+len(run):]
		begins := bytes.Index(rest[:min(500, len(rest))], []byte("\x28\xb5\x2f\xfd")) // zstd
		if begins >= 0 && bytes.HasPrefix(rest[8+8:], []byte("samplelocal")) {
			rest[begins] ^= 1
			break
		}
	}

	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// writeJournal leaves the journal of an owner that was killed before it changed anything.
func writeJournal(t *testing.T, d Dirs, owner string) {
	t.Helper()
	j, err := journal.Create(d.Journals(), owner, "")
	if err != nil {
		t.Fatal(err)
	}

	path := filepath.Join(d.Journals(), owner+".jsonl")
	text, err := os.ReadFile(path)
	if err == nil {
		err = errors.Join(j.Close(), os.WriteFile(path, text, 0o600))
	}

	if err != nil {
		t.Fatal(err)
	}
}

// TestTheSameMachineIsTheSameBed, with the facts that are really stored of it.
func TestTheSameMachineIsTheSameBed(t *testing.T) {
	run := func() record.Run {
		e := probe.Fingerprint(probe.Root{})
		e.Node = "host"
		return record.Run{Environments: []record.Environment{e}}
	}
	was := run()
	is := run()
	for _, name := range []string{"os", "kernel"} {
		if was.Environments[0].Facts[name] == "" {
			t.Errorf("fact %s: got none", name)
		}
	}

	if got := otherBed(&was, &is); len(got) > 0 {
		t.Errorf("got %q, want no difference", got)
	}

	is.Environments[0].Facts["kernel"] = "another"
	if got := otherBed(&was, &is); len(got) != 1 || !strings.HasPrefix(got[0], "kernel of host was ") {
		t.Errorf("another kernel: got %q, want that alone", got)
	}
}

func TestWhatIsLearntOfARunThatGoesOn(t *testing.T) {
	old := record.Caveat{Kind: "virtual-cards", Text: "the client has none"}
	other := record.Caveat{Kind: "another-run", Text: "run b is going on"}
	was := record.Run{Caveats: []record.Caveat{old}, Skipped: []record.Skipped{{Reason: "before"}}}
	is := record.Run{
		Caveats: []record.Caveat{old, other, old},
		Skipped: []record.Skipped{{Reason: "before"}, {Reason: "now"}},
	}
	note, marks := learnt(&was, &is, nil, 3)
	if !slices.Equal(note.Caveats, []record.Caveat{other}) || len(note.Skipped) != 1 || marks != nil {
		t.Errorf("unchanged: got %+v and marks %v, want the other run and what is skipped now", note, marks)
	}

	note, marks = learnt(&was, &is, []string{"another kernel"}, 3)
	if len(note.Caveats) != 2 || note.Caveats[1].Kind != "resumed-changed" || len(marks) != 1 ||
		marks[0].Kind != "after-change" || !strings.Contains(marks[0].Text, "another kernel") {
		t.Errorf("changed: got %+v and marks %v, want both marked", note, marks)
	}
}

// TestTrialsAreReadOnceTheRunIsOwned: what another resume has done meanwhile is not done again.
func TestTrialsAreReadOnceTheRunIsOwned(t *testing.T) {
	d := Dirs{Data: t.TempDir() + "/chokepoint", State: t.TempDir()}
	ctx := context.Background()
	s := labtest.Samples["killed"]
	if err := labtest.WriteSample(ctx, d.StoreFile(), "killed"); err != nil {
		t.Fatal(err)
	}

	before, err := d.head(ctx, s.ID)
	if err != nil {
		t.Fatal(err)
	}

	st, err := store.Open(ctx, d.StoreFile())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	x := &execution{run: before, before: &before, store: st}
	if trials, err := x.done(ctx); err != nil || len(trials) != len(s.Trials()) {
		t.Errorf("got %d trials, %v, want %d", len(trials), err, len(s.Trials()))
	}

	if err := st.EndRun(ctx, s.ID, record.RunDone, "", s.Started.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}

	if _, err := x.done(ctx); !errors.Is(err, errRefused) {
		t.Errorf("resumed by another meanwhile: got %v, want a refusal", err)
	}
}

// A run that a program with another state directory records in the same store is seen to run, and is neither
// resumed nor deleted.
func TestARunOfAnotherSession(t *testing.T) {
	d := Dirs{Data: t.TempDir() + "/chokepoint", State: t.TempDir(), Runtime: t.TempDir()}
	ctx := t.Context()
	id := labtest.Samples["killed"].ID
	if err := labtest.WriteSample(ctx, d.StoreFile(), "killed"); err != nil {
		t.Fatal(err)
	}

	st, err := store.Open(ctx, d.StoreFile())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	status := func(want string) {
		t.Helper()
		run, err := d.head(ctx, id)
		runs, listErr := d.Runs(ctx)
		if errors.Join(err, listErr) != nil || run.Status != want || runs[0].Status != want {
			t.Errorf("status: got %q and %+v, %v, want %s", run.Status, runs, errors.Join(err, listErr), want)
		}
	}
	status(record.RunKilled)
	end, err := st.Record(id) // as the other session does
	if err != nil {
		t.Fatal(err)
	}

	status(record.RunRunning)
	a := &App{Dirs: d}
	for _, name := range []string{id, ""} {
		if _, err := a.Resume(ctx, name, ResumeOptions{Force: true}); err == nil {
			t.Errorf("resume %q: got no error", name)
		}
	}

	_, err = d.Delete(ctx, []string{id}, -1)
	expect.Error(t, "delete", err, "it is still going on, nothing was deleted")
	if out, err := d.Delete(ctx, nil, 0); err != nil || len(out.Removed) > 0 {
		t.Errorf("delete all: got %v, %v, want nothing removed", out, err)
	}

	_, _, err = d.Compact(ctx)
	expect.Error(t, "compact", err, "of another user or session is going on")
	run, err := d.head(ctx, id)
	if err != nil {
		t.Fatal(err)
	}

	// It was resumed there after its status had been read here.
	x := &execution{App: a, run: run, reportPath: t.TempDir() + "/report.html"}
	err = x.open(ctx)
	if _, alive := errors.AsType[*store.AliveError](err); !alive {
		t.Errorf("record it twice: got %v", err)
	}

	if err := errors.Join(x.shut(), end.Close()); err != nil {
		t.Fatal(err)
	}

	status(record.RunKilled)
}
