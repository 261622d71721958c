package record

import "testing"

// TestRatesOfTrees: a topmost class of HTB has its own rate, one below another borrows up to its ceiling, and
// bands of prio have the rate of what is in them. A tree that is none ends.
func TestRatesOfTrees(t *testing.T) {
	root := QueueFacts{Kind: "htb", Handle: "1:", Parent: "root"}
	class := func(handle, parent string, rate, ceil float64) QueueFacts {
		return QueueFacts{
			Class:   true,
			Kind:    "htb",
			Handle:  handle,
			Parent:  parent,
			RateBps: rate,
			CeilBps: ceil,
		}
	}
	band := func(parent string) QueueFacts {
		return QueueFacts{Kind: "tbf", Handle: "8001:", Parent: parent, RateBps: 5e6}
	}
	for _, tt := range []struct {
		name   string
		queues []QueueFacts
		want   float64
	}{
		{"topmost", []QueueFacts{root, class("1:10", "1:", 64e3, 10e6)}, 64e3},
		{"below", []QueueFacts{root, class("1:1", "1:", 8e6, 8e6), class("1:10", "1:1", 1e6, 20e6)}, 8e6},
		{"itself", []QueueFacts{root, class("1:10", "1:10", 1e6, 2e6)}, 2e6},
		{"bands", []QueueFacts{{Kind: "prio", Handle: "1:", Parent: "root"}, band("1:1"), band("1:2")}, 5e6},
	} {
		got := (&NetDevice{Queues: tt.queues}).RateBps()
		if got != tt.want {
			t.Errorf("%s: %v bit/s, want %v", tt.name, got, tt.want)
		}
	}
}
