package analysis

import (
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestRuleIsNamedByItsCounter: of the rules that a router's owner has set, the one whose counter grew is
// named as what drops the packets; the only one without a counter may; ours, those that established
// connections do not reach, and those whose counters did not grow, are not named.
func TestRuleIsNamedByItsCounter(t *testing.T) {
	rule := func(handle int64, packets int64, change func(*record.FilterRule)) record.FilterRule {
		r := record.FilterRule{
			Family: "inet",
			Table:  "mine",
			Chain:  "over",
			Handle: handle,
			Hooks:  []string{"forward"},
			Kinds:  []string{record.RuleLimit, record.RuleDrop},
			Text:   "limit rate over 2 mbytes/second drop",
		}
		if packets >= 0 {
			r.Packets = &packets
		}

		if change != nil {
			change(&r)
		}

		return r
	}
	ours := func(r *record.FilterRule) { r.Own = true }
	newOnly := func(r *record.FilterRule) { r.NewOnly = true }
	accounts := func(r *record.FilterRule) { r.Kinds = []string{record.RuleCount} }
	plain := ruleDropOf(t, nil, nil).Confidence
	for _, tt := range []struct {
		name          string
		before, after []record.FilterRule
		words         string // "" = no rule is named
	}{
		{"its counter grew", []record.FilterRule{rule(7, 10, nil), rule(9, 5, nil)},
			[]record.FilterRule{rule(9, 505, nil), rule(7, 12, nil)},
			"rule 9 of inet mine over (limit rate over 2 mbytes/second drop) dropped 500 packets in all " +
				"trials of the run"},
		{"the only one, without a counter", []record.FilterRule{rule(7, -1, nil), rule(8, 3, accounts)},
			[]record.FilterRule{rule(7, -1, nil), rule(8, 900, accounts)},
			"rule 7 of inet mine over (limit rate over 2 mbytes/second drop) may drop them"},
		{"one of two without counters", []record.FilterRule{rule(7, -1, nil), rule(9, -1, nil)}, nil, ""},
		{"a counter that did not grow", []record.FilterRule{rule(7, 3, nil), rule(9, -1, nil)},
			[]record.FilterRule{rule(7, 3, nil), rule(9, -1, nil)}, ""},
		{"ours", []record.FilterRule{rule(7, 3, ours)}, []record.FilterRule{rule(7, 900, ours)}, ""},
		{"not reached", []record.FilterRule{rule(7, 3, newOnly)},
			[]record.FilterRule{rule(7, 9, newOnly)}, ""},
		{"no second reading", []record.FilterRule{rule(7, 3, nil)}, nil, ""},
	} {
		d := ruleDropOf(t, tt.before, tt.after)
		named := strings.Contains(d.Text, "rule 7 of") || strings.Contains(d.Text, "rule 9 of")
		if d.Class != diagnosis.RuleDrop || named != (tt.words != "") || !strings.Contains(d.Text, tt.words) {
			t.Errorf("%s: got %s: %s, want %q", tt.name, d.Class, d.Text, tt.words)
		}

		if counted := strings.Contains(tt.words, "dropped"); counted != (d.Confidence > plain) {
			t.Errorf("%s: got confidence %.3f, %.3f without any rule", tt.name, d.Confidence, plain)
		}
	}
}

// ruleDropOf is the verdict on packets that die in a router by no queue, where these rules were found before
// and after the run.
func ruleDropOf(t *testing.T, before, after []record.FilterRule) *diagnosis.Diagnosis {
	t.Helper()
	o := observed(t, example{"random-loss", uncounted("NETFILTER_DROP", .96)})
	read := func(rules []record.FilterRule) *record.Inventory {
		if rules == nil {
			return nil
		}
		return &record.Inventory{Filter: &record.PacketFilter{Rules: rules}}
	}
	o.Run.Environments = []record.Environment{{
		Node:           "router",
		Inventory:      read(before),
		InventoryAfter: read(after),
	}}
	return diagnosis.Conclude([][]diagnosis.Candidate{diagnosis.Examine(o)})
}
