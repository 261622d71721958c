package store

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// part is a piece of a trial that is kept outside its JSON: a table, or engine output as received.
type part struct {
	path, kind string
	body       []byte
}

const (
	kindTable = "table"
	kindRaw   = "raw"
	rawPath   = "traffic/raw"
)

// split takes the tables and the raw output out of a trial. The trial handed in keeps them: what is emptied
// is a copy.
func split(t record.Trial) (bare record.Trial, parts []part, err error) {
	if t.Traffic != nil {
		tr := *t.Traffic
		tr.Flows = slices.Clone(tr.Flows)
		for i := range tr.Flows {
			if tcp := tr.Flows[i].TCP; tcp != nil {
				c := *tcp
				tr.Flows[i].TCP = &c
			}
		}
		if tr.Raw != nil {
			parts = append(parts, part{rawPath, kindRaw, tr.Raw})
			tr.Raw = nil
		}
		t.Traffic = &tr
	}
	t.Nodes = maps.Clone(t.Nodes)
	for name, n := range t.Nodes {
		n.Samples = slices.Clone(n.Samples)
		t.Nodes[name] = n
	}
	slots := tables(&t)
	for _, path := range slices.Sorted(maps.Keys(slots)) {
		slot := slots[path]
		if *slot == nil {
			continue
		}
		body, err := (*slot).MarshalBinary()
		if err != nil {
			return record.Trial{}, nil, fmt.Errorf("%s: %v", path, err)
		}
		parts = append(parts, part{path, kindTable, body})
		*slot = nil
	}
	return t, parts, nil
}

// join puts the parts back. A part without a place is damage, not a detail.
func join(t *record.Trial, parts []part) error {
	slots := tables(t)
	for _, p := range parts {
		if p.path == rawPath && p.kind == kindRaw && t.Traffic != nil {
			t.Traffic.Raw = p.body
			continue
		}
		slot, ok := slots[p.path]
		if !ok || p.kind != kindTable {
			return fmt.Errorf("%s: %s without a place in the trial", p.path, p.kind)
		}
		table := new(record.Table)
		if err := table.UnmarshalBinary(p.body); err != nil {
			return fmt.Errorf("%s: %v", p.path, err)
		}
		*slot = table
	}
	return nil
}

// tables names every place of a trial where a table can hang.
func tables(t *record.Trial) map[string]**record.Table {
	slots := map[string]**record.Table{}
	if t.Traffic != nil {
		for i := range t.Traffic.Flows {
			f := &t.Traffic.Flows[i]
			at := "traffic/flows/" + strconv.Itoa(i) + "/"
			slots[at+"sent"] = &f.Sent
			slots[at+"received"] = &f.Received
			if f.TCP != nil {
				slots[at+"tcp"] = &f.TCP.Series
			}
		}
	}
	for name, n := range t.Nodes {
		for i := range n.Samples {
			// n is a copy of the map's value, but its slice is the trial's.
			slots["nodes/"+name+"/"+strconv.Itoa(i)] = &n.Samples[i].Table
		}
	}
	return slots
}
