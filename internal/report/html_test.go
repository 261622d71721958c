package report

import (
	"os"
	"testing"
)

func TestWritePage(t *testing.T) {
	b, err := HTML(sampleDocument())
	if err != nil {
		t.Fatal(err)
	}
	if p := os.Getenv("PAGE"); p != "" {
		os.WriteFile(p, b, 0o644)
	}
	t.Log(len(b))
}
