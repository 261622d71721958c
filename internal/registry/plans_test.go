package registry_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
)

// TestBuiltInPlansSpeakTheRegistrysLanguage: every level of every cell of the built-in plans is a canonical
// text of its factor, and of its knob.
func TestBuiltInPlansSpeakTheRegistrysLanguage(t *testing.T) {
	v := registry.Vocabulary()
	for _, name := range plan.BuiltIns() {
		p, err := plan.ReadBuiltIn(name, v, nil)
		if err != nil {
			t.Errorf("plan %s: %v", name, err)
			continue
		}

		if len(p.Cells()) == 0 {
			t.Errorf("plan %s: got no cell, want some", name)
		}

		for _, cell := range p.Cells() {
			for factor, level := range cell {
				f, ok := v.Lookup(factor)
				if !ok {
					t.Errorf("plan %s: got factor %s, want one of the vocabulary", name, factor)
					continue
				}

				if got, err := f.Parse(level); err != nil || got != level {
					t.Errorf("plan %s: %s=%s parses to %q, %v, want itself", name, factor, level, got, err)
				}

				parseByKnob(t, name, factor, level)
			}
		}
	}
}

// parseByKnob holds a level against the knob that will apply it.
func parseByKnob(t *testing.T, plan, factor, level string) {
	t.Helper()
	name, _, _ := strings.Cut(factor, "@")
	text := level
	if family, member, ok := strings.Cut(name, ":"); ok {
		name = family + ":"
		text = member + "=" + level
	}

	for _, k := range node.Knobs() {
		if k.Name() != name {
			continue
		}

		if got, err := k.Parse(text); err != nil || string(got) != text {
			t.Errorf("plan %s: knob %s parses %q to %q, %v, want itself", plan, name, text, got, err)
		}
	}
}

// TestBaseFactorsThatKnobsApply: nat and offload are base factors with a list of levels of their own; each
// level must be one of the knob's.
func TestBaseFactorsThatKnobsApply(t *testing.T) {
	want := map[string][]string{"nat": {"off", "masquerade", "forward"}, "offload": {"wire", "super"}}
	for name, levels := range want {
		f, ok := registry.Vocabulary().Lookup(name)
		if !ok {
			t.Errorf("factor %s: got none, want a base factor", name)
			continue
		}

		expect.Same(t, fmt.Sprintf("levels of %s", name), levels, f.Levels)
		for _, level := range f.Levels {
			for _, k := range node.Knobs() {
				if k.Name() != name {
					continue
				}

				if _, err := k.Parse(level); err != nil {
					t.Errorf("knob %s: parse %q: %v", name, level, err)
				}
			}
		}
	}
}

// TestFactorsOfARouterNeedOne: in a topology without what a factor acts on, the factor is refused, because no
// cell carries it.
func TestFactorsOfARouterNeedOne(t *testing.T) {
	tests := []struct{ name, matrix, factor, refused string }{
		{"queue", `topology: direct, queue: [noqueue, tbf rate 300M]`, "queue",
			"topology direct has no router"},
		{"txqueuelen", `topology: direct, txqueuelen: [10, 1000]`, "txqueuelen",
			"topology direct has no router"},
		{"ip_forward", `topology: direct, ip_forward: ["on", "ipv4"]`, "ip_forward",
			"topology direct has no router"},
		{"cpus", `topology: direct, cpus: ["0", "off"]`, "cpus", "topology direct has no router"},
		{"firewall", `topology: direct, firewall: ["off", 10]`, "firewall", "topology direct has no router"},
		{"firewall to the router", `topology: to-router, firewall: ["off", 10]`, "firewall",
			"topology to-router forwards nothing"},
		{"firewall at the router that ends traffic", `topology: to-router, firewall@router: ["off", 10]`,
			"firewall@router",
			"router forwards nothing in topology to-router"},
		{"firewall at an end", `topology: forward, firewall@client: ["off", 10]`, "firewall@client",
			"client forwards nothing in topology forward"},

		{"flow table to the router", `topology: to-router, flowtable: ["off", "on"]`, "flowtable",
			"topology to-router forwards nothing"},
		{"shaper to the router", `topology: to-router, shape: ["off", 50M]`, "shape",
			"topology to-router forwards nothing"},
		{"idle policies", `topology: direct, idle_policies: [0, 10]`, "idle_policies",
			"topology direct has no router"},

		{"a shaper of the router that ends traffic", `topology: to-router, shape@router.lan: ["off", 50M]`,
			"shape@router.lan", ""},
		{"a queue at an end", `topology: direct, queue@client.lan: [noqueue, pfifo limit 5]`,
			"queue@client.lan", ""},
		{"the cores of an end", `topology: direct, cpus@client: ["0", "off"]`, "cpus@client", ""},
		{"a queue to the router", `topology: to-router, queue: [noqueue, pfifo limit 5]`, "queue", ""},
		{"firewall on the way", `topology: forward, firewall: ["off", 10]`, "firewall", ""},
		{"firewall at one of two", `topology: site-to-site, firewall@router-b: ["off", 10]`,
			"firewall@router-b", ""},
		{"the underlay", `topology: direct, link_mtu: [1400, 1500]`, "link_mtu", ""},
		{"a tag", `topology: direct, vlan: ["off", 10]`, "vlan", ""},
		{"a kernel setting", `topology: direct, sysctl:net.ipv4.tcp_ecn: [0, 1]`, "sysctl:net.ipv4.tcp_ecn",
			""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := plan.Read("p.yaml", []byte("name: x\nmatrix: {"+tt.matrix+"}\n"), registry.Vocabulary(),
				nil)
			if tt.refused != "" {
				want := tt.factor + " has no effect in any cell: " + tt.refused
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q", err, want)
				}
				return
			}

			must(t, err)
			for _, c := range p.Cells() {
				if _, has := c[tt.factor]; !has {
					t.Errorf("cell %s lacks %s", c.Key(), tt.factor)
				}
			}

			if len(p.Cells()) != 2 || len(p.Notes()) > 0 {
				t.Errorf("got %d cells, want 2; notes %q, want none", len(p.Cells()), p.Notes())
			}
		})
	}
}

// TestAShaperTakesThePlaceOfAQueue: a cell that has both at one port cannot exist; it is skipped with the
// reason.
func TestAShaperTakesThePlaceOfAQueue(t *testing.T) {
	tests := []struct {
		matrix   string
		conflict bool
	}{
		{`shape: ["off", 50M], queue: [noqueue]`, true},
		{`shape: ["off", 50M], queue@router: [noqueue]`, true},
		{`shape@router.lan: ["off", 50M], queue: [noqueue]`, true},
		{`shape@router.lan: ["off", 50M], queue@router.lan: [noqueue]`, true},
		{`shape: ["off", 50M], queue@router.lan: [noqueue]`, false},
		{`shape: ["off", 50M], queue@client.lan: [noqueue]`, false},
		{`shape@client: ["off", 50M], queue@client.lan: [noqueue]`, true},
		{`topology: site-to-site, shape: ["off", 50M], queue@router-b.lan: [noqueue]`, true},
		{`topology: site-to-site, shape: ["off", 50M], queue@router-b.wan: [noqueue]`, false},
		{`topology: site-to-site, shape@router-a: ["off", 50M], queue@router-b: [noqueue]`, false},
	}
	const reason = "a shaper has a queue of its own in the place of that of "
	for _, tt := range tests {
		p, err := plan.Read("p.yaml", []byte("name: x\nmatrix: {"+tt.matrix+"}\n"), registry.Vocabulary(),
			nil)
		if err != nil {
			t.Errorf("%s: %v", tt.matrix, err)
			continue
		}

		skipped := p.Skipped()
		got := len(skipped) == 1 && strings.HasPrefix(skipped[0].Reason, reason)
		if got != tt.conflict {
			t.Errorf("%s: a conflict: got %v (%v), want %v", tt.matrix, got, skipped, tt.conflict)
		}
	}
}

// TestLessonsAreCells: each of the five plans of the lessons has cells, and plants a fault.
func TestLessonsAreCells(t *testing.T) {
	page, err := os.ReadFile("../../docs/teaching.md")
	must(t, err)
	blocks := strings.Split(string(page), "```yaml\n")[1:]
	if len(blocks) != 5 {
		t.Errorf("lessons: got %d plans, want 5", len(blocks))
	}

	for _, block := range blocks {
		text, _, _ := strings.Cut(block, "```")
		p, err := plan.Read("lesson", []byte(text), registry.Vocabulary(), nil)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}

		faulty := 0
		for _, cell := range p.Cells() {
			for name := range cell {
				if strings.HasPrefix(name, "fault") {
					faulty++
				}
			}
		}

		if faulty == 0 {
			t.Errorf("%s: no cell has a fault", text)
		}
	}
}
