package foreign

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/iperf3"
)

// readIperf3 reads the client's file of iperf3 --json, or the lines of --json-stream (3.17 and later), each
// an object with an event and its data.
func readIperf3(text []byte) ([]Result, error) {
	if err := bounded(text); err != nil {
		return nil, err
	}
	whole, asIs, err := unstreamed(text)
	if err != nil {
		return nil, err
	}
	file, err := iperf3.ReadFile(whole)
	if err != nil && !asIs { // it names no place in the text
		return nil, &Error{Err: check.JSONWords(err)}
	}
	if err != nil {
		return nil, err
	}
	t, load := file.Traffic, &file.Traffic.Load
	r := newResult(name(t.Version), oneRun)
	r.Began, r.Traffic = file.Began, t
	if load.Warmup == 0 {
		r.Foreign.Lacks = append(r.Foreign.Lacks, noWarmup)
	}
	if file.Alone {
		r.Foreign.Lacks = append(r.Foreign.Lacks, "the other end's intervals")
	}
	set(r.Factors, factor.Engine, "iperf3")
	set(r.Factors, factor.Protocol, load.Protocol)
	set(r.Factors, factor.Direction, load.Direction)
	set(r.Factors, factor.Streams, strconv.Itoa(load.Streams))
	set(r.Factors, factor.IP, strconv.Itoa(load.IP))
	set(r.Factors, factor.Congestion, load.Congestion)
	if load.DSCP > 0 {
		set(r.Factors, factor.DSCP, strconv.Itoa(load.DSCP))
	}
	rate := factor.Pacing
	if load.Protocol == factor.UDP {
		set(r.Factors, factor.PacketSize, strconv.Itoa(load.PacketSize))
		rate = factor.Rate
	}
	if load.RateBps > 0 {
		set(r.Factors, rate, factor.RateText(load.RateBps))
	}
	set(r.Factors, title, file.Title)
	set(r.Factors, "extra_data", file.Extra)
	r.Window = windowOf(t, int64(load.Warmup))
	t.Details["congestion"] = name(t.Details["congestion"])
	t.Version = r.Foreign.Version
	t.Caveats = slices.DeleteFunc(t.Caveats, func(c record.Caveat) bool { return c.Kind == "engine-usage" })
	return []Result{r}, nil
}

// title is the factor of what a user called a test.
const title = factor.Name("title")

// What no other program has, and others lack now and then.
const (
	oneRun   = "repetitions"
	noWarmup = "a warm-up that is cut off"
)

var unwatched = []string{"telemetry of the nodes", "proof of the path by counters", "verified content",
	"the tester's own ceiling"}

// unstreamed puts the lines of --json-stream together to what --json writes, which it returns as it is.
func unstreamed(text []byte) (whole []byte, asIs bool, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	parts := map[string]json.RawMessage{}
	var intervals []json.RawMessage
	for {
		var line struct {
			Event *string         `json:"event"`
			Data  json.RawMessage `json:"data"`
			Start present         `json:"start"`
		}
		from := int(d.InputOffset())
		err := d.Decode(&line)
		switch {
		case errors.Is(err, io.EOF):
			if len(parts) == 0 {
				return nil, false, place(text, from, errors.New("there is no test in it"))
			}
			if parts["intervals"], err = json.Marshal(intervals); err == nil {
				whole, err = json.Marshal(parts)
			}
			return whole, false, err
		case errors.Is(err, io.ErrUnexpectedEOF):
			return nil, false, place(text, len(text), errors.New("it ends in the middle"))
		case err != nil:
			if e, ok := errors.AsType[*json.SyntaxError](err); ok { // of the stream
				from = int(e.Offset)
			}
			return nil, false, place(text, from, check.JSONWords(err))
		case line.Event == nil && bool(line.Start): // of --json, or of --json-stream-full-output at its end
			return text[from:d.InputOffset()], from == 0, nil
		case line.Event == nil || line.Data == nil:
			return nil, false, place(text, from, errors.New("it is no event of iperf3"))
		case *line.Event == "interval":
			intervals = append(intervals, line.Data)
		case *line.Event == "start", *line.Event == "end", *line.Event == "error",
			*line.Event == "server_output_json":
			parts[*line.Event] = line.Data
		case *line.Event == "server_output_text":
		default:
			return nil, false, place(text, from, fmt.Errorf("event %.20q is none of iperf3's", *line.Event))
		}
	}
}

// windowOf is the stretch in which all flows were measured, from start on.
func windowOf(t *record.Traffic, start int64) record.Window {
	w := record.Window{Start: start, End: start}
	for _, f := range t.Flows {
		w.End = max(w.End, start+max(f.ReceiverNs, f.SenderNs))
	}
	w.Stop = w.End
	return w
}
