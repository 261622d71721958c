package registry_test

import (
	"errors"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/registry"
)

// TestServe: what is no role is left to the caller. The roles themselves are lived in every test of a real
// lab.
func TestServe(t *testing.T) {
	for _, args := range [][]string{nil, {"run"}, {"-test.v"}, {"", "lab-anchor"}} {
		if handled, err := registry.Serve(args); handled || err != nil {
			t.Errorf("serve %q: got %v, %v, want it left alone", args, handled, err)
		}
	}

	for _, args := range [][]string{{"lab-anchor"}, {"lab-anchor", "a", "b"}} {
		if handled, err := registry.Serve(args); !handled || !errors.Is(err, registry.ErrRole) {
			t.Errorf("serve %q: got %v, %v, want %v", args, handled, err, registry.ErrRole)
		}
	}
}
