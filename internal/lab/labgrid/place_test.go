package labgrid

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// played is a coordinator played by testdata/labgrid-client, and a journal.
type played struct {
	t        *testing.T
	dir      string
	journals string
	journal  *journal.Journal
	told     []string
}

func play(t *testing.T) *played {
	t.Helper()
	// A copy, because others may be able to write to the source tree.
	bin := t.TempDir()
	client := []byte(recorded(t, program))
	if err := os.WriteFile(filepath.Join(bin, program), client, 0o700); err != nil {
		t.Fatal(err)
	}

	p := &played{t: t, dir: t.TempDir(), journals: filepath.Join(t.TempDir(), "journal")}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("PLAYED", p.dir)
	for name, value := range map[string]string{"LG_HOSTNAME": "pc3", "LG_USERNAME": "paul",
		"LG_COORDINATOR": "", "LG_PROXY": "", "LG_ENV": "", "VERSION": ""} {
		t.Setenv(name, value)
	}

	var err error
	if p.journal, err = journal.Create(p.journals, "run-1", ""); err != nil {
		t.Fatal(err)
	}

	return p
}

func (p *played) take(want record.Place) (*Held, error) {
	return Take(p.t.Context(), host.Local(), p.journal, "run-1", want,
		func(text string) { p.told = append(p.told, text) })
}

func (p *played) put(name, text string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func (p *played) has(name string) string {
	b, err := os.ReadFile(filepath.Join(p.dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

const (
	own   = "pc3.chokepoint-run-1/paul"
	other = "desk/anna"
)

// left returns the entries of the journal after its owner has died.
func (p *played) left() []journal.Entry {
	p.t.Helper()
	if err := p.journal.Close(); err == nil {
		return nil
	}

	stale, _, err := journal.FindStale(p.journals, nil)
	if err != nil || len(stale) != 1 {
		p.t.Fatalf("got %d journals, %v, want one", len(stale), err)
	}

	if err := stale[0].Release(); err != nil {
		p.t.Fatal(err)
	}

	return stale[0].Entries
}

func (p *played) wants(name, want string) {
	p.t.Helper()
	if got := p.has(name); got != want {
		p.t.Errorf("%s: got %q, want %q", name, got, want)
	}
}

// TestTakeAndRelease: the place is acquired under a name of the run's own, without a reservation that stays;
// and nothing is left after the release, which may be repeated.
func TestTakeAndRelease(t *testing.T) {
	for name, want := range map[string]record.Place{"name": {Name: "board-7", PowerAfter: "off"},
		"tags": {Tags: []string{"device=openwrt-one"}, PowerAfter: "off"}} {
		t.Run(name, func(t *testing.T) {
			p := play(t)
			held, err := p.take(want)
			if err != nil {
				t.Fatal(err)
			}

			p.wants("acquired", own)
			p.wants("reserved", "")
			if held.Place().Name != "board-7" || !slices.Contains(held.Tags, "cp.client=ssh://pc1") ||
				!strings.Contains(held.Describe(), "acquired as "+own+" from the coordinator at "+
					"127.0.0.1:20408, by labgrid-client 26.0.1; resources: NetworkPowerPort") {
				t.Errorf("got %+v, %s", held, held.Describe())
			}

			for range 2 {
				gone, err := held.Release(t.Context())
				if gone || err != nil {
					t.Errorf("release: got %v, %v", gone, err)
				}
			}

			p.wants("acquired", "")
			if log := p.has("log"); strings.Count(log, "power off") != 1 || len(p.left()) > 0 {
				t.Errorf("want one power off and an empty journal: %s", log)
			}
		})
	}
}

// TestTaken: a place that others use is left to them, and the error names them.
func TestTaken(t *testing.T) {
	p := play(t)
	p.put("acquired", other)
	held, err := p.take(record.Place{Name: "board-7"})
	const taken = "place board-7 is taken: desk/anna has acquired board-7"
	if err == nil || !strings.Contains(err.Error(), taken) || check.HintOf(err) == "" {
		t.Errorf("got %v, want who has it, with a hint", err)
	}

	gone, err := held.Release(t.Context())
	if gone || err != nil {
		t.Errorf("release: got %v, %v", gone, err)
	}

	p.wants("acquired", other)
	p.wants("reserved", "")

	p = play(t)
	p.put("acquired", other)
	held, err = p.take(record.Place{Name: "board-7", Wait: 200 * time.Millisecond})
	const waiting = "waiting for place board-7, at most 200ms: desk/anna"
	if err == nil || !strings.Contains(err.Error(), "place board-7 is still taken after 200ms") ||
		len(p.told) != 1 || !strings.Contains(p.told[0], waiting) {
		t.Errorf("got %v, told %q, want the time it waited for, and for whom", err, p.told)
	}

	if _, err := held.Release(t.Context()); err != nil {
		t.Error(err)
	}

	p.wants("acquired", other)
	p.wants("reserved", "")
}

// TestWaits: the place is acquired when the other user has released it.
func TestWaits(t *testing.T) {
	p := play(t)
	p.put("acquired", other)
	free := time.AfterFunc(300*time.Millisecond, func() { os.Remove(filepath.Join(p.dir, "acquired")) })
	defer free.Stop()
	held, err := p.take(record.Place{Name: "board-7", Wait: time.Minute})
	if err != nil {
		t.Fatal(err)
	}

	p.wants("acquired", own)
	if _, err := held.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestWhatIsMissing: each error says what is wrong and what to do, and nothing is reserved.
func TestWhatIsMissing(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(p *played)
		place   string
		want    string
	}{
		"no such place":  {func(*played) {}, "board", "has not place board"},
		"too old":        {func(p *played) { p.t.Setenv("VERSION", "24.0.3") }, "board-7", "labgrid-client is too old: it is version 24.0.3; 25.0 or later is needed"},
		"no coordinator": {func(p *played) { p.put("down", "") }, "board-7", "reach labgrid's coordinator at 127.0.0.1:20408: unreachable"},
		"not installed":  {func(p *played) { p.t.Setenv("PATH", p.dir) }, "board-7", "start labgrid-client: unsupported: not installed"},
	} {
		t.Run(name, func(t *testing.T) {
			p := play(t)
			test.prepare(p)
			held, err := p.take(record.Place{Name: test.place})
			if err == nil || !strings.Contains(err.Error(), test.want) || check.HintOf(err) == "" ||
				errors.Is(err, ErrNoCoordinator) != (name == "no coordinator") {
				t.Errorf("got %v, hint %q, want %s", err, check.HintOf(err), test.want)
			}

			if _, err := held.Release(t.Context()); err != nil {
				t.Error(err)
			}

			if log := p.has("log"); strings.Contains(log, "reserve ") || len(p.left()) > 0 {
				t.Errorf("something was reserved: %s", log)
			}
		})
	}
}

// TestTooOldWithoutVersion: Debian 12's labgrid-client has no command version.
func TestTooOldWithoutVersion(t *testing.T) {
	p := play(t)
	bin := t.TempDir()
	const old = `#!/bin/sh
case $1 in
--help) echo '-x URL, --crossbar URL' ;;
*) echo "invalid choice: 'version'" >&2; exit 2 ;;
esac`
	if err := os.WriteFile(filepath.Join(bin, program), []byte(old), 0o700); err != nil {
		t.Fatal(err)
	}

	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	_, err := p.take(record.Place{Name: "board-7"})
	const want = "labgrid-client is too old: it has no option --coordinator"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want that it is too old", err)
	}
}

// TestCoordinatorLostWhileAcquiring: the entry stays in the journal, and a later restore releases the place.
func TestCoordinatorLostWhileAcquiring(t *testing.T) {
	p := play(t)
	p.put("lost", "")
	held, err := p.take(record.Place{Name: "board-7"})
	if !errors.Is(err, host.ErrUnreachable) {
		t.Fatalf("got %v, want the coordinator unreachable", err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = held.Release(ctx)
	if err == nil || !strings.Contains(err.Error(), "release place board-7, which "+own+" holds") ||
		!strings.Contains(check.HintOf(err), "chokepoint lab restore") {
		t.Errorf("release without a coordinator: got %v, hint %q", err, check.HintOf(err))
	}

	p.wants("acquired", own)
	entries := p.left()
	if len(entries) != 1 || entries[0].Kind != journal.KindPlace || entries[0].Holder != own {
		t.Fatalf("the journal has %+v, want the place", entries)
	}

	if _, err := Restore(t.Context(), host.Local(), entries[0]); err == nil {
		t.Error("a restore without a coordinator: got no error")
	}

	os.Remove(filepath.Join(p.dir, "down"))
	for _, want := range []string{"released place board-7", "already released: place board-7"} {
		text, err := Restore(t.Context(), host.Local(), entries[0])
		if err != nil || text != want {
			t.Errorf("restore: got %q, %v, want %q", text, err, want)
		}
	}

	p.wants("acquired", "")
	p.wants("reserved", "")
}

// TestLostPlace: if the coordinator was restarted, the place may be another user's, who keeps it; the run
// learns that.
func TestLostPlace(t *testing.T) {
	p := play(t)
	held, err := p.take(record.Place{Name: "board-7", PowerAfter: "off"})
	if err != nil {
		t.Fatal(err)
	}

	p.put("acquired", other)
	gone, err := held.Release(t.Context())
	if !gone || err != nil || strings.Contains(p.has("log"), "power off") {
		t.Errorf("got %v, %v, want that the place is gone, and no power off: %s", gone, err, p.has("log"))
	}

	p.wants("acquired", other)
}

// TestKilledWhileReserving: what is left of a run that was killed between reserve and acquire is cancelled.
func TestKilledWhileReserving(t *testing.T) {
	p := play(t)
	p.put("reserved", own)
	e := journal.Entry{Kind: journal.KindPlace, Holder: own, Labgrid: &record.Place{Tags: []string{"a=b"}}}
	text, err := Restore(t.Context(), host.Local(), e)
	if err != nil || text != "cancelled the reservation of a place with a=b" {
		t.Errorf("got %q, %v", text, err)
	}

	p.wants("reserved", "")
}

// TestReleaseWithoutPower: a board that cannot be switched off is released, and the user learns it.
func TestReleaseWithoutPower(t *testing.T) {
	p := play(t)
	held, err := p.take(record.Place{Name: "board-7", PowerAfter: "off"})
	if err != nil {
		t.Fatal(err)
	}

	p.put("unpowered", "")
	gone, err := held.Release(t.Context())
	if gone || err != nil || len(p.told) != 1 || !strings.Contains(p.told[0], "place board-7: power off: ") {
		t.Errorf("got %v, %v, told %q", gone, err, p.told)
	}

	p.wants("acquired", "")
}

// TestReleaseWithHangingPower: a power command that never ends is tried once and ended. It takes no time from
// the release, which is repeated if its answer is lost; the place was not lost then.
func TestReleaseWithHangingPower(t *testing.T) {
	p := play(t)
	held, err := p.take(record.Place{Name: "board-7", PowerAfter: "off"})
	if err != nil {
		t.Fatal(err)
	}

	p.put("hanging", "")
	p.put("unanswered", "")
	if held.powerTime >= releaseTime {
		t.Errorf("a power command may take %s, the release %s", held.powerTime, releaseTime)
	}

	held.powerTime = 200 * time.Millisecond
	gone, err := held.Release(t.Context())
	const want = "place board-7: power off: run labgrid-client: unreachable: no answer within 200ms"
	if gone || err != nil || len(p.told) != 1 || p.told[0] != want {
		t.Errorf("got %v, %v, told %q, want %q", gone, err, p.told, want)
	}

	p.wants("acquired", "")
	if log := p.has("log"); strings.Count(log, "power off") != 1 || len(p.left()) > 0 {
		t.Errorf("want one power off and an empty journal: %s", log)
	}
}

// TestKeepsPlaceOfChangedMachines: while settings are not undone, nobody else gets the machines, and the
// board stays on, so that a restore can undo the settings.
func TestKeepsPlaceOfChangedMachines(t *testing.T) {
	p := play(t)
	held, err := p.take(record.Place{Name: "board-7", PowerAfter: "off"})
	if err != nil {
		t.Fatal(err)
	}

	seq, err := p.journal.Add(journal.Entry{Kind: journal.KindMachines, Lab: "run-1-machines",
		Machines: &record.Machines{}})
	if err != nil || seq != 2 {
		t.Fatal(seq, err)
	}

	gone, err := held.Release(t.Context())
	const want = "settings on its machines are not undone, so it stays acquired"
	if gone || err == nil || !strings.Contains(err.Error(), want) ||
		!strings.Contains(check.HintOf(err), "chokepoint lab restore undoes the settings") {
		t.Errorf("got %v, %v, hint %q, want %s", gone, err, check.HintOf(err), want)
	}

	if _, err := held.Release(t.Context()); err != nil {
		t.Errorf("again: got %v", err)
	}

	p.wants("acquired", own)
	if entries := p.left(); len(entries) != 2 || strings.Contains(p.has("log"), "power off") {
		t.Errorf("the journal has %+v, want the machines and the place, and no power off", entries)
	}
}

// TestCommand: labgrid-client finds the place, its coordinator and the image in what it is started with.
func TestCommand(t *testing.T) {
	h := &Held{client: client{holder: own, place: record.Place{Name: "board-7", Coordinator: "hub:1",
		Proxy: "gate", Config: "/env.yaml", PowerBefore: "cycle", State: "shell"}}}
	c := h.Command("/i.bin", "write-image", "/i.bin")
	if got := strings.Join(c.Args, " "); got != "-x hub:1 -P gate -p board-7 write-image /i.bin" || !c.Bound {
		t.Errorf("got %s, bound %v", got, c.Bound)
	}

	for _, want := range []string{"LG_HOSTNAME=pc3.chokepoint-run-1", "LG_USERNAME=paul", "LG_PLACE=board-7",
		"LG_ENV=/env.yaml", "LG_COORDINATOR=hub:1", "LG_PROXY=gate", "LG_IMAGE=/i.bin"} {
		if !slices.Contains(c.Env, want) {
			t.Errorf("its environment is %q, want %s in it", c.Env, want)
		}
	}

	var before []string
	for _, words := range h.Before() {
		before = append(before, strings.Join(words, " "))
	}

	if !slices.Equal(before, []string{"power cycle", "--state shell power get"}) {
		t.Errorf("before: got %q", before)
	}

	if (*Held)(nil).Env() != nil {
		t.Error("without a place: got variables")
	}
}
