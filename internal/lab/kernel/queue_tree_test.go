package kernel

import (
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/qdisc"
)

// attribute and mark write what a dump has.
func qdiscOf(kind string, options []byte) Qdisc {
	return Qdisc{Kind: []byte(kind), Handle: 0x8001 << 16, Parent: qdisc.HandleRoot, Options: options}
}

func TestDescribe(t *testing.T) {
	u32 := func(b []byte, kind uint16, v uint32) []byte { return appendAttribute(b, kind, words(nil, v)) }
	curve := func(b []byte, kind uint16, m1, m2 uint32) []byte {
		return appendAttribute(b, kind, words(nil, m1, 0, m2))
	}
	tests := []struct {
		name     string
		q        Qdisc
		class    bool
		rate     uint64
		ceil     uint64
		flow     uint64
		restores bool
	}{
		{"hfsc class with a limit", qdiscOf("hfsc", curve(curve(nil, 2, 0, 1e6), 3, 0, 2e6)), true, 8e6, 16e6, 0,
			false},
		{"hfsc", qdiscOf("hfsc", []byte{1, 0}), false, 0, 0, 0, false},
		{"fq with maxrate", qdiscOf("fq", u32(u32(nil, 1, 100), fqMaxRate, 12_500_000)), false, 0, 0, 100e6, false},
		{"fq", qdiscOf("fq", u32(u32(nil, 1, 100), fqMaxRate, unlimited)), false, 0, 0, 0, true},
		{"cake", qdiscOf("cake", appendWide(u32(nil, 10, 1<<20), 2, 12_500_000)), false, 100e6, 0, 0, true},
		{"cake with autorate", qdiscOf("cake", u32(appendWide(nil, 2, 12_500_000), 9, 1)), false, 100e6, 0, 0,
			false},
		{"fq_codel with ce_threshold", qdiscOf("fq_codel", u32(u32(nil, 2, 100), 7, 1000)), false, 0, 0, 0, false},
		{"tbf with overhead", qdiscOf("tbf", appendAttribute(nil, 1, append([]byte{0, 1, 18, 0, 0, 0, 0, 0},
			words(nil, 1e6, 0, 0, 0, 3000, 100, 0)...))), false, 8e6, 0, 0, false},
		{"prio, of which we know nothing", qdiscOf("prio", words(nil, 3)), false, 0, 0, 0, false},
	}
	for _, test := range tests {
		d := Describe(test.q, test.class)
		if d.Rate != test.rate || d.Ceil != test.ceil || d.FlowRate != test.flow {
			t.Errorf("%s: %+v, want rate %d, ceiling %d, of a flow %d", test.name, d, test.rate, test.ceil,
				test.flow)
		}

		restores := d.Why == "" && d.Queue.Kind != ""
		if restores != test.restores {
			t.Errorf("%s: queue %q, why %q", test.name, d.Queue, d.Why)
		}
	}
}

func TestReadFilter(t *testing.T) {
	header := make([]byte, TrafficHeader)
	header[12], header[14] = 0xf2, 0xff // parent
	action := func(kind string, at uint16, params []byte) []byte {
		return appendAttribute(nil, 1, appendAttribute(appendAttribute(nil, 1, append([]byte(kind), 0)), 2,
			appendAttribute(nil, at, params)))
	}
	filter := func(kind string, options []byte) []byte {
		return append(append([]byte{}, header...), appendAttribute(appendAttribute(nil, 1,
			append([]byte(kind), 0)), 2, options)...)
	}
	tests := []struct {
		b     []byte
		want  string
		index uint32
		rate  uint64
	}{
		{filter("matchall", appendAttribute(nil, 2, action("mirred", 2, words(nil, 1, 0, 4, 1, 1, 1, 7)))),
			"redirect", 7, 0},
		{filter("u32", appendAttribute(nil, 7, action("police", 1, words(nil, 1, 2, 0, 0, 0, 0, 0, 125_000,
			0, 0, 0, 0, 0, 0)))), "police", 0, 1e6},
		{filter("flower", appendAttribute(nil, 3, action("gact", 2, words(nil, 1, 0, 2, 1, 1)))), "drop", 0, 0},
		{filter("u32", appendAttribute(nil, 1, words(nil, 1<<16|0x20))), "class", 0, 0},
		{filter("cgroup", nil), "other", 0, 0},
	}
	for _, test := range tests {
		f, index, ok := readFilter(test.b)
		if !ok || f.Action != test.want || index != test.index || f.Rate != test.rate {
			t.Errorf("read %+v, device %d (%v), want %s", f, index, ok, test.want)
		}
	}
}

func FuzzReadFilter(f *testing.F) {
	f.Add(make([]byte, TrafficHeader))
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, index, ok := readFilter(b); !ok && index != 0 {
			t.Errorf("%+v and device %d, want nothing", got, index)
		}

		Describe(Qdisc{Kind: []byte("hfsc"), Options: b}, true)
		Describe(Qdisc{Kind: []byte("fq"), Options: b}, false)
	})
}
