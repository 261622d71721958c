package probe

import (
	"bytes"
	"errors"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// kmsgRecord holds a record of /dev/kmsg.
type kmsgRecord struct {
	severity, facility int
	sequence           uint64
	at                 int64 // time of the kernel's log clock, in ns
	text               string
}

var errKmsg = errors.New("parse kernel log record: want \"prefix,sequence,time,flags;text\"")

// parseKmsg parses a record of the form "priority,sequence,microseconds,flags[,…];text". It ignores the
// continuation lines (Documentation/ABI/testing/dev-kmsg). The kernel has already escaped control
// characters.
func parseKmsg(b []byte) (kmsgRecord, error) {
	head, text, ok := bytes.Cut(b, []byte(";"))
	fields := bytes.Split(head, []byte(","))
	if !ok || len(fields) < 3 {
		return kmsgRecord{}, errKmsg
	}

	priority, ok1 := number(fields[0])
	sequence, ok2 := number(fields[1])
	micros, ok3 := number(fields[2])
	if !ok1 || !ok2 || !ok3 || micros > 1<<53 || priority > 1<<16 {
		return kmsgRecord{}, errKmsg
	}

	text, _ = line(text)
	return kmsgRecord{int(priority & 7), int(priority >> 3), sequence, int64(micros) * 1000,
		string(text)}, nil
}

// hardwareAddress matches six bytes in hexadecimal, joined by colons.
var hardwareAddress = check.Pattern(`\b(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}\b`)

// redactLog replaces hardware addresses, because they identify a machine and reports may be published.
func redactLog(text string) string {
	if strings.Count(text, ":") < 5 { // true of most lines, and faster than a search
		return text
	}
	return hardwareAddress().ReplaceAllLiteralString(text, "xx:xx:xx:xx:xx:xx")
}

// Limits of the lines that are stored. A kernel in trouble may log thousands of lines per second, and the
// first ones show the cause.
const (
	logLinesPerSample = 50
	logLinesKept      = 1000
)

func kernellog(root Root) Probe {
	return Probe{
		Name:  "kernellog",
		Scope: record.ScopeHost,
		Slow:  true,
		Stems: []record.Metric{
			counter("lines", "count", "lines that the kernel logged since observation began"),
			counter("warnings", "count", "lines with severity 4 (warning) or worse"),
			counter("errors", "count", "lines with severity 3 (error) or worse"),
			counter("unkept", "count", "lines that were not kept: too many at once, or overwritten "+
				"before they were read"),
		},
		Source: func(o Options) (Sampler, error) {
			if o.NoLog {
				return nil, absent("the peer keeps its kernel's log to itself; chokepoint peer " +
					"--kernel-log shows it")
			}
			return openKernelLog(root.dev("kmsg"))
		},
	}
}

// kernelLogSampler reads records as they arrive. The kernel takes the time of a record from a clock that
// drifts from CLOCK_MONOTONIC. The time of a line is therefore limited to the interval between the samples
// before and after it. The field now is a function that returns the time for a sample.
type kernelLogSampler struct {
	log interface {
		next(buf []byte) (n int, err error) // returns errNoRecord at the end of the log
		Close() error
	}
	now      func() int64
	buf      []byte
	since    int64
	sequence uint64
	counts   [4]float64 // number of records, in the order of the metrics
	lines    []record.LogLine
}

var errNoRecord = errors.New("no kernel log record now")

func (*kernelLogSampler) Columns() []string { return []string{"lines", "warnings", "errors", "unkept"} }

func (s *kernelLogSampler) Sample(dst []float64) error {
	now := s.now()
	for taken := 0; ; {
		n, err := s.log.next(s.buf)
		if errors.Is(err, errNoRecord) {
			break
		}

		if err != nil {
			return err
		}

		if r, err := parseKmsg(s.buf[:n]); err == nil && s.take(r, now, taken) {
			taken++
		}
	}

	s.since = now
	copy(dst, s.counts[:])
	return nil
}

// take counts a record, and stores its line if the limits permit. It ignores records that programs wrote
// to /dev/kmsg (facility other than 0).
func (s *kernelLogSampler) take(r kmsgRecord, now int64, taken int) bool {
	if s.sequence != 0 && r.sequence > s.sequence+1 {
		s.counts[3] += float64(r.sequence - s.sequence - 1)
	}

	s.sequence = r.sequence
	if r.facility != 0 {
		return false
	}

	s.counts[0]++
	if r.severity <= 4 {
		s.counts[1]++
	}

	if r.severity <= 3 {
		s.counts[2]++
	}

	if taken >= logLinesPerSample || len(s.lines) >= logLinesKept {
		s.counts[3]++
		return false
	}

	s.lines = append(s.lines, record.LogLine{
		At:       min(max(r.at, s.since), now),
		Severity: r.severity,
		Text:     redactLog(r.text),
	})
	return true
}

// Lines returns the lines stored since the previous call of Lines.
func (s *kernelLogSampler) Lines() []record.LogLine {
	lines := s.lines
	s.lines = nil
	return lines
}

func (s *kernelLogSampler) Close() error { return s.log.Close() }
