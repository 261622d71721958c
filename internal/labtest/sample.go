package labtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

// Sample describes a small stored run: two cells, by default three blocks.
type Sample struct {
	ID      string
	Started time.Time
	Scale   float64 // factor by which all rates are multiplied
	status  string  // "" means that the run was interrupted
	failed  bool    // one trial of the run failed
	require []record.Requirement
	ambient string
	blocks  int    // 0 means 3
	kernel  string // "" means 6.1.0-test
	lab     string // "" means local
}

// Samples lists the runs that test scripts may request by name.
var Samples = map[string]Sample{
	"good": {
		ID:      "20260102-030405-aaaa",
		Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Scale:   1,
		status:  record.RunDone,
		ambient: "22 °C",
	},
	"desk": {
		ID:      "20260110-030405-2222",
		Started: time.Date(2026, 1, 10, 3, 4, 5, 0, time.UTC),
		Scale:   1,
		status:  record.RunDone,
		lab:     record.LabSSH,
	},
	"slow": {
		ID:      "20260103-030405-bbbb",
		Started: time.Date(2026, 1, 3, 3, 4, 5, 0, time.UTC),
		Scale:   0.5,
		status:  record.RunDone,
		ambient: "22 °C",
	},
	"failed": {
		ID:      "20260104-030405-cccc",
		Started: time.Date(2026, 1, 4, 3, 4, 5, 0, time.UTC),
		Scale:   1,
		status:  record.RunDone,
		failed:  true,
	},
	"killed": {ID: "20260105-030405-dddd", Started: time.Date(2026, 1, 5, 3, 4, 5, 0, time.UTC), Scale: 1},
	"before": {
		ID:      "20260107-030405-ffff",
		Started: time.Date(2026, 1, 7, 3, 4, 5, 0, time.UTC),
		Scale:   1,
		status:  record.RunDone,
		blocks:  8,
	},
	"after": {
		ID:      "20260108-030405-0000",
		Started: time.Date(2026, 1, 8, 3, 4, 5, 0, time.UTC),
		Scale:   0.5,
		status:  record.RunDone,
		blocks:  8,
	},
	"hotter": {
		ID:      "20260109-030405-1111",
		Started: time.Date(2026, 1, 9, 3, 4, 5, 0, time.UTC),
		Scale:   0.5,
		status:  record.RunDone,
		blocks:  8,
		ambient: "35 °C",
		kernel:  "6.6.0-test",
	},
	"demanded": {
		ID:      "20260106-030405-eeee",
		Started: time.Date(2026, 1, 6, 3, 4, 5, 0, time.UTC),
		Scale:   1,
		status:  record.RunDone,
		require: []record.Requirement{{
			Text:   "goodput >= 10G",
			Metric: "goodput_bps",
			Op:     ">=",
			Value:  10e9,
		}},
	},
}

// WriteSample writes the sample with the given name to a new store.
func WriteSample(ctx context.Context, file, name string) error {
	s, ok := Samples[name]
	if !ok {
		return fmt.Errorf("no sample run %q", name)
	}

	return s.write(ctx, file)
}

// WriteNights writes one run per night, starting on 1 March 2026. All rates are multiplied by factor, and the
// kernel has another version, starting with the night whose number is in changed. One trial of the third
// night fails. There are no runs for the week after that night.
func WriteNights(ctx context.Context, file string, nights, changed int, factor float64) error {
	for i := range nights {
		s := Sample{
			Started: time.Date(2026, 3, 1+i, 3, 4, 5, 0, time.UTC),
			Scale:   1 + 0.01*math.Sin(float64(7*i)), // so that all nights differ
			status:  record.RunDone,
			failed:  i == 2,
		}
		if i > 2 {
			s.Started = s.Started.AddDate(0, 0, 7)
		}

		if i >= changed {
			s.Scale *= factor
			s.kernel = "6.6.0-test"
		}

		s.ID = store.NewID(s.Started, uint16(i))
		if err := s.write(ctx, file); err != nil {
			return err
		}
	}
	return nil
}

func (s Sample) write(ctx context.Context, file string) error {
	st, err := store.Open(ctx, file)
	if err != nil {
		return err
	}

	err = st.CreateRun(ctx, s.Run())
	for _, t := range s.Trials() {
		if err == nil {
			err = st.AppendTrial(ctx, t)
		}
	}

	if err == nil && s.status != "" {
		err = st.EndRun(ctx, s.ID, s.status, "", s.Started.Add(time.Minute))
	}

	return errors.Join(err, st.Close())
}

// Run returns the run without its trials.
func (s Sample) Run() record.Run {
	cells := []record.Factors{s.Cell("none"), s.Cell("wireguard")}
	kernel := "6.1.0-test"
	if s.kernel != "" {
		kernel = s.kernel
	}

	conditions := map[string]string{}
	if s.ambient != "" {
		conditions["ambient"] = s.ambient
	}

	return record.Run{
		RunHead: record.RunHead{
			ID:         s.ID,
			Started:    s.Started,
			Lab:        cmp.Or(s.lab, record.LabLocal),
			Command:    "chokepoint run sample.yaml --seed 7",
			Version:    "v0.0.0-test",
			BinaryHash: "00",
		},
		Kernel: kernel,
		Design: record.Design{
			Procedure: record.Procedure{
				Method: record.Method{
					Duration: time.Second,
					Runs: max(3,
						s.blocks),
					Order: "blocks",
					Seed:  7,
				},
				Measure: record.Measure{LatencyIdle: "off"},
			},
			Name:         "sample",
			Description:  "Two cells.",
			Source:       "sample.yaml",
			Factors:      []record.FactorLevels{{Name: "tunnel", Levels: []string{"none", "wireguard"}}},
			Cells:        cells,
			Baseline:     cells[0],
			Requirements: s.require,
			Conditions:   conditions,
		},
		Environments: []record.Environment{{
			Node: "host",
			Facts: map[string]string{"kernel": kernel,
				"cores": "2"},
		}},
	}
}

// Cell returns the cell with the given tunnel.
func (s Sample) Cell(tunnel string) record.Factors {
	return record.Factors{
		"topology": "forward", "tunnel": tunnel, "protocol": "tcp", "streams": "1", "direction": "up",
		"ip": "4", "nat": "off", "offload": "wire", "engine": "native", "congestion": "cubic",
	}
}

// Trials returns the trials of the run, in order.
func (s Sample) Trials() []record.Trial {
	var trials []record.Trial
	for block := 1; block <= max(3, s.blocks); block++ {
		for i, tunnel := range []string{"none", "wireguard"} {
			row := record.Row{
				Assignment: record.Assignment{
					Block:   block,
					Index:   2*(block-1) + i + 1,
					Kind:    record.RowLoad,
					Factors: s.Cell(tunnel),
				},
				ID: fmt.Sprintf("b%d-r%02d", block, i+1),
			}
			bytes := int64(s.Scale * (100e6 + 1e6*float64(block)) / float64(1+i))
			t := s.Trial(row, bytes)
			if s.failed && block == 2 && i == 1 {
				t.Status = record.TrialFailed
				t.Traffic = nil
				t.Failure = &record.Failure{Phase: record.PhaseVerify, Error: "tunnel counters did not move"}
			}

			trials = append(trials, t)
		}
	}
	return trials
}

// Trial returns a trial with a window of one second in which the given number of bytes was received.
func (s Sample) Trial(row record.Row, bytes int64) record.Trial {
	const second = int64(time.Second)
	series := record.NewTable("bytes")
	for i := int64(0); i <= 10; i++ {
		series.Append(second+i*second/10, float64(bytes*i/10))
	}

	return record.Trial{
		Row: row,
		TrialHead: record.TrialHead{
			ID:      row.ID + ".1",
			Started: s.Started.Add(time.Duration(row.Index) * 3 * time.Second),
			Phases:  []record.Phase{{Name: record.PhaseWindow, Start: second, End: 2 * second}},
		},
		Run:     s.ID,
		Attempt: 1,
		Status:  record.TrialOK,
		Ended:   3 * second,
		Window:  record.Window{Begin: second / 2, Start: second, End: 2 * second, Stop: 2 * second},
		Traffic: &record.Traffic{
			Engine: "native",
			Load: record.Load{
				Protocol:  "tcp",
				Direction: record.Up,
				Streams:   1,
				IP:        4,
				Duration:  time.Second,
			},
			Flows: []record.Flow{{
				Direction:     record.Up,
				SentBytes:     bytes,
				ReceivedBytes: bytes,
				SenderNs:      second,
				ReceiverNs:    second,
				Received:      series,
			}},
			Ends: map[string]record.EndUsage{"near": {Node: "client"}, "far": {Node: "server"}},
		},
	}
}
