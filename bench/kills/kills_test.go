package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
)

func TestBlowsCoverEveryMomentSignalAndLab(t *testing.T) {
	tests := []struct {
		kills, least, kinds int
	}{{24, 1, 24}, {84, 6, 84}, {200, 14, 84}}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.kills), func(t *testing.T) {
			per, kinds, signals := map[string]int{}, map[string]bool{}, map[string]int{}
			for i := range tt.kills {
				b := plannedBlow(1, i)
				per[b.moment]++
				signals[b.signal.String()]++
				kinds[fmt.Sprint(b.moment, b.signal, b.attached)] = true
				if b != plannedBlow(1, i) {
					t.Errorf("blow %d: got another one the second time, want the same", i)
				}
			}
			for _, m := range moments {
				if per[m] < tt.least {
					t.Errorf("kills in %s: got %d, want at least %d", m, per[m], tt.least)
				}
			}
			if got := len(kinds); got != tt.kinds {
				t.Errorf("combinations of moment, signal and lab: got %d, want %d", got, tt.kinds)
			}
			for name, n := range signals {
				if n < tt.kills/3-1 {
					t.Errorf("kills by %s: got %d of %d, want a third", name, n, tt.kills)
				}
			}
		})
	}
}

func TestAimFindsTheStretchOfAMoment(t *testing.T) {
	seen := []stretch{{inLab, 0, 1}, {"window", 1, 2}, {"collect", 1, 3}, {"window", 2, 4}}
	tests := []struct {
		blow blow
		want stretch
		ok   bool
	}{
		{blow{moment: inLab, trial: 0.99}, seen[0], true},
		{blow{moment: "window", trial: 0.1}, seen[1], true},
		{blow{moment: "window", trial: 0.99}, seen[3], true},
		{blow{moment: inStopping, trial: 0.5}, seen[3], true},
		{blow{moment: inCommit}, seen[2], true},
		{blow{moment: "drain"}, stretch{}, false},
	}
	for _, tt := range tests {
		if got, ok := tt.blow.aim(seen); got != tt.want || ok != tt.ok {
			t.Errorf("aim of %s %.2f: got %v and %t, want %v and %t", tt.blow.moment, tt.blow.trial, got, ok,
				tt.want, tt.ok)
		}
	}
}

func TestCheckTrials(t *testing.T) {
	good := trial{ID: "a.1", Row: "a", Grade: "valid", Metrics: map[string]float64{"goodput_bps": 1}}
	failed := trial{ID: "b.1", Row: "b", Grade: "failed", Failure: &struct{ Phase, Error string }{"window",
		"interrupted"}}
	again := good
	again.ID = "a.2"
	tests := []struct {
		name     string
		trials   []trial
		finished []string
		want     string
	}{
		{"as it must be", []trial{good, failed}, []string{"a", "b"}, ""},
		{"committed but not yet reported", []trial{good, failed}, []string{"a"}, ""},
		{"reported but not stored", []trial{good}, []string{"a", "b"}, "row b was reported"},
		{"stored twice", []trial{good, good}, []string{"a"}, "a.1 is stored twice"},
		{"measured twice", []trial{good, again}, []string{"a"}, "row a has more than one"},
		{"torn", []trial{{ID: "a.1", Row: "a", Grade: "valid"}}, []string{"a"},
			"neither numbers nor a failure"},
		{"failed for no reason", []trial{{ID: "a.1", Row: "a", Grade: "failed"}}, []string{"a"},
			"without a reason"},
		{"more than could be", []trial{good, failed}, nil, "2 trials are stored, 0 were reported"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := strings.Join(checkTrials(tt.trials, told{run: "r", finished: tt.finished}), "; ")
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("faults: got %q, want %q in it", got, tt.want)
			}
		})
	}
}

func TestCheckResumed(t *testing.T) {
	of := func(status string, trials ...trial) document {
		var d document
		d.Run.Status, d.Trials = status, trials
		return d
	}
	a := trial{ID: "a.1", Row: "a", Grade: "valid", Metrics: map[string]float64{"goodput_bps": 1}}
	b := trial{ID: "b.1", Row: "b", Grade: "valid", Metrics: map[string]float64{"goodput_bps": 2}}
	changed, twice := a, a
	changed.Metrics = map[string]float64{"goodput_bps": 3}
	twice.ID = "a.2"
	tests := []struct {
		name  string
		after document
		want  string
	}{
		{"as it must be", of("done", a, b), ""},
		{"not finished", of("interrupted", a, b), "status is interrupted"},
		{"changed", of("done", changed, b), "trial a.1 is another one"},
		{"lost", of("done", b), "trial a.1 is another one"},
		{"measured again", of("done", a, twice, b), "row a has 2 trials"},
		{"incomplete", of("done", a), "trials of 1 rows, its plan has 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := strings.Join(checkResumed(of("interrupted", a), tt.after, 2), "; ")
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("faults: got %q, want %q in it", got, tt.want)
			}
		})
	}
}

func TestInventoriesSeeWhatIsThere(t *testing.T) {
	now, err := outside()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(now, "\n"); !strings.Contains(got, "link lo mtu") {
		t.Errorf("machine: got %q, want the loopback link in it", got)
	}
	without := append(inventory{"link vanished0"}, now[1:]...)
	got := strings.Join(difference(without, now), "; ")
	for _, want := range []string{"left: " + now[0], "gone: link vanished0"} {
		if !strings.Contains(got, want) {
			t.Errorf("difference: got %q, want %q in it", got, want)
		}
	}
	began := time.Now()
	if faults := settle(without, outside, 30*time.Millisecond); len(faults) == 0 ||
		time.Since(began) < 30*time.Millisecond {
		t.Errorf("settle: got %q after %s, want a fault after 30 ms", faults, time.Since(began))
	}
}

func TestProcessesAreToldByTheirFile(t *testing.T) {
	o := options{Program: rig.Program{Path: "/proc/self/exe", UID: os.Geteuid()}}
	all, err := o.processes()
	if err != nil {
		t.Fatal(err)
	}
	own := 0
	for _, p := range all {
		if p.pid == os.Getpid() {
			own++
		}
	}
	if own != 1 {
		t.Errorf("this process: got %d times in %v, want once", own, all)
	}
	o.Path = filepath.Join(t.TempDir(), "other")
	if err := rig.CopyFile("/proc/self/exe", o.Path, 0o755); err != nil {
		t.Fatal(err)
	}
	if all, err := o.processes(); err != nil || len(all) > 0 {
		t.Errorf("processes of a copy: got %v and %v, want none", all, err)
	}
}

func TestHeldFindsANamespace(t *testing.T) {
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	got, err := held(map[string]bool{own: true})
	if err != nil || len(got) == 0 {
		t.Errorf("held: got %v and %v, want this process's namespace", got, err)
	}
	got, err = held(map[string]bool{"net:[1]": true})
	if err != nil || len(got) != 0 {
		t.Errorf("held: got %v and %v, want nothing", got, err)
	}
}

func TestFilesListsWhatMustNotStay(t *testing.T) {
	o := options{Program: rig.Program{Dir: t.TempDir()}}
	for path, stays := range map[string]bool{
		"data/chokepoint/runs.db": true, "data/chokepoint/runs/a/report.html": true,
		"data/chokepoint/runs/a/.chokepoint-1": false, "state/chokepoint/journal/a.jsonl": false,
		"tmp/x": false,
	} {
		if err := os.MkdirAll(filepath.Dir(o.At(path)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(o.At(path), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := o.files()
		if listed := strings.Contains(strings.Join(got, "\n"), path); err != nil || listed == stays {
			t.Errorf("files: got %v and %v, want %s in it: %t", got, err, path, !stays)
		}
	}
}

func TestGuestBlows(t *testing.T) {
	per := map[string]int{}
	for i := range 3 * len(guestMoments) {
		b := plannedGuestBlow(1, i)
		per[b.moment]++
		if b.victim != "" && (b.attached || b.name() != "KILL") {
			t.Errorf("blow %d at %s: got %s on lab %s, want KILL on its own", i, b.victim, b.name(), b.lab())
		}
	}
	for _, m := range guestMoments {
		if per[m] != 3 {
			t.Errorf("kills in %s: got %d in three rounds, want 3", m, per[m])
		}
	}
}
