package foreign

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/iperf3"
)

// readIperf3 parses the output of iperf3. With --json, the output is one document per test. With
// --json-stream (3.17 and later), each line is an object with an event and its data. With neither option,
// the output consists of tables.
func readIperf3(text []byte) ([]Result, error) {
	docs, err := documents(text)
	if err != nil {
		return nil, err
	}

	tests, err := unstreamed(text, docs)
	if err != nil {
		return nil, err
	}

	printed := map[int]iperf3.Printed{} // tests printed as tables, by offset in the text
	from := 0
	for _, d := range append(docs, document{from: len(text)}) {
		for _, p := range iperf3.ReadPrinted(text[from:d.from]) {
			printed[from+p.From] = p
			tests = append(tests, document{from: from + p.From, to: from + p.To})
		}

		from = d.to
	}

	if len(tests) == 0 {
		_, err := iperf3.ReadFile(text) // returns the error to report
		return nil, at(text, err)
	}

	slices.SortStableFunc(tests, func(a, b document) int { return cmp.Compare(a.from, b.from) })
	return resultsOf(text, tests, func(d document) ([]Result, error) {
		if p, ok := printed[d.from]; ok {
			if p.Err != nil {
				return nil, p.Err
			}
			return []Result{iperf3Result(p.File)}, nil
		}

		file, err := iperf3.ReadFile(d.text)
		switch {
		case err != nil && d.joined: // offsets do not refer to the text
			return nil, &Error{Err: check.JSONWords(err)}
		case err != nil:
			return nil, at(d.text, err)
		}

		return []Result{iperf3Result(file)}, nil
	})
}

// iperf3Result converts a test of iperf3 to a result.
func iperf3Result(file *iperf3.File) Result {
	t := file.Traffic
	load := &file.Traffic.Load
	r := newResult(name(t.Version), oneRun)
	r.Began = file.Began
	r.Traffic = t
	if load.Warmup == 0 {
		r.lack(noWarmup)
	}

	if file.Printed {
		r.lack("exact counts: rates have three digits (--json has all)")
	}

	if file.Alone {
		r.lack("the other end's intervals")
	}

	r.set(factor.Engine, "iperf3")
	r.setLoad(*load)
	r.setNumber(factor.IP, load.IP)
	r.set(factor.Congestion, load.Congestion)
	r.setNumber(factor.DSCP, load.DSCP)
	rate := factor.Pacing
	if load.Protocol == factor.UDP {
		r.setNumber(factor.PacketSize, load.PacketSize)
		rate = factor.Rate
	}

	if load.RateBps > 0 {
		r.set(rate, factor.RateText(load.RateBps))
	}

	r.set(title, file.Title)
	r.set("extra_data", file.Extra)
	for _, n := range file.Missing {
		delete(r.Factors, string(n))
		r.lack(string(n) + ", which was not in what was kept of its output")
	}

	r.Window = windowOf(t, int64(load.Warmup))
	t.Details["congestion"] = name(t.Details["congestion"])
	t.Version = r.Foreign.Version
	t.Caveats = slices.DeleteFunc(t.Caveats, func(c record.Caveat) bool { return c.Kind == "engine-usage" })
	return r
}

// title is the factor for the title that the user gave to a test.
const title = factor.Name("title")

// These are items that results lack. All results of other programs lack those in unwatched.
const (
	oneRun   = "repetitions"
	noWarmup = "a warm-up that is cut off"
)

var unwatched = []string{"telemetry of the nodes", "proof of the path by counters", "verified content",
	"the tester's own ceiling"}

// unstreamed joins the lines of --json-stream into the documents that --json would write, one for each
// "start" event. Other documents are returned unchanged.
func unstreamed(text []byte, docs []document) (tests []document, err error) {
	var s *iperf3Stream
	flush := func() {
		if s != nil {
			tests = append(tests, s.document())
		}

		s = nil
	}
	var last json.RawMessage // start of the last streamed test
	for _, d := range docs {
		var line struct {
			Event *string         `json:"event"`
			Data  json.RawMessage `json:"data"`
			Start json.RawMessage `json:"start"`
		}
		if err := json.Unmarshal(d.text, &line); err != nil {
			return nil, within(text, d, at(d.text, err))
		}

		if line.Event == nil {
			flush()
			n := len(tests) - 1
			if n >= 0 && tests[n].joined && sameJSON(last, line.Start) {
				tests = tests[:n] // --json-stream-full-output repeats the test as one document
			}

			tests = append(tests, d)
			last = nil
			continue
		}

		if line.Data == nil {
			return nil, place(text, d.from, errors.New("it is no event of iperf3"))
		}

		if *line.Event == "start" {
			flush()
			last = line.Data
		}

		if s == nil {
			s = &iperf3Stream{from: d.from, parts: map[string]json.RawMessage{}}
		}

		s.to = d.to
		switch *line.Event {
		case "interval":
			s.intervals = append(s.intervals, line.Data)
		case "start", "end", "error", "server_output_json":
			s.parts[*line.Event] = line.Data
		case "server_output_text":
		default:
			return nil, place(text, d.from, fmt.Errorf("event %.20q is none of iperf3's", *line.Event))
		}

		if *line.Event == "end" {
			flush()
		}
	}

	flush()
	return tests, nil
}

// iperf3Stream collects the lines of one test of --json-stream.
type iperf3Stream struct {
	from, to  int
	parts     map[string]json.RawMessage
	intervals []json.RawMessage
}

// document returns the test in the format of --json.
func (s *iperf3Stream) document() document {
	s.parts["intervals"], _ = json.Marshal(s.intervals) // cannot fail: it was parsed above
	whole, _ := json.Marshal(s.parts)
	return document{from: s.from, to: s.to, text: whole, joined: true}
}

// sameJSON reports whether two JSON values are equal. It ignores white space.
func sameJSON(a, b json.RawMessage) bool {
	var one, other bytes.Buffer
	return json.Compact(&one, a) == nil && json.Compact(&other, b) == nil &&
		bytes.Equal(one.Bytes(), other.Bytes())
}

// windowOf returns the window that begins at start and ends with the longest flow.
func windowOf(t *record.Traffic, start int64) record.Window {
	w := record.Window{Start: start, End: start}
	for _, f := range t.Flows {
		w.End = max(w.End, start+max(f.ReceiverNs, f.SenderNs))
	}

	w.Stop = w.End
	return w
}
