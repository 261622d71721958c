package analysis

import (
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// uncounted lets the packets that a queue of the router dropped at random die where no queue counts them. The
// kernel gives so many of them a reason, by their share of the segments that were sent again; no reason = it
// tells nothing.
func uncounted(reason string, share float64) func(*record.Run, *record.Trial) {
	return func(_ *record.Run, tr *record.Trial) {
		for _, name := range slices.Clone(samples(tr, "router", "qdisc").Names) {
			if strings.HasSuffix(name, "/drops") {
				_, values := column(tr, "router", "qdisc", name)
				clear(values)
			}
		}

		if reason == "" {
			return
		}

		lost := 0.0
		for _, f := range tr.Traffic.Flows {
			lost += float64(*f.TCP.Retransmits)
		}

		n := tr.Nodes["router"]
		n.Samples = slices.DeleteFunc(slices.Clone(n.Samples), func(s record.Samples) bool {
			return s.Probe == "drops"
		})
		n.Samples = append(n.Samples, record.Samples{
			Probe: "drops",
			Scope: record.ScopeHost,
			Table: &record.Table{
				Names: []string{"skb_drops", reason + "/skb_drops"},
				T:     []int64{tr.Window.Start, tr.Window.End},
				V: [][]float64{{3, 3 + share*lost},
					{1, 1 + share*lost}},
			},
		})
		tr.Nodes["router"] = n
	}
}

// TestDropReasons: what the ends miss and the router's kernel dropped is not lost at random. A rule or filter
// is named by its reason; of another reason the place is said, and of a few drops nothing.
func TestDropReasons(t *testing.T) {
	for _, tt := range []struct {
		reason string
		share  float64
		class  string
		words  string
	}{
		{"", 0, diagnosis.RandomLoss, "at random"},
		{"NETFILTER_DROP", .96, diagnosis.RuleDrop, "a rule or filter drops them"},
		{"TC_EGRESS", .96, diagnosis.RuleDrop, "a rule or filter drops them"},
		{"NOT_SPECIFIED", .96, diagnosis.RuleDrop, "or what counts no drops"},
		{"IP_RPFILTER", .96, diagnosis.Unknown, "inside the router"},
		{"NETFILTER_DROP", .1, diagnosis.RandomLoss, "at random"},
		{"NETFILTER_DROP", 9, diagnosis.RandomLoss, "at random"}, // acknowledgements, or others' packets
	} {
		o := observed(t, example{"random-loss", uncounted(tt.reason, tt.share)})
		d := diagnosis.Conclude([][]diagnosis.Candidate{diagnosis.Examine(o)})
		if d.Class != tt.class || !strings.Contains(d.Text, tt.words) {
			t.Errorf("%s for %.0f %%: got %s (%.2f: %s), want %s", tt.reason, 100*tt.share, d.Class,
				d.Confidence, d.Text, tt.class)
		}
	}
}
