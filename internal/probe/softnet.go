package probe

import (
	"bytes"
	"errors"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// softnetStems lists the columns of /proc/net/softnet_stat that are sampled, by position
// (net/core/net-procfs.c, softnet_seq_show). The file has 9 columns before Linux 2.6.35, 10 from then on
// (with received_rps), 11 since Linux 3.11 (flow_limit), 13 since 5.10 (backlog and core number), and 15
// since 6.10 (both parts of the backlog).
var softnetStems = [...]struct {
	stem  string
	index int
	total bool
	doc   string
}{
	{"processed", 0, true, "packets processed by the core's NAPI and backlog"},
	{"dropped", 1, true, "packets dropped because the backlog was longer than netdev_max_backlog"},
	{"time_squeeze", 2, true, "times that net_rx_action ran out of budget or time while packets were left"},
	{"received_rps", 9, true, "times that receive packet steering on another core woke this core"},
	{"flow_limit", 10, true, "packets dropped by the backlog's flow limit"},
	{"backlog", 11, false, "packets waiting in the backlog"},
	{"input_queue", 13, false, "packets in the backlog that the core has not begun to process"},
	{"process_queue", 14, false, "packets in the backlog that the core is processing"},
}

const (
	softnetColumns = 15
	softnetCPU     = 12
)

// softnetRow holds the line of a core. n is the number of columns in the line.
type softnetRow struct {
	id, n  int
	values [softnetColumns]uint64
}

var errSoftnet = errors.New("parse /proc/net/softnet_stat: want rows of 9 or more hexadecimal columns")

// parseSoftnet parses /proc/net/softnet_stat into reuse. Kernels that do not print core numbers print one
// row per online core; parseSoftnet then uses the index of the row.
func parseSoftnet(b []byte, reuse []softnetRow) ([]softnetRow, error) {
	rows := reuse[:0]
	for l := range bytes.Lines(b) {
		r := softnetRow{id: len(rows)}
		for r.n < softnetColumns {
			var w []byte
			w, l = word(l)
			if len(w) == 0 {
				break
			}

			v, ok := hexNumber(w)
			if !ok {
				return nil, errSoftnet
			}

			r.values[r.n] = v
			r.n++
		}

		if r.n == 0 {
			continue
		}

		if r.n < 9 {
			return nil, errSoftnet
		}

		if r.n > softnetCPU {
			if r.values[softnetCPU] > 1<<20 {
				return nil, errSoftnet
			}

			r.id = int(r.values[softnetCPU])
		}

		rows = append(rows, r)
	}

	if len(rows) == 0 {
		return nil, errSoftnet
	}

	return rows, nil
}

func softnet(root Root) Probe {
	var metrics []record.Metric
	for _, s := range softnetStems {
		m := level(s.stem, "count", s.doc+", from softnet_stat")
		m.Counter = s.total
		metrics = append(metrics, m)
	}
	return Probe{
		Name:  "softnet",
		Scope: record.ScopeHost,
		Stems: metrics,
		Source: func(Options) (Sampler, error) {
			t, err := openText(root.proc("net/softnet_stat"),
				"the kernel has no networking statistics in /proc", parseSoftnet)
			return &softnetSampler{text: t}, err
		},
	}
}

type softnetSampler struct {
	columns
	text[[]softnetRow]
	ids   []int
	stems []int // indexes in softnetStems of the columns that this kernel has
}

func (s *softnetSampler) describe() {
	s.ids = nil
	s.stems = nil
	s.columns = nil
	for i, st := range softnetStems {
		if st.index < s.now[0].n {
			s.stems = append(s.stems, i)
			s.columns = append(s.columns, "cpu/"+st.stem)
		}
	}

	for _, r := range s.now {
		s.ids = append(s.ids, r.id)
		for _, i := range s.stems {
			s.columns = append(s.columns, cpuLabel(r.id)+"/"+softnetStems[i].stem)
		}
	}
}

func (s *softnetSampler) Sample(dst []float64) error {
	if err := s.update(); err != nil {
		return err
	}

	if !slices.EqualFunc(s.now, s.ids, func(r softnetRow, id int) bool { return r.id == id }) {
		s.describe()
		return ErrColumns
	}

	n := len(s.stems)
	fill(dst[:n], 0)
	for k := range s.now {
		r := &s.now[k]
		for j, i := range s.stems {
			v := float64(r.values[softnetStems[i].index])
			dst[(k+1)*n+j] = v
			dst[j] += v
		}
	}

	return nil
}
