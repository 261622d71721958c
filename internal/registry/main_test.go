package registry_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
)

// TestMain lets the test program play the roles of a lab.
func TestMain(m *testing.M) {
	if handled, err := registry.Serve(os.Args[1:]); handled {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}

		os.Exit(0)
	}

	// Under the race detector each process would sleep for a second before it ends, and with it each part
	// of a lab.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	apart.SideBySide(4)
	os.Exit(m.Run())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
