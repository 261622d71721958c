package analysis

import (
	"math"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/method"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/search"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func TestSearchOfNewConnections(t *testing.T) {
	preset, _ := method.PresetNamed("quick")
	m := record.Method{Search: &record.Search{Preset: "quick", MinHz: 10, MaxHz: 10000, MaxTime: time.Hour}}
	for _, g := range preset.Goals {
		g.FinalDuration = time.Second
		g.InitialDuration = time.Second
		g.DurationSum = 3 * time.Second
		m.Search.Goals = append(m.Search.Goals, g)
	}

	f := quickFactors("engine", "flows")
	if record.SearchUnit(f) != record.UnitFlows {
		t.Fatalf("unit %q, want %q", record.SearchUnit(f), record.UnitFlows)
	}

	const carries = 3000.0
	run := record.Run{
		RunHead: record.RunHead{ID: "r", Status: record.RunDone},
		Design:  designOf(f),
	}
	run.Design.Method = m
	inLab(&run, "local")
	var trials []record.Trial
	var known []*record.Trial
	for {
		next, more, err := search.NextOfSearch(m, record.UnitFlows, 0, 1, known, nil)
		if err != nil || len(trials) > 200 {
			t.Fatalf("after %d trials: %v", len(trials), err)
		}

		if !more {
			break
		}

		tr := newSynthetic(uint64(len(trials))).trial(f, 1, 1, 1e8)
		tr.Status, tr.Search, tr.Attempt = record.TrialOK, &next, len(trials)+1
		started := int64(next.Load)
		lost := max(started-int64(carries), 0)
		tr.Traffic.ShortFlows = &record.ShortFlows{
			Started:    started,
			Completed:  started - lost,
			Failed:     lost / 2,
			Unfinished: lost - lost/2,
			Tardy:      lost - lost/2,
		}
		trials, known = append(trials, tr), append(known, &tr)
	}

	d := Derive(run, trials)
	for name, want := range map[string]float64{metrics.ConnectionsNDR: carries,
		metrics.ConnectionsPDR: carries} {
		got := d.Cells[0].Metrics[name].Median
		if math.Abs(got/want-1) > .02 {
			t.Errorf("%s: got %v, want %v: %+v", name, got, want, d.Searches)
		}
	}

	if _, ok := d.Cells[0].Metrics[metrics.ThroughputPaced]; ok ||
		d.Searches[0].Results[0].ThroughputBps != nil {
		t.Errorf("connections have no bits: %+v", d.Searches[0].Results[0])
	}
}
