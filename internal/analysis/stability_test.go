package analysis

import (
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// fullHost leaves the machine that carries the lab no time.
func fullHost(_ *record.Run, tr *record.Trial) {
	for _, name := range samples(tr, record.HostNode, "cpu").Names {
		switch core, stem, _ := strings.Cut(name, "/"); {
		case len(core) < 4: // of all cores
		case stem == "user_ns":
			grow(tr, record.HostNode, "cpu", name, float64(tr.Window.End-tr.Window.Start))
		default:
			grow(tr, record.HostNode, "cpu", name, 0)
		}
	}
}

// TestSlowSenderOnAFullMachine: a sender that waits for a core has nothing to send either, and one that
// seldom asks for a core is slow all the same. Where nothing tells whether the cores were full, neither does
// the rule.
func TestSlowSenderOnAFullMachine(t *testing.T) {
	if j := judged(t, example{file: "starved-sender"}, diagnosis.SlowSender); j.Score > 0 {
		t.Errorf("an untouched load on full cores: got score %.2f, %q, want it silent", j.Score, j.Text)
	}
	if j := judged(t, example{"slow-sender", fullHost}, diagnosis.SlowSender); !(j.Score > 0) {
		t.Errorf("a slow writer beside other load: got score %.2f (%v), want it to fire", j.Score, j.Facts)
	}
	j := judged(t, example{"slow-sender", func(_ *record.Run, tr *record.Trial) {
		delete(tr.Nodes, record.HostNode)
	}}, diagnosis.SlowSender)
	if !strings.Contains(j.NotExamined, "all roles share") {
		t.Errorf("without the CPUs' samples: got score %v, %q, want not examined", j.Score, j.NotExamined)
	}
}
