package main

import (
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/app"
)

// TestCommandLine: what repeats a run has its seed, and neither its name, which would be refused, nor the
// store, whose URL may have a password.
func TestCommandLine(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"run quick", "chokepoint run quick --seed 7"},
		{"run --seed=3", "chokepoint run --seed=3"},
		{"run quick --name stock --note a", "chokepoint run quick --note a --seed 7"},
		{"run --name=stock quick", "chokepoint run quick --seed 7"},
		{"run --name --name quick", "chokepoint run quick --seed 7"},
		{"run quick --store postgres://u:secret@h/d", "chokepoint run quick --seed 7"},
		{"--store=postgres://u:secret@h/d run", "chokepoint run --seed 7"},
		{"run --line=1G --store d --seed 3", "chokepoint run --line=1G --seed 3"},
	} {
		got := commandLine(append([]string{"x"}, strings.Fields(tt.args)...), 7)
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.args, got, tt.want)
		}
	}
}

// TestRouterAlone: a plan needs a router and nothing else only if it measures its ciphers and sets nothing.
func TestRouterAlone(t *testing.T) {
	for _, tt := range []struct {
		name string
		sets []string
		want bool
	}{
		{"crypto", nil, true},
		{"crypto-full", nil, true},
		{"crypto", []string{"matrix.node=client"}, false},
		{"crypto", []string{"matrix.governor=performance"}, false},
		{"quick", nil, false},
	} {
		pl, err := app.PlanRequest{Name: tt.name, Sets: tt.sets}.Read(app.Peer{})
		if err != nil {
			t.Fatal(err)
		}

		got := routerAlone(pl)
		if got != tt.want {
			t.Errorf("%s %v: got %v, want %v", tt.name, tt.sets, got, tt.want)
		}
	}
}
