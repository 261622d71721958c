package vm

import (
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
)

// TestSectorRuns: the guest by which KVM is tried runs in emulation and says so; an accelerator that does not
// exist is a no, and so is a guest that does not end in time.
func TestSectorRuns(t *testing.T) {
	apart.Needs(t, "qemu-system-x86_64")
	if a := trySector(t.Context(), "tcg", time.Minute); a.State != check.Yes {
		t.Errorf("in emulation: got %v (%s), want yes", a.State, a.Reason)
	}

	if a := trySector(t.Context(), "nonsense", time.Minute); a.State != check.No {
		t.Errorf("without an accelerator: got %v (%s), want no", a.State, a.Reason)
	}

	if a := trySector(t.Context(), "tcg", time.Nanosecond); a.State != check.No {
		t.Errorf("without time: got %v (%s), want no", a.State, a.Reason)
	}
}
