package trial

import (
	"runtime"
	"slices"
	"testing"
	"weak"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// A campaign of any length keeps nothing of a stored trial but its rate, unless its plan searches.
func TestACampaignKeepsNoTrialThatIsStored(t *testing.T) {
	c := &Campaign{rates: map[string][]float64{}}
	row := record.Row{Kind: record.RowLoad, Factors: record.Factors{"streams": "1"}}
	held := func() (parts [2]weak.Pointer[int64]) {
		rtt, traffic := make([]int64, 1000), &record.Traffic{Flows: []record.Flow{
			{ReceivedBytes: 1000, ReceiverNs: 1e9}}}
		parts = [2]weak.Pointer[int64]{weak.Make(&rtt[0]), weak.Make(&traffic.Flows[0].ReceivedBytes)}
		c.remember(&record.Trial{Row: row, Status: record.TrialOK, Traffic: traffic,
			Loaded: &record.Latency{RTT: rtt}})
		return parts
	}()
	runtime.GC()
	for i, part := range held {
		if part.Value() != nil {
			t.Errorf("part %d of the trial is kept", i)
		}
	}
	if got := c.rates[row.Cell()]; !slices.Equal(got, []float64{8000}) {
		t.Errorf("rates: got %v bit/s, want the trial's 8000", got)
	}
}

// TestAnotherBootBeginsAnew: what decides on later trials is not learnt from another router.
func TestAnotherBootBeginsAnew(t *testing.T) {
	c := &Campaign{rates: map[string][]float64{}}
	row := record.Row{Kind: record.RowLoad, Factors: record.Factors{"streams": "1"}}
	for i, tt := range []struct {
		boot    string
		another bool
		rates   int
	}{{"a", false, 1}, {"a", false, 2}, {"b", true, 1}, {"", false, 2}, {"b", false, 3}, {"a", true, 1}} {
		trial := &record.Trial{Row: row, Status: record.TrialOK, Traffic: &record.Traffic{}}
		if tt.boot != "" {
			trial.Boots = map[string]string{"router": tt.boot}
		}
		if got := c.anotherBoot(trial); got != tt.another {
			t.Errorf("trial %d, boot %q: another boot: %v, want %v", i, tt.boot, got, tt.another)
		}
		c.remember(trial)
		if got := len(c.rates[row.Cell()]); got != tt.rates {
			t.Errorf("trial %d, boot %q: %d rates, want %d", i, tt.boot, got, tt.rates)
		}
	}
}
