package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestBlowsCoverEveryMomentAndSignal(t *testing.T) {
	tests := []struct {
		kills, least int
	}{{24, 2}, {200, 16}}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.kills), func(t *testing.T) {
			phases, kinds := map[string]int{}, map[string]int{}
			for i := range tt.kills {
				b := plannedBlow(1, i)
				phases[b.phase]++
				kinds[b.phase+" "+b.name()]++
				if b != plannedBlow(1, i) {
					t.Errorf("blow %d: got another one the second time, want the same", i)
				}
			}
			for _, m := range moments {
				if phases[m.name] < tt.least {
					t.Errorf("kills in %s: got %d, want at least %d", m.name, phases[m.name], tt.least)
				}
			}
			if got, want := len(kinds), min(tt.kills, 3*len(moments)); got < want {
				t.Errorf("kinds of blows: got %d, want %d: %v", got, want, kinds)
			}
		})
	}
}

func TestCheckTrials(t *testing.T) {
	good := `{"id":"a.1","row":"a","grade":"valid","metrics":{"goodput_bps":1}}`
	failed := `{"id":"b.1","row":"b","grade":"failed","failure":{"phase":"window","error":"interrupted"}}`
	tests := []struct {
		name, trials string
		finished     []string
		want         string
	}{
		{"as it must be", good + "," + failed, []string{"a", "b"}, ""},
		{"committed but not yet reported", good + "," + failed, []string{"a"}, ""},
		{"reported but not stored", good, []string{"a", "b"}, "row b was reported"},
		{"stored twice", good + "," + good, []string{"a"}, "a.1 is stored twice"},
		{"torn", `{"id":"a.1","row":"a","grade":"valid"}`, []string{"a"}, "neither numbers nor a failure"},
		{"failed for no reason", `{"id":"a.1","row":"a","grade":"failed"}`, []string{"a"}, "without a reason"},
		{"more than could be", good + "," + failed, nil, "2 trials are stored, 0 were reported"},
		{"no document", `{`, nil, "show --json"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := strings.Join(checkTrials([]byte(`{"trials":[`+tt.trials+`]}`), told{run: "r", finished: tt.finished}), "; ")
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("faults: got %q, want %q in it", got, tt.want)
			}
		})
	}
}

func TestLeftBehindSeesANewProcess(t *testing.T) {
	now, err := observe()
	if err != nil {
		t.Fatal(err)
	}
	if len(now) == 0 {
		t.Fatal("machine: got nothing, want at least the loopback link")
	}
	without := append(machine{"link vanished0"}, now[1:]...)
	got := strings.Join(compare(without, now), "; ")
	for _, want := range []string{"left: " + now[0], "gone: link vanished0"} {
		if !strings.Contains(got, want) {
			t.Errorf("difference: got %q, want %q in it", got, want)
		}
	}
}
