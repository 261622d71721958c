// Package foreign reads the results of other programs, and writes our results in their formats. A reader
// converts the text of a file to trials; it does not access files, the network or the clock. Input is not
// trusted: its size is limited, and control characters are removed before text is shown.
package foreign

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/bzip2"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/iperf3"
)

// MaxText is the maximum decompressed size of a file, in bytes.
const MaxText = 64 << 20

// These limit the size of a JSON text. An object may take a hundred bytes of memory, and a value eight.
const (
	maxObjects = 1 << 20
	maxValues  = 8 << 20
	maxTrials  = 10_000
	maxName    = 120 // number of characters in a name or level
)

// Result holds a trial measured by another program. Times are in nanoseconds from the beginning of the
// trial.
type Result struct {
	Factors      record.Factors // conditions stated in the file
	Began        time.Time      // zero if the file does not state the time
	Traffic      *record.Traffic
	Idle, Loaded *record.Latency
	Window       record.Window
	Foreign      record.Foreign
	Caveats      []record.Caveat
	// LeftOut, if not "", describes a part of the file without a usable number. In that case, the Result does
	// not become a trial.
	LeftOut string
}

// newResult returns a result without values. Its Lacks contains the given items, and the items that all
// results of other programs lack.
func newResult(version string, lacks ...string) Result {
	return Result{
		Factors: record.Factors{},
		Foreign: record.Foreign{
			Version: version,
			Values:  map[string]float64{},
			Facts:   map[string]string{},
			Lacks:   append(lacks, unwatched...),
		},
	}
}

// format describes a file format of another program.
type format struct {
	name, file string // the format's name, and the program that writes it
	read       func(text []byte) ([]Result, error)
}

func formats() []format {
	return []format{
		{"iperf3", "iperf3 with or without --json", readIperf3},
		{"flent", ".flent.gz of flent", each(readFlent)},
		{"irtt", "irtt client -o", each(readIRTT)},
		{"crusader", "crusader export", each(readCrusader)},
		{"networkquality", "networkQuality -c", each(readNetworkQuality)},
		{"openssl", "openssl speed", readOpenSSL},
		{"wg-bench", "rows of wg-bench's table", readWGBench},
		{"ministat", "columns of numbers", readMinistat},
	}
}

// known lists the readable formats for error messages. The list includes the output of chokepoint-agent,
// which other code reads and adds to an existing run.
func known() string {
	var files []string
	for _, f := range formats() {
		files = append(files, f.file)
	}
	return strings.Join(files, ", ") + ", and what chokepoint-agent prints"
}

// Formats lists the names of the readable formats.
func Formats() (names []string) {
	for _, f := range formats() {
		names = append(names, f.name)
	}
	return names
}

// Error reports a problem in a file and the position of the problem.
type Error struct {
	Line   int   // 0 for the whole file
	Offset int64 // bytes from the start of the decompressed text
	Err    error
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Err.Error()
	}
	return fmt.Sprintf("line %d, byte %d: %v", e.Line, e.Offset, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// failedError reports that a test failed. text is the message of the program that ran the test.
type failedError struct{ text string }

func (e *failedError) Error() string { return e.text }

// Failed reports whether err means that the file was readable but contains only failed tests.
func Failed(err error) bool {
	return check.Is[*failedError](err) || check.Is[*iperf3.FailedError](err)
}

// Read parses the text of a file. name is one of Formats. If name is "", Read detects the format. Errors are
// of type *Error.
func Read(text []byte, name string) ([]Result, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, fileError("known are: "+known(), "there is nothing in it")
	}

	if name == "" {
		if name = detect(text); name == "" {
			return nil, fileError("known are: "+known()+"; --from says which it is",
				"its format is not known")
		}
	}

	for _, f := range formats() {
		if f.name != name {
			continue
		}

		results, err := f.read(text)
		if err != nil && !check.Is[*Error](err) {
			err = at(text, err)
		}

		if err == nil && len(results) == 0 {
			err = fileError("", "there is no result in it")
		}

		for i := range results {
			results[i].Foreign.Tool = cmp.Or(results[i].Foreign.Tool, f.name)
		}

		return results, err
	}

	return nil, fileError(check.Choice(name, "formats", Formats()), "format %q is not known", name)
}

// fileError returns an error that concerns the whole file.
func fileError(hint, format string, args ...any) *Error {
	return &Error{Err: check.Hinted(hint, format, args...)}
}

// Text returns the decompressed text of a file, which may be compressed with gzip or bzip2. Errors are of
// type *Error, or come from the reader.
func Text(from io.Reader) ([]byte, error) {
	buffered := bufio.NewReader(from)
	head, _ := buffered.Peek(3)
	var r io.Reader = buffered
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, &Error{Err: err}
		}

		r = z
	case string(head) == "BZh":
		r = bzip2.NewReader(buffered)
	}

	text, err := io.ReadAll(io.LimitReader(r, MaxText+1))
	switch {
	case err != nil && r != buffered:
		return nil, fileError("", "after %d decompressed bytes: %w", len(text), err)
	case err == nil && len(text) > MaxText:
		return nil, fileError("", "it holds more than %d MiB, decompressed", MaxText>>20)
	case err != nil:
		return nil, err
	}

	return decoded(text)
}

// present is true if its key exists in a JSON object, whatever the value.
type present bool

func (p *present) UnmarshalJSON([]byte) error { *p = true; return nil }

// detect returns the name of the text's format, or "" if it is unknown.
func detect(text []byte) string {
	docs, err := documents(text)
	for _, d := range docs {
		var keys map[string]present
		if json.Unmarshal(d.text, &keys) != nil {
			continue
		}

		for _, m := range marks() {
			if keys[m.key] {
				return m.format
			}
		}
	}

	if err != nil { // The text is damaged, perhaps truncated, but nested keys may still identify its format.
		for _, m := range append(marks(), mark{"raw_values", "flent"}, mark{"intervals", "iperf3"},
			mark{"test_start", "iperf3"}) {
			if bytes.Contains(text, []byte(`"`+m.key+`"`)) {
				return m.format
			}
		}
		return ""
	}

	head := text[:min(len(text), 64<<10)]
	for _, l := range linesOf(head, len(head)) {
		switch {
		case iperf3.LooksPrinted(l):
			return "iperf3"
		case strings.HasPrefix(l, "+H:"), strings.HasPrefix(l, "+F"), strings.HasPrefix(l, "Got: +"),
			strings.HasPrefix(l, "The 'numbers' are in"), strings.HasSuffix(l, "op/s"),
			strings.HasSuffix(l, "verify/s"), strings.HasPrefix(l, elapsedMessage):
			return "openssl"
		case isWGBench(l):
			return "wg-bench"
		}
	}

	if looksNumeric(head) || summary(head) != nil {
		return "ministat"
	}

	return ""
}

// mark is a top-level key that identifies a format.
type mark struct{ key, format string }

func marks() []mark {
	return []mark{{"x_values", "flent"}, {"round_trips", "irtt"}, {"stream_groups", "crusader"},
		{"dl_throughput", "networkquality"}, {"ul_throughput", "networkquality"},
		{"error_domain", "networkquality"}, {"unloaded_latency_ms", "networkquality"}, {"start", "iperf3"},
		{"event", "iperf3"}}
}

// decode parses a text that contains one JSON value.
func decode(text []byte, into any) error {
	if err := bounded(text); err != nil {
		return err
	}
	return at(text, json.Unmarshal(text, into))
}

// bounded returns an error for a text whose decoded form would take far more memory than the text.
func bounded(text []byte) error {
	if bytes.Count(text, []byte("{")) > maxObjects {
		return fileError("", "it holds more than %d objects", maxObjects)
	}

	if bytes.Count(text, []byte(",")) > maxValues || bytes.Count(text, []byte("[")) > maxObjects {
		return fileError("", "it holds more than %d values", maxValues)
	}
	return nil
}

// at adds the position in the text to err, if err contains an offset.
func at(text []byte, err error) error {
	if err == nil {
		return nil
	}

	offset := check.JSONOffset(err)
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && offset < 0 {
		offset, e.Field = wrongNumber(text, e.Field)
	}

	if offset >= 0 {
		return place(text, int(offset), check.JSONWords(err))
	}

	return &Error{Err: check.JSONWords(err)}
}

// wrongNumber finds the first value that is not a number in a field of numbers. This is necessary because
// encoding/json reports only the names of struct fields: "results" for "results.TCP upload". wrongNumber
// returns the offset after the value and the full path. If it finds no such value, it returns -1 and field.
func wrongNumber(text []byte, field string) (offset int64, path string) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	type open struct {
		list, valued bool
		key          string
	}
	var all []open // the objects and arrays that enclose the current token
	for {
		token, err := d.Token()
		if err != nil {
			return -1, field
		}

		n := len(all) - 1
		if token == json.Delim('}') || token == json.Delim(']') {
			all = all[:n]
			continue
		}

		if n >= 0 && !all[n].list {
			if all[n].valued = !all[n].valued; all[n].valued {
				all[n].key, _ = token.(string)
				continue
			}
		}

		digits, is := token.(json.Number)
		delim, opens := token.(json.Delim)
		if opens {
			all = append(all, open{list: delim == '['})
		} else if _, err := strconv.ParseFloat(string(digits), 64); token != nil && !(is && err == nil) {
			var names []string
			rest := strings.Split(field, ".")
			for _, o := range all {
				if !o.list {
					names = append(names, o.key)
				}

				if !o.list && len(rest) > 0 && o.key == rest[0] {
					rest = rest[1:]
				}
			}

			if len(rest) == 0 {
				return d.InputOffset(), name(strings.Join(names, "."))
			}
		}
	}
}

// linesOf iterates over the lines of a text. For each line, it yields the offset and the content, which is
// truncated to the given length and trimmed.
func linesOf(text []byte, most int) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		at := 0
		for line := range bytes.Lines(text) {
			if !yield(at, strings.TrimSpace(string(line[:min(len(line), most)]))) {
				return
			}

			at += len(line)
		}
	}
}

// place returns an error with the line and offset in the text.
func place(text []byte, offset int, err error) *Error {
	offset = min(max(offset, 0), len(text))
	return &Error{Line: 1 + bytes.Count(text[:offset], []byte("\n")), Offset: int64(offset), Err: err}
}

// number is a JSON number, or NaN for null.
type number float64

func (n *number) UnmarshalJSON(b []byte) error {
	v := math.NaN()
	err := error(nil)
	if string(b) != "null" {
		v, err = strconv.ParseFloat(string(b), 64)
	}

	*n = number(v)
	if err == nil {
		return nil
	}

	err = json.Unmarshal(b, &v) // returns the error to report
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		e.Offset = 0 // the offset is relative to b, not to the document
	}

	return err
}

func (n number) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(n)) || math.IsInf(float64(n), 0) {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, float64(n), 'g', -1, 64), nil
}

// words is the text of a JSON string, or the JSON of any other value.
type words string

func (w *words) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) != nil && string(b) != "null" {
		s = string(b)
	}

	*w = words(name(s))
	return nil
}

// name makes text from a file safe to print. It removes control characters, joins lines, and truncates the
// text to maxName characters.
func name(s string) string {
	s = strings.Join(strings.Fields(check.Plain(s[:min(len(s), 8*maxName)])), " ")
	r := []rune(s)
	if len(r) > maxName {
		s = string(r[:maxName-1]) + "…"
	}

	return s
}

// set sets a level in the result's cell unless the level is empty.
func (r *Result) set(f factor.Name, level string) {
	if level = name(level); level != "" {
		f.Set(r.Factors, level)
	}
}

// setNumber sets a numeric level in the result's cell unless the number is 0.
func (r *Result) setNumber(f factor.Name, n int) {
	if n != 0 {
		r.set(f, strconv.Itoa(n))
	}
}

// setLoad sets the levels of the load in the result's cell.
func (r *Result) setLoad(l record.Load) {
	r.set(factor.Protocol, l.Protocol)
	r.set(factor.Direction, l.Direction)
	r.setNumber(factor.Streams, l.Streams)
}

// lack records an item that the program does not report.
func (r *Result) lack(what string) { r.Foreign.Lacks = append(r.Foreign.Lacks, what) }

// finite reports whether v is a plausible measurement: at least 0, and not greater than most.
func finite(v, most float64) bool { return v >= 0 && v <= most }

// These are the largest plausible values, in bits or bytes per second and in seconds.
const (
	maxRate    = 1e15
	maxSeconds = 1e7
)
