package lab

import (
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// TestSuited: a machine is driven by the first driver that can, or by the one that was named alone.
func TestSuited(t *testing.T) {
	by, err := suited(t.Context(), host.Local(), nil)
	if err != nil || by.Name() != "linux" {
		t.Errorf("this machine: got %v, %v, want linux", by, err)
	}

	if by, err := suited(t.Context(), host.Local(), driver.RouterOS{}); err == nil {
		t.Errorf("this machine by routeros: got %v, want an error", by)
	}
}
