package watch

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// printFormat is the version of the format that Print writes.
const printFormat = "chokepoint-probe/1"

// Print samples the probes at an interval and writes JSON, one object per line. It stops after count
// samples or, if count is 0, when ctx is done. The first line is {"format", "at_ns", "realtime_ns"}, where
// realtime_ns is the wall clock. Each further line is a sample {"at_ns", "probe", "scope", "values"}, with
// null for missing values, or {"at_ns", "probe", "scope", "unavailable"}, once for each probe that this
// machine lacks.
func Print(ctx context.Context, w io.Writer, list []probe.Probe, every time.Duration, count int) error {
	if every <= 0 {
		return fmt.Errorf("print samples: interval %v is not above 0", every)
	}

	var open []*source
	defer func() {
		for _, s := range open {
			s.sampler.Close()
		}
	}()
	b := fmt.Appendf(nil, `{"format":%q,"at_ns":%d,"realtime_ns":%d}`+"\n", printFormat, host.Monotonic(),
		time.Now().UnixNano())
	for _, p := range list {
		sampler, err := p.Open(probe.Options{})
		if err != nil {
			b = appendUnavailable(b, host.Monotonic(), p, err)
			continue
		}

		s := &source{probe: p, sampler: sampler}
		s.describe()
		open = append(open, s)
	}

	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for n := 0; ; n++ {
		for _, s := range open {
			b = s.appendSample(b)
		}

		if _, err := w.Write(b); err != nil {
			return fmt.Errorf("print samples: %w", err)
		}

		b = b[:0]
		if n+1 == count {
			return nil
		}

		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (src *source) appendSample(b []byte) []byte {
	at := host.Monotonic()
	if err := src.sample(); err != nil {
		return appendUnavailable(b, at, src.probe, err)
	}

	b = append(appendHead(b, at, src.probe), `,"values":{`...)
	for i, name := range src.columns {
		if i > 0 {
			b = append(b, ',')
		}

		b = append(appendJSON(b, name), ':')
		v := src.row[i]
		if v == v {
			b = strconv.AppendFloat(b, v, 'f', -1, 64)
		} else {
			b = append(b, "null"...)
		}
	}

	b = append(b, '}')
	if l, ok := src.sampler.(probe.Liner); ok {
		b = appendJSON(append(b, `,"log":`...), append([]record.LogLine{}, l.Lines()...))
	}

	return append(b, "}\n"...)
}

func appendHead(b []byte, at int64, p probe.Probe) []byte {
	return fmt.Appendf(b, `{"at_ns":%d,"probe":%q,"scope":%q`, at, p.Name, p.Scope)
}

func appendUnavailable(b []byte, at int64, p probe.Probe, reason error) []byte {
	b = appendJSON(append(appendHead(b, at, p), `,"unavailable":`...), reason.Error())
	return append(b, "}\n"...)
}

// appendJSON appends the JSON encoding of a text or of log lines. Encoding these types cannot fail.
func appendJSON(b []byte, v any) []byte {
	text, _ := json.Marshal(v)
	return append(b, text...)
}

// Printed holds the parsed output of Print.
type Printed struct {
	At       int64            // time in the first line, CLOCK_MONOTONIC of the machine
	Realtime int64            // wall clock at that time, Unix time in ns; 0 means unknown
	Samples  []record.Samples // times are CLOCK_MONOTONIC of the machine
	Log      []record.LogLine
	Cut      bool // the last line was incomplete and was dropped
	Values   int  // number of values in the text, including dropped ones
}

// LineError reports an invalid line in the output of Print.
type LineError struct {
	Line int
	Why  string
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Why) }

// Limits of the input, so that a file cannot exhaust memory.
const (
	maxLine   = 4 << 20
	maxValues = 1 << 26 // number in all tables, including missing values
)

// ReadPrinted parses the output of Print. It returns the samples for which keep returns true. If keep is
// nil, it returns all samples. Values that a sample lacks are NaN. Errors are of type *LineError, or come
// from the reader.
func ReadPrinted(r io.Reader, keep func(probe string, at int64) bool) (*Printed, error) {
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 0, 64<<10), maxLine)
	p := &printing{index: map[string]int{}, keep: keep}
	var cut *LineError // error in the last line so far; only the last line of the text may be truncated
	for number := 1; in.Scan(); number++ {
		// Replace control characters, as in an agent's messages.
		line := bytes.TrimSpace(bytes.TrimRight(check.PlainJSON(in.Bytes()), "\x00"))
		if len(line) == 0 {
			continue
		}

		if cut != nil {
			return nil, cut
		}

		err := p.line(number == 1, line)
		switch {
		case err != nil && number > 1 && !json.Valid(line): // possibly truncated, or a prompt
			cut = &LineError{number, err.Error()}
		case err != nil:
			return nil, &LineError{number, err.Error()}
		}
	}

	p.out.Cut = cut != nil
	switch err := in.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, &LineError{1 + p.lines, "it is too long"}
	case err != nil:
		return nil, err
	case p.lines == 0:
		return nil, &LineError{1, "there is nothing"}
	}

	return &p.out, nil
}

// printing holds the state of the parser.
type printing struct {
	keep   func(probe string, at int64) bool
	out    Printed
	lines  int
	index  map[string]int // index in out.Samples, by probe
	column []map[string]int
	values int
}

// printedLine holds the fields of all kinds of lines that Print writes.
type printedLine struct {
	Format      string              `json:"format"`
	Realtime    int64               `json:"realtime_ns"`
	At          int64               `json:"at_ns"`
	Probe       string              `json:"probe"`
	Scope       string              `json:"scope"`
	Values      map[string]*float64 `json:"values"`
	Unavailable string              `json:"unavailable"`
	Log         []record.LogLine    `json:"log"`
}

func (p *printing) line(first bool, text []byte) error {
	var l printedLine
	if err := json.Unmarshal(text, &l); err != nil {
		return fmt.Errorf("not what chokepoint-agent probe --json prints: %w", check.JSONWords(err))
	}

	p.lines++
	if first {
		if l.Format != printFormat {
			return fmt.Errorf("its format is %q, want %s, which chokepoint-agent probe --json prints",
				l.Format, printFormat)
		}

		p.out.At = l.At
		p.out.Realtime = l.Realtime
		return nil
	}

	if l.Probe == "" || l.Scope == "" || (l.Values == nil) == (l.Unavailable == "") {
		return errors.New("no sample of a probe")
	}

	p.out.Log = append(p.out.Log, l.Log...)
	i, known := p.index[l.Probe]
	if !known {
		i = len(p.out.Samples)
		p.index[l.Probe] = i
		p.out.Samples = append(p.out.Samples, record.Samples{Probe: l.Probe, Scope: l.Scope})
		p.column = append(p.column, map[string]int{})
	}

	s := &p.out.Samples[i]
	if l.Values == nil {
		if s.Table == nil {
			s.Unavailable = l.Unavailable
		}
		return nil
	}

	if p.out.Values += len(l.Values); p.keep != nil && !p.keep(l.Probe, l.At) {
		return nil
	}

	return p.sample(s, p.column[i], l)
}

// sample appends a sample to the table of its probe.
func (p *printing) sample(s *record.Samples, columns map[string]int, l printedLine) error {
	if s.Table == nil {
		s.Table = record.NewTable()
		s.Unavailable = ""
	}

	t := s.Table
	n := len(t.T)
	if n > 0 && l.At < t.T[n-1] {
		return fmt.Errorf("the samples of %s go back in time", l.Probe)
	}

	for name := range l.Values {
		if _, ok := columns[name]; ok {
			continue
		}

		columns[name] = len(t.Names)
		t.Names = append(t.Names, name)
		t.V = append(t.V, slices.Repeat([]float64{math.NaN()}, len(t.T)))
		p.values += len(t.T)
	}

	if p.values += len(t.Names); p.values > maxValues {
		return fmt.Errorf("more than %d values", maxValues)
	}

	t.T = append(t.T, l.At)
	for i, name := range t.Names {
		v := math.NaN()
		x := l.Values[name]
		if x != nil {
			v = *x
		}

		t.V[i] = append(t.V[i], v)
	}

	return nil
}
