package kernel

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/qdisc"
)

// tree makes an htb as an owner does: 1: with a class of 150 Mbit/s, and two below it, one with a short FIFO.
func tree(t *testing.T, dev string) {
	t.Helper()
	class := func(parent, handle uint32, rate uint64) {
		must(t, tc(unix.RTM_NEWTCLASS, unix.NLM_F_CREATE|unix.NLM_F_EXCL, dev, handle, parent, "htb",
			encodeHTBClass(map[string]uint64{"rate": rate, "burst": 16384})))
	}
	must(t, addQdisc(unix.NLM_F_REPLACE, dev, 1<<16, qdisc.HandleRoot, "htb",
		appendAttribute(nil, 2, words(nil, 3, 10, 0x10, 0, 0))))
	class(1<<16, 1<<16|1, 150e6)
	class(1<<16|1, 1<<16|0x10, 100e6)
	class(1<<16|1, 1<<16|0x20, 50e6)
	must(t, addQdisc(unix.NLM_F_EXCL, dev, 0x20<<16, 1<<16|0x20, "pfifo", words(nil, 5)))
}

// as lists what a device has, without counters.
func as(t *testing.T, dev string) []Discipline {
	t.Helper()
	all, _, err := Disciplines(dev)
	must(t, err)
	return all
}

func TestOwnersQueuesAreLeftAsFound(t *testing.T) {
	tbf := func(handle uint32) func(*testing.T) {
		return func(t *testing.T) {
			b, err := encodeQueue(queue(t, "tbf rate 150M burst 5k limit 6k"))
			must(t, err)
			must(t, addQdisc(unix.NLM_F_REPLACE, "a0", handle, qdisc.HandleRoot, "tbf", b))
		}
	}
	const roomy, fifo = "tbf rate 150M burst 93750 limit 375000", "pfifo limit 1000"
	tests := []struct {
		name    string
		owner   func(*testing.T)
		want    string
		refused bool
	}{
		{"tbf with room", tbf(0x8001 << 16), roomy, false},
		{"tbf with a queue below, with room", func(t *testing.T) {
			tbf(1 << 16)(t)
			must(t, addQdisc(unix.NLM_F_REPLACE, "a0", 2<<16, 1<<16|1, "pfifo", words(nil, 7)))
		}, roomy, true},
		{"tbf with a queue below, replaced", func(t *testing.T) {
			tbf(1 << 16)(t)
			must(t, addQdisc(unix.NLM_F_REPLACE, "a0", 2<<16, 1<<16|1, "pfifo", words(nil, 7)))
		}, fifo, true},
		{"tbf replaced", tbf(7 << 16), fifo, false},
		{"leaves of htb", func(t *testing.T) { tree(t, "a0") }, "parent 1:10 pfifo limit 1000, parent 1:20 pfifo limit 1000",
			false},
		{"htb replaced", func(t *testing.T) { tree(t, "a0") }, fifo, true},
		{"class that is not there", func(t *testing.T) { tree(t, "a0") }, "parent 1:30 pfifo limit 1000", true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			inNamespace(t, func(t *testing.T) {
				pair(t)
				test.owner(t)
				found := as(t, "a0")
				wanted, err := qdisc.Parse(test.want)
				must(t, err)
				var before []qdisc.Queue
				for _, w := range wanted {
					q, err := QueueAt("a0", w)
					if errors.Is(err, ErrUnsupported) != test.refused {
						t.Fatalf("reading gives %v (%v), want refused %v", q, err, test.refused)
					}

					before = append(before, q)
				}

				if test.refused {
					return
				}

				rated := 0
				for _, w := range wanted {
					must(t, SetRootQueue("a0", w))
					got, err := QueueAt("a0", w)
					must(t, err)
					if got.Kind != w.Kind || got.Values["limit"] != w.Values["limit"] {
						t.Errorf("set %v, and it is %v", w, got)
					}
				}

				for _, d := range as(t, "a0") {
					if d.Rate > 0 {
						rated++
					}
				}

				if test.name != "tbf replaced" && rated == 0 {
					t.Error("the rate is gone")
				}

				for _, q := range before {
					must(t, SetRootQueue("a0", q))
				}

				diff := cmp.Diff(found, as(t, "a0"))
				if diff != "" {
					t.Errorf("the device is not as found (-found +now):\n%s", diff)
				}
			})
		})
	}
}

// A shaper of the form of ours, but with another class or a filter of its owner's, is not ours to remove.
func TestOwnersHTBIsNoShaperOfOurs(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		pair(t)
		tree(t, "a0")
		if rate, _, err := Shaper("a0"); rate != 0 || err != nil {
			t.Errorf("shaper %d (%v), want none of ours", rate, err)
		}

		must(t, ClearShaper("a0"))
		if len(as(t, "a0")) != 5 {
			t.Errorf("after clearing: %+v", as(t, "a0"))
		}
	})
}
