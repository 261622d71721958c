package app

import (
	"strings"
	"testing"
)

// TestRecordingIsPlain: nothing of what is imported can steer a terminal.
func TestRecordingIsPlain(t *testing.T) {
	note, _, err := (&imported{router: "router"}).noteOf(strings.NewReader(
		`{"facts":{"kernel":"\u001b]0;owned"}}`), "f", false)
	if err != nil || len(note.Environments) != 1 || note.Environments[0].Facts["kernel"] != "]0;owned" {
		t.Errorf("got %+v, %v, want it plain", note, err)
	}
}
