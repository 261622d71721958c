package analysis

import (
	"errors"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// alignRun is a run of trials of some lengths, 100 ms of pause between them and more now and then, each
// with a rate of its own.
func alignRun(rng *rand.Rand, n int, alike bool) []record.Trial {
	var trials []record.Trial
	at := int64(5e9)
	for range n {
		long := int64(2e9)
		rate := 1.0
		pause := int64(1e9)
		if !alike {
			long, rate, pause = int64(2e9)+rng.Int64N(2e9), 0.3+rng.Float64(), int64(1e9)+rng.Int64N(1e9)
		}

		f := record.Flow{Received: record.NewTable("bytes", "packets")}
		for k := int64(0); k <= long; k += 1e8 {
			f.Received.Append(at+k, rate*float64(k)/10, 0)
		}

		trials = append(trials, record.Trial{
			Origin:  at,
			Ended:   at + long,
			Traffic: &record.Traffic{Flows: []record.Flow{f}},
		})
		at += long + pause
	}

	return trials
}

func carriageOf(trials []record.Trial) *Carriage {
	c := new(Carriage)
	for _, t := range trials {
		c.Add(t)
	}
	return c
}

// watchOf returns what a machine between saw of a run, by a clock that is offset ahead, with headers, others'
// traffic and samples that come a little late.
func watchOf(rng *rand.Rand, trials []record.Trial, offset, interval, from, to int64) *record.Table {
	c := carriageOf(trials).curve()
	t := record.NewTable("lan/rx_bytes", "lan/tx_bytes", "lo/rx_bytes", "late/rx_bytes")
	others := 0.0
	for at := from; at <= to; at += interval {
		seen := at + rng.Int64N(interval/20)
		others += rng.Float64() * 1e6
		late := math.NaN()
		if at > from+5*interval {
			late = others
		}

		t.Append(seen+offset, 1.05*c.At(seen)+others, 0, 1e9*rng.Float64(), late)
	}

	return t
}

func TestAlignByTraffic(t *testing.T) {
	for _, test := range []struct {
		interval, offset, from, to int64
	}{
		{1e9, 7e18 / 2, 0, 60e9},
		{1e8, -3e9, 0, 60e9},
		{1e8, 123456789, 12e9, 40e9}, // a part of the run
		{1e9, 5e12, -2000e9, 4000e9}, // much more
		{2e9, 0, 0, 70e9},
	} {
		for seed := range uint64(5) {
			rng := rand.New(rand.NewPCG(seed, uint64(test.interval)))
			trials := alignRun(rng, 12, false)
			got, err := carriageOf(trials).Align(watchOf(rng, trials, test.offset, test.interval, test.from,
				test.to), 0, true)
			if err != nil {
				t.Errorf("every %d ns, offset %d, seed %d: %v", test.interval, test.offset, seed, err)
				continue
			}

			off := got.Offset - test.offset
			if off > got.Bound || -off > got.Bound ||
				got.Bound > test.interval {
				t.Errorf("every %d ns, seed %d: got an error of the offset of %d within %d, match %v",
					test.interval, seed, off, got.Bound, got.Match)
			}
		}
	}
}

func TestAlignAmbiguous(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	trials := alignRun(rng, 12, true)
	part := watchOf(rng, trials, 1e15, 1e8, 13e9, 25e9) // four of twelve trials that are alike
	_, err := carriageOf(trials).Align(part, 0, true)
	none := (&statistics.NoMatchError{})
	if !errors.As(err, &none) || !none.Many || none.Hint() == "" {
		t.Errorf("got error %v, want one that says that it fits at several times", err)
	}

	got, err := carriageOf(trials).Align(part, 1e15+5e8, true)
	off := got.Offset - 1e15
	if err != nil || off > got.Bound || -off > got.Bound {
		t.Errorf("with wall clocks that are half a second apart: got an error of %d, %v", off, err)
	}

	if _, err := carriageOf(trials).Align(part, 1, true); err == nil {
		t.Error("with a wall clock that is days off: got no error")
	}
}

func TestAlignNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	trials := alignRun(rng, 8, false)
	other := record.NewTable("lan/rx_bytes")
	sum := 0.0
	for i := range 300 {
		sum += rng.Float64() * 1e8
		other.Append(int64(i)*1e9, sum)
	}

	for name, table := range map[string]*record.Table{
		"others' traffic": other, "nothing": nil, "two samples": watchOf(rng, trials, 0, 1e9, 0, 1e9),
		"a machine at rest": watchOf(rng, trials, 0, 1e8, 100e9, 160e9),
	} {
		if got, err := carriageOf(trials).Align(table, 0, true); err == nil {
			t.Errorf("%s: got %+v, want an error", name, got)
		}
	}

	if _, err := carriageOf(nil).Align(other, 0, true); err == nil {
		t.Error("without trials: got no error")
	}
}

// An import reaches the trials that it covers, and changes no others.
func TestWithImports(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	trials := alignRun(rng, 3, false)
	for i := range trials {
		trials[i].Nodes = map[string]record.NodeData{"router": {Samples: []record.Samples{{
			Probe:       "all",
			Unavailable: "not watched",
		}}}}
	}

	table := record.NewTable("cpu0/idle_ns")
	for at := int64(0); at < trials[1].Ended-1e9; at += 1e8 {
		table.Append(at, float64(at))
	}

	run := &record.Run{Imports: []record.Import{{
		Node:    "router",
		Samples: []record.Samples{{Probe: "cpu", Table: table}},
		Log:     []record.LogLine{{At: trials[0].Origin + 1, Text: "link down"}, {At: 1}},
	}}}
	var got []record.Trial
	for _, trial := range trials {
		got = append(got, withImports(run, trial))
	}

	for i, want := range []string{"", "", "not watched"} {
		samples, why := metrics.SamplesOf(got[i].Nodes["router"], "cpu")
		if why != want || (samples == nil) != (want != "") {
			t.Errorf("trial "+strconv.Itoa(i)+": got samples %v, %q, want %q", samples, why, want)
		}

		if samples != nil && (samples.T[0] > trials[i].Origin || len(samples.T) > 50) {
			t.Errorf("trial %d: got %d samples from %d on, want those of the trial", i, len(samples.T),
				samples.T[0])
		}
	}

	n := len(got[0].Nodes["router"].Log)
	if n != 1 {
		t.Errorf("got %d lines of the log in the first trial, want 1", n)
	}

	if _, why := metrics.SamplesOf(trials[0].Nodes["router"], "cpu"); why != "not watched" {
		t.Errorf("the stored trial was changed: %q", why)
	}
}

// TestAlignADay: windows of five minutes with seconds between, at one rate, are told by those seconds.
func TestAlignADay(t *testing.T) {
	rng := rand.New(rand.NewPCG(24, 1))
	c := new(Carriage)
	for i := range int64(288) {
		f := record.Flow{Received: record.NewTable("bytes")}
		begin := i * 305e9
		for k := int64(0); k <= 302e9; k += 1e9 {
			f.Received.Append(begin+k, float64(k)+rng.Float64()*1e7)
		}

		c.Add(record.Trial{
			Origin: begin,
			Ended:  begin + 303e9,
			Traffic: &record.Traffic{
				Flows: []record.Flow{f}},
		})
	}

	const offset = int64(7e15)
	curve := c.curve()
	seen := record.NewTable("lan/rx_bytes")
	for at := int64(-60e9); at < 288*305e9+60e9; at += 1e9 {
		seen.Append(at+offset, curve.At(at))
	}

	for _, off := range []int64{0, 100e9, -100e9} {
		a, err := c.Align(seen, offset+off, false)
		if err != nil || a.Offset < offset-2e8 || a.Offset > offset+2e8 {
			t.Errorf("a wall clock that is %v off: got %+v, %v, want %d", off, a, err, offset)
		}
	}
}

// TestThinner: of a long import each trial keeps some samples, evenly, with one on either side; short trials
// keep all, and what lies between trials goes.
func TestThinner(t *testing.T) {
	const second = int64(1e9)
	long := record.Trial{Origin: 100 * second, Ended: 420 * second}
	short := record.Trial{Origin: 1000 * second, Ended: 1002 * second}
	keep := carriageOf([]record.Trial{short, long}).Thinner()
	table := record.NewTable("a/rx_bytes")
	for at := int64(0); at < 2000*second; at += second / 2 {
		if keep("netdev", at) {
			table.Append(at, 1)
		}

		if keep("cpu", at) != (len(table.T) > 0 && table.T[len(table.T)-1] == at) {
			t.Fatalf("at %d one source is kept, and another is not", at)
		}
	}

	rows := map[string]int{}
	for i, at := range table.T {
		switch {
		case at >= long.Origin-10*second && at <= long.Ended+10*second:
			rows["long"]++
			if i > 0 && at-table.T[i-1] < 10*second {
				t.Errorf("samples at %d and %d are too near", table.T[i-1], at)
			}
		case at >= short.Origin-second && at <= short.Ended+second:
			rows["short"]++
		default:
			t.Errorf("kept a sample at %d, outside of trials", at)
		}
	}

	if rows["long"] < thinRows || rows["long"] > thinRows+3 || rows["short"] != 5 {
		t.Errorf("kept %v, want %d to %d and the 5 in the short one", rows, thinRows, thinRows+3)
	}
}
