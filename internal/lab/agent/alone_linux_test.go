package agent

import (
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// TestAlone: a machine is one controller's, who may take it again and again, until that one's agent ends.
func TestAlone(t *testing.T) {
	var first, second alone
	for range 2 {
		if err := first.take(); err != nil {
			t.Fatal(err)
		}
	}
	if err := second.take(); err == nil || check.HintOf(err) == "" {
		t.Errorf("a second controller: got %v, want an error with a hint", err)
	}
	if err := first.lock.Close(); err != nil {
		t.Fatal(err)
	}
	if err := second.take(); err != nil {
		t.Errorf("after the first has gone: %v", err)
	}
	if err := second.lock.Close(); err != nil {
		t.Fatal(err)
	}
}
