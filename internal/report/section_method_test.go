package report

import (
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
)

// TestIMIXIsNamedAndExplained: where a cell has it, and nowhere else.
func TestIMIXIsNamedAndExplained(t *testing.T) {
	d := sampleDocument()
	got := d.Catalogue.Of(string(factor.PacketSize)).Words(factor.IMIX) + ", " +
		d.Catalogue.Of(string(factor.FrameSize)).Words(factor.IMIX)
	if got != "IMIX packets, IMIX frames" {
		t.Errorf("levels: got %q", got)
	}

	const words = "of each twelve Ethernet frames"
	if page, err := HTML(d); err != nil || strings.Contains(string(page), words) {
		t.Errorf("a run without IMIX: got %v, or a page that explains it", err)
	}

	d.Cells[0].Factors["packet_size"] = factor.IMIX
	page, err := HTML(d)
	if err != nil {
		t.Fatal(err)
	}

	if !strings.Contains(string(page), words) {
		t.Errorf("a run with IMIX: the page lacks %q", words)
	}
}
