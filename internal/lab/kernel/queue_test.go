package kernel

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/qdisc"
)

func TestQueueOptionsSurviveTheWire(t *testing.T) {
	for _, kind := range qdisc.Kinds() {
		if kind == "htb" { // its values travel in its class
			continue
		}

		parameters, _ := qdisc.Parameters(kind)
		want := qdisc.Queue{Kind: kind, Values: map[string]uint64{}}
		for i, p := range parameters {
			want.Values[p.Name] = uint64(i+1) * 8000
			if p.Quantity == qdisc.Flag || p.Quantity == qdisc.Word {
				want.Values[p.Name] = 1
			}
		}

		b, err := encodeQueue(want)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
		}

		got, err := decodeQueue(kind, b)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
		}

		if kind == "tbf" && got.Values["burst"] > want.Values["burst"]-10 {
			got.Values["burst"] = want.Values["burst"] // travels as time
		}

		diff := cmp.Diff(want, got)
		if diff != "" {
			t.Errorf("%s differs after encoding (-want +got):\n%s", kind, diff)
		}
	}
}

func TestBurstInTicksIsAccurate(t *testing.T) {
	for _, rate := range []uint64{125_000, 37_500_000, 1_250_000_000, 12_500_000_000} {
		got := ticksToBytes(ticks(131072, rate), rate)
		off := 131072 - int64(got)
		if off < -1 || float64(off) > 1+tick*float64(rate)/1e9 {
			t.Errorf("131072 bytes at %d B/s come back as %d, want at most one tick less", rate, got)
		}
	}
}

func FuzzDecodeQueue(f *testing.F) {
	for _, kind := range qdisc.Kinds() {
		b, _ := encodeQueue(qdisc.Queue{Kind: kind, Values: map[string]uint64{"rate": 1e9, "limit": 5}})
		f.Add(kind, b)
	}

	f.Fuzz(func(t *testing.T, kind string, b []byte) {
		q, err := decodeQueue(kind, b)
		if err != nil && (q.Kind != "" || q.Values != nil) {
			t.Errorf("an error comes with %v, want nothing", q)
		}
	})
}
