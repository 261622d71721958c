package watch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/trial/probe"
)

// printFormat is the version of Print's lines.
const printFormat = "chokepoint-probe/1"

// Print samples the probes every interval, count times or, with 0, until ctx ends, and writes
// line-delimited JSON. The first line is {"format", "at_ns", "realtime_ns"}, the latter by the machine's
// wall clock; each further one is a sample {"at_ns", "probe", "scope", "values"}, with null for a value
// that is not there now, or {"at_ns", "probe", "scope", "unavailable"}, once per probe that this machine
// lacks.
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
	b := append([]byte(nil), `{"format":"`+printFormat+`","at_ns":`...)
	b = append(strconv.AppendInt(b, host.Monotonic(), 10), `,"realtime_ns":`...)
	b = append(strconv.AppendInt(b, time.Now().UnixNano(), 10), "}\n"...)
	for _, p := range list {
		s := &source{probe: p}
		sampler, err := p.Open(ctx, host.Local())
		if err != nil {
			b = appendUnavailable(b, host.Monotonic(), p, err.Error())
			continue
		}
		s.sampler = sampler
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
	err := src.sampler.Sample(src.row)
	for range 2 {
		if !errors.Is(err, probe.ErrColumns) {
			break
		}
		src.describe()
		err = src.sampler.Sample(src.row)
	}
	if err != nil {
		return appendUnavailable(b, at, src.probe, err.Error())
	}
	b = appendHead(b, at, src.probe)
	b = append(b, `,"values":{`...)
	for i, name := range src.columns {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendText(b, name), ':')
		if v := src.row[i]; v == v {
			b = strconv.AppendFloat(b, v, 'f', -1, 64)
		} else {
			b = append(b, "null"...)
		}
	}
	b = append(b, '}')
	if l, ok := src.sampler.(probe.Liner); ok {
		b = append(b, `,"log":[`...)
		for i, line := range l.Lines() {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(append(b, `{"at_ns":`...), line.At, 10)
			b = strconv.AppendInt(append(b, `,"severity":`...), int64(line.Severity), 10)
			b = append(appendText(append(b, `,"text":`...), line.Text), '}')
		}
		b = append(b, ']')
	}
	return append(b, "}\n"...)
}

func appendHead(b []byte, at int64, p probe.Probe) []byte {
	b = strconv.AppendInt(append(b, `{"at_ns":`...), at, 10)
	b = appendText(append(b, `,"probe":`...), p.Name())
	return appendText(append(b, `,"scope":`...), probe.Scope(p))
}

func appendUnavailable(b []byte, at int64, p probe.Probe, reason string) []byte {
	b = appendText(append(appendHead(b, at, p), `,"unavailable":`...), reason)
	return append(b, "}\n"...)
}

func appendText(b []byte, s string) []byte {
	quoted, err := json.Marshal(s)
	if err != nil {
		return append(b, `""`...) // cannot happen: a string always encodes
	}
	return append(b, quoted...)
}
