package shortflow

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

func TestFlowSizesFollowTheirDistribution(t *testing.T) {
	for _, test := range []struct {
		text       string
		below      int64
		share      float64
		mean       float64 // 0: so heavy a tail that it is not tried
		least, top int64
	}{
		{"777", 778, 1, 777, 777, 777},
		{"exponential 1000", 1001, 1 - 1/math.E, 1000, 1, maxFlowBytes},
		{"websearch", 53*1500 + 1, .53, 1.7115e6, 9000, 30e6},
		{"websearch", 6667*1500 + 1, .97, 0, 9000, 30e6},
		{"datamining", 1501, .5, 0, 1500, 1e9 + 1500},
		{"datamining", 267*1500 + 1, .9, 0, 1500, 1e9 + 1500},
	} {
		s, err := ParseFlowSizes(test.text)
		if err != nil {
			t.Fatal(err)
		}

		rng := rand.New(rand.NewPCG(1, 2))
		const n = 200_000
		sum, below := 0.0, 0
		for range n {
			v := s.draw(rng)
			if v < test.least || v > test.top {
				t.Fatalf("%s: got %d, want %d to %d", test.text, v, test.least, test.top)
			}

			if sum += float64(v); v < test.below {
				below++
			}
		}

		if got := float64(below) / n; math.Abs(got-test.share) > .01 {
			t.Errorf("%s: %.3f of the flows are below %d bytes, want %.3f", test.text, got, test.below,
				test.share)
		}

		if got := sum / n; test.mean > 0 && math.Abs(got/test.mean-1) > .02 {
			t.Errorf("%s: mean %.0f, want %.0f", test.text, got, test.mean)
		}
	}
}

func FuzzParseFlowSizes(f *testing.F) {
	for _, text := range []string{"10000", "0", "exponential 5000", "exponential", "websearch", "datamining",
		"1e3", "-1", "99999999999"} {
		f.Add(text)
	}

	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseFlowSizes(text)
		if level, levelErr := FlowSizeLevel(text); (levelErr == nil) != (err == nil) || err == nil &&
			level != text {
			t.Errorf("%q: level %q, %v", text, level, levelErr)
		}

		if err != nil {
			if s.fixed != 0 || s.mean != 0 || s.points != nil {
				t.Errorf("%q: got %+v with an error", text, s)
			}
			return
		}

		v := s.draw(rand.New(rand.NewPCG(1, 1)))
		if v < 1 || v > maxFlowBytes {
			t.Errorf("%q: drew %d", text, v)
		}
	})
}

func FuzzReadAsk(f *testing.F) {
	b := make([]byte, flowHeaderSize)
	flowHeader{1, 2, 3}.put(b)
	f.Add(b)
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := readFlowHeader(b)
		if !ok {
			if a != (flowHeader{}) {
				t.Errorf("%x: got %+v with a refusal", b, a)
			}
			return
		}

		again := make([]byte, flowHeaderSize)
		a.put(again)
		if string(again) != string(b) || a.gives > maxFlowBytes || a.wants > maxFlowBytes {
			t.Errorf("%x: got %+v, which is %x", b, a, again)
		}
	})
}

func TestTimesKeepASixtyFourth(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 100_000 {
		v := int64(math.Exp(rng.Float64() * 30))
		bucket := traffic.BucketOf(v, timesOctave)
		edge := traffic.BucketEdge(bucket, timesOctave)
		again := traffic.BucketOf(edge, timesOctave)
		width := max(v/64, 64)
		if edge > v || v-edge > width || again != bucket {
			t.Fatalf("%d is in the bucket from %d", v, edge)
		}
	}
}

func TestTallyCountsEachFlowOnce(t *testing.T) {
	w := record.Window{Begin: 0, Start: 100, End: 200, Stop: 300}
	tally := newFlowTally(w)
	for _, f := range []struct {
		intended, end int64
		fails         bool
	}{{50, 90, false}, {50, 150, false}, {90, 150, true}, {100, 150, false}, {120, 190, true},
		{150, 201, false}, {160, 202, true}, {199, -1, false}, {200, 210, false}} {
		tally.begin(f.intended, 10)
		switch {
		case f.end < 0:
			tally.abandon(f.intended)
		case f.fails:
			tally.fail(f.intended, f.end, "x")
		default:
			tally.complete(f.intended, f.end, 10, 10)
		}
	}

	s := joinTallies([]*flowTally{tally, newFlowTally(w)}, record.Load{}, false)
	if s.Started != 5 || s.Completed != 1 || s.Failed != 1 || s.Unfinished != 3 || s.Carried != 1 ||
		s.Asked != 10 || s.Failures["x"] != 1 {
		t.Errorf("got %+v, want 5 started, 1 completed, 1 failed, 3 unfinished, 1 carried", s)
	}

	if err := traffic.CheckShortFlows(s); err != nil {
		t.Error(err)
	}

	s.Unfinished--
	if traffic.CheckShortFlows(s) == nil {
		t.Error("a flow was lost, and nobody noticed")
	}

	s.Unfinished++
	s.Confirmed++
	if traffic.CheckShortFlows(s) == nil {
		t.Error("a byte was made up, and nobody noticed")
	}
}

// A connection is tardy if the window left it the time, and it was not made.
func TestTallyKnowsTardyConnections(t *testing.T) {
	const ms = int64(time.Millisecond)
	tally := newFlowTally(record.Window{Start: 0, End: 1000 * ms, Stop: 1100 * ms})
	for _, c := range []struct{ intended, at int64 }{{0, 100}, {100, 300}, {100, 301}, {700, 1001},
		{900, 1090}, {-50, 500}, {1000, 1300}} {
		tally.connected(c.intended*ms, c.at*ms, (c.at-c.intended)*ms)
	}

	for _, intended := range []int64{500, 800, 801, -1} {
		tally.unconnected(intended * ms)
	}

	s := joinTallies([]*flowTally{tally}, record.Load{}, false)
	if s.Tardy != 4 || s.DueNs != 200*ms {
		t.Errorf("got %d tardy after %d ns, want 4: those of 100, 700, 500 and 800 ms", s.Tardy, s.DueNs)
	}
}
