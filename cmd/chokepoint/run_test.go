package main

import (
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/app"
)

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
