package record

import (
	"encoding/json"
	"testing"
)

// TestTableNamesArePlain: a node names its devices, and base64 hides the names from whoever cleans text.
func TestTableNamesArePlain(t *testing.T) {
	table := NewTable("\x1b]0;x\a\u202ewan/rx_bytes", "lan/rx_bytes")
	table.Append(1, 2, 3)
	b, err := json.Marshal(table)
	var got Table
	if err == nil {
		err = json.Unmarshal(b, &got)
	}

	if err != nil || got.Names[0] != "]0;xwan/rx_bytes" || got.Column("lan/rx_bytes")[0] != 3 {
		t.Errorf("got %q, %v, want names that steer nothing", got.Names, err)
	}
}
