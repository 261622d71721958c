package iperf3

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Printed holds a test from iperf3's output without --json: the test's position in the text, and its
// result or an error.
type Printed struct {
	From, To int
	File     *File
	Err      error
}

// ReadPrinted parses the tests in iperf3's output without --json. It ignores other text. Rates in the
// output have three digits, and ReadPrinted computes bytes from them.
func ReadPrinted(text []byte) []Printed {
	var p printedReader
	at := 0
	for line := range bytes.Lines(text) {
		end := at + len(line)
		p.line(string(bytes.TrimSpace(line[:min(len(line), maxPrintedLine)])), at)
		if p.test != nil {
			p.test.to = end
		}

		at = end
	}

	p.finish()
	return p.out
}

// LooksPrinted reports whether a line looks like iperf3's output without --json: a row of a table, or an
// error.
func LooksPrinted(line string) bool {
	return rowLine().MatchString(line) || errorLine().MatchString(line)
}

// maxPrintedLine limits the length of a line, in bytes.
const maxPrintedLine = 4096

// Lines of iperf3's output (iperf_locale.c). A line may begin with a title, a time from --timestamps, or
// another program's prefix.
var (
	rowLine = check.Pattern(`\[ *([0-9]+|SUM)\](?:\[([TR])X-[CS]\])? +([0-9]+\.[0-9]+) *- *([0-9]+\.[0-9]+) +` +
		`sec +(\S+) +([KMGT]?)Bytes +(\S+) +([KMGT]?)(bits|Bytes)/sec *(.*)$`)
	headLine    = check.Pattern(`\[ *ID\](?:\[Role\])? +Interval +Transfer +`)
	connectLine = check.Pattern(`^(?:\w{3} \w{3} +[0-9]+ [0-9:]{8} [0-9]{4} )?(?:(.*):  )?.{0,40}?` +
		`Connecting to host `)
	acceptLine  = check.Pattern(`Accepted connection from `)
	reverseLine = check.Pattern(`Reverse mode, remote host .* is sending`)
	socketLine  = check.Pattern(`\[ *([0-9]+)\] local (\S+) port ([0-9]+) connected (?:to|with) (\S+) port ([0-9]+)`)
	versionLine = check.Pattern(`^(iperf 3\.\S+)`)
	timeLine    = check.Pattern(`^Time: (.*)`)
	rateLine    = check.Pattern(`Target Bitrate: ([0-9]+)`)
	mssLine     = check.Pattern(`TCP MSS: ([0-9]+)`)
	startLine   = check.Pattern(`Starting Test: protocol: (\w+), [0-9]+ streams, ([0-9]+) byte blocks, ` +
		`omitting ([0-9]+) seconds, .*, tos ([0-9]+)`)
	congestionLine = check.Pattern(`snd_tcp_congestion (\S+)`)
	errorLine      = check.Pattern(`^(?:.*:  )?iperf3: (.+)`)
)

// printedRow holds a row of a table: the counts of a socket, without bytes. The number of the socket is 0
// for [SUM].
type printedRow struct {
	iperf3Counts
	role   string  // "T" or "R" with --bidir
	rate   float64 // bit/s, NaN if unknown
	udp    bool
	sum    bool
	iperf2 bool
	side   string // for a total: "sender", "receiver", or "" for UDP before iperf3 3.2
}

// printedTest holds the lines of a test that is being read.
type printedTest struct {
	from, to       int
	report         iperf3Report
	client, server bool // which end printed the text, if the text includes its first line
	reverse        bool
	datagrams      bool // the column after the rate contains datagrams instead of retransmits
	totals         bool // the following rows are totals of the test
	rows           []printedRow
	ends           []printedRow
	began          time.Time
	failure        string
	iperf2         bool // times do not have two decimals, as in output of iperf 2
}

type printedReader struct {
	out    []Printed
	test   *printedTest
	far    bool // lines are from the server's output of --get-server-output
	before iperf3Report
	time   time.Time
}

// begin ends the previous test and starts the next one.
func (p *printedReader) begin(at int) *printedTest {
	p.finish()
	p.test = &printedTest{from: at, report: p.before, began: p.time}
	p.before = iperf3Report{}
	p.time = time.Time{}
	p.far = false
	return p.test
}

func (p *printedReader) finish() {
	t := p.test
	if t != nil {
		file, err := t.file()
		p.out = append(p.out, Printed{From: t.from, To: t.to, File: file, Err: err})
	}

	p.test = nil
}

func (p *printedReader) line(l string, at int) {
	row, isRow := parseRow(l)
	switch {
	case p.far && !strings.HasSuffix(l, "iperf Done.") && !connectLine().MatchString(l):
		return
	case connectLine().MatchString(l):
		t := p.begin(at)
		t.client, t.report.Title = true, connectLine().FindStringSubmatch(l)[1]
	case acceptLine().MatchString(l):
		p.begin(at).server = true
	case strings.HasSuffix(l, "Server output:"):
		p.far = true
	case strings.HasSuffix(l, "iperf Done."), strings.Contains(l, "Server listening on "):
		p.finish()
		p.far = false
	case errorLine().MatchString(l):
		p.failed(errorLine().FindStringSubmatch(l)[1], at)
	case headLine().MatchString(l):
		if p.test == nil || len(p.test.ends) > 0 {
			p.begin(at)
		}

		p.test.datagrams = strings.Contains(l, "Datagrams")
		p.test.totals = p.test.totals || len(p.test.rows) > 0
	case isRow:
		p.row(row, at)
	default:
		p.detail(l)
	}
}

func (p *printedReader) failed(words string, at int) {
	switch {
	case p.test != nil:
		p.test.failure = words
		p.finish()
	case !strings.HasPrefix(words, "interrupt - "): // a server interrupted between tests has no result
		p.begin(at).failure = words
		p.finish()
	}
}

// row adds a row to the current test. If the row's table starts again, row starts a new test.
func (p *printedReader) row(r printedRow, at int) {
	t := p.test
	if t == nil || len(t.ends) > 0 && r.side == "" && !(t.totals && r.udp) {
		t = p.begin(at)
	}

	if r.Packets != nil && !r.udp && !t.datagrams {
		r.Retransmits = r.Packets
		r.Packets = nil
	}

	t.iperf2 = t.iperf2 || r.iperf2
	if t.totals || r.side != "" {
		t.ends = append(t.ends, r)
	} else {
		t.rows = append(t.rows, r)
	}
}

// detail parses lines outside of tables. Most of them require --verbose.
func (p *printedReader) detail(l string) {
	r := &p.before
	if p.test != nil {
		r = &p.test.report
	}

	var m []string
	is := func(line func() *regexp.Regexp) bool {
		m = line().FindStringSubmatch(l)
		return m != nil
	}
	whole := func(i int) int {
		n, _ := strconv.Atoi(m[i])
		return n
	}
	start := &r.Start.TestStart
	switch {
	case is(socketLine):
		r.Start.Connected = append(r.Start.Connected, iperf3Socket{
			Socket:     whole(1),
			LocalHost:  m[2],
			LocalPort:  whole(3),
			RemoteHost: m[4],
			RemotePort: whole(5),
		})
	case is(startLine):
		start.Protocol = m[1]
		start.Block = whole(2)
		start.Omit = float64(whole(3))
		start.TOS = whole(4)
	case p.test == nil && is(versionLine):
		r.Start.Version = m[1]
	case p.test != nil && is(reverseLine):
		p.test.reverse = true
	case is(mssLine):
		r.Start.MSS = whole(1)
	case is(rateLine):
		start.Rate, _ = strconv.ParseFloat(m[1], 64)
	case is(congestionLine):
		r.End.Congestion = m[1]
	case is(timeLine):
		began, err := time.Parse(time.RFC1123, m[1])
		switch {
		case err != nil:
		case p.test != nil:
			p.test.began = began.UTC()
		default:
			p.time = began.UTC()
		}
	}
}

// parseRow parses a row of a table.
func parseRow(l string) (r printedRow, ok bool) {
	m := rowLine().FindStringSubmatch(l)
	if m == nil {
		return r, false
	}

	r.Socket, _ = strconv.Atoi(m[1])
	r.sum = m[1] == "SUM"
	r.iperf2 = len(m[3])-strings.IndexByte(m[3], '.') != len(".00")
	r.role = m[2]
	r.Start, r.End = printedNumber(m[3]), printedNumber(m[4])
	r.rate = printedNumber(m[7]) * math.Pow(1000, float64(strings.Index(" KMGT", m[8])))
	if m[9] == "Bytes" {
		r.rate = printedNumber(m[7]) * 8 * math.Pow(1024, float64(strings.Index(" KMGT", m[8])))
	}

	fields := strings.Fields(m[10])
	n := len(fields) - 1
	if n >= 0 {
		switch fields[n] {
		case "sender", "receiver":
			r.side = fields[n]
			fields = fields[:n]
		case "(omitted)":
			r.Omitted = true
			fields = fields[:n]
		}
	}

	switch {
	case len(fields) > 2 && fields[1] == "ms": // "ms" is the unit of the jitter
		lost, packets, _ := strings.Cut(fields[2], "/")
		r.udp, r.Lost, r.Packets = true, count(lost), count(packets)
	case len(fields) > 2 && strings.HasSuffix(fields[2], "Bytes"):
		r.Retransmits = count(fields[0])
		c := count(fields[1])
		if c != nil {
			scale := max(strings.IndexByte(" KMGT", fields[2][0]), 0)
			r.Cwnd = new(*c * math.Pow(1024, float64(scale)))
		}
	case len(fields) == 1:
		r.Packets = count(fields[0]) // datagrams or retransmits, depending on the table's heading
	}

	return r, true
}

// printedNumber parses a number. It returns NaN for other text, such as C's "-nan".
func printedNumber(s string) float64 {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(v, 0) {
		return math.NaN()
	}
	return v
}

// count parses a count. It returns nil for an unknown count: an absent one, "Unknown", or -1.
func count(s string) *float64 {
	v := printedNumber(s)
	if v >= 0 {
		return &v
	}
	return nil
}

// Errors for text without a complete result.
var (
	errPrinted = check.WithHint(errors.New("iperf3's last lines, those of sender and receiver, are not "+
		"all in it"),
		"import all that iperf3 printed, or run it again with --json")
	errIperf2 = check.WithHint(errors.New("it is the output of iperf 2, which is not read"),
		"measure with iperf3 --json")
)

// file converts the test to a report like that of --json, and returns the File for that report.
func (t *printedTest) file() (*File, error) {
	switch {
	case t.failure != "":
		return nil, fmt.Errorf("iperf3: %s", t.failure)
	case t.iperf2:
		return nil, errIperf2
	}

	var missing []factor.Name
	ends, sums := split(t.ends)
	rows, _ := split(t.rows)
	switch {
	case len(ends) == 0 && len(sums) == 0:
		return nil, errPrinted
	case len(ends) == 0: // the text has only [SUM] lines
		ends, missing = sums, append(missing, factor.Streams)
		_, rows = split(t.rows)
	default:
		if err := checkSums(ends, sums); err != nil {
			return nil, err
		}
	}

	sends, known := t.sends(rows, ends)
	if !known {
		missing = append(missing, factor.Direction)
	}

	r := &t.report
	if len(r.Start.Connected) == 0 {
		missing = append(missing, factor.IP)
	}

	if t.server {
		r.Start.Accepted = &struct{}{}
	}

	start := &r.Start.TestStart
	start.Protocol = cmp.Or(start.Protocol, "TCP")
	if slices.ContainsFunc(ends, func(row printedRow) bool { return row.udp }) {
		start.Protocol = "UDP"
	}

	for _, row := range rows {
		c := row.iperf3Counts
		c.Bytes = row.bytes(row.End - row.Start)
		r.Intervals = append(r.Intervals, iperf3Interval{[]iperf3Counts{c}})
		if row.Omitted {
			start.Omit = max(start.Omit, row.End)
		} else if start.Interval == 0 {
			start.Interval = math.Round((row.End-row.Start)*10) / 10
		}
	}

	for _, row := range ends {
		start.Duration = max(start.Duration, math.Round(row.End))
	}

	if err := t.addStreams(ends, sends); err != nil {
		return nil, err
	}

	file, err := r.file()
	if err != nil {
		return nil, err
	}

	file.Began = t.began
	file.Printed = true
	file.Missing = missing
	return file, nil
}

// split separates the rows of streams from [SUM] rows.
func split(rows []printedRow) (streams, sums []printedRow) {
	for _, row := range rows {
		if row.sum {
			sums = append(sums, row)
		} else {
			streams = append(streams, row)
		}
	}
	return streams, sums
}

// checkSums returns an error if the sum of the streams differs from [SUM] by more than rounding, because
// streams are then missing.
func checkSums(ends, sums []printedRow) error {
	for _, sum := range sums {
		total := 0.0
		for _, row := range ends {
			if row.role == sum.role && row.side == sum.side {
				total += row.rate
			}
		}

		if math.Abs(total-sum.rate) > .02*sum.rate+1 {
			return check.WithHint(fmt.Errorf("its streams make %s, and its [SUM] is %s: streams are missing",
				unit.Bitrate(total), unit.Bitrate(sum.rate)), "import all that iperf3 printed")
		}
	}
	return nil
}

// sends reports whether the end that printed the text sends. It is not needed with --bidir, because each row
// then has a role. known is false if the text does not show which end sends.
func (t *printedTest) sends(rows, ends []printedRow) (sends, known bool) {
	if ends[0].role != "" {
		return true, true
	}

	sides := map[string]bool{}
	for _, row := range ends {
		sides[row.side] = true
	}

	counted := slices.ContainsFunc(rows, func(row printedRow) bool { return row.Retransmits != nil })
	switch {
	case t.server:
		return counted || !sides["receiver"], true
	case t.client:
		return !t.reverse, true
	case counted && sides["sender"] && sides["receiver"]: // because only a client prints both totals
		return true, true
	}

	return true, false
}

// addStreams adds the totals of each stream to the report.
func (t *printedTest) addStreams(ends []printedRow, sends bool) error {
	r := &t.report
	both := false
	for i, row := range ends {
		first := slices.IndexFunc(ends, row.sameStream)
		if first < i {
			continue
		}

		var side [2]*iperf3Counts // sender, receiver
		for _, other := range ends {
			if !row.sameStream(other) {
				continue
			}

			c := other.iperf3Counts
			c.Bytes = other.bytes(float64(iperf3Side{r, c.Socket}.length(&c)) / 1e9)
			c.Sender = new(sends)
			if other.role != "" {
				both, c.Sender = true, new(other.role == "T")
			}

			switch {
			case other.side == "receiver":
				side[1] = &c
			case other.side == "sender":
				side[0] = &c
			default: // UDP before iperf3 3.2, with only one line per stream
				side[0], side[1] = &c, &c
			}
		}

		if t.server { // a server has only its own counts
			zero := 0.0
			for k, c := range side {
				if c == nil && side[1-k] != nil {
					other := *side[1-k]
					other.Bytes, other.Retransmits = &zero, nil
					side[k] = &other
				}
			}
		}

		if side[0] == nil || side[1] == nil {
			return errPrinted
		}

		total := iperf3Totals{Sender: side[0], Receiver: side[1]}
		if r.Start.TestStart.Protocol == "UDP" {
			total.UDP = new(*side[0])
			total.UDP.Lost = side[1].Lost
		}

		r.End.Streams = append(r.End.Streams, total)
	}

	s := &r.Start.TestStart
	s.Streams = len(r.End.Streams)
	if both {
		s.Streams = s.Streams / 2
		s.Bidir = 1
	} else if sends == t.server {
		s.Reverse = 1
	}

	return nil
}

func (row printedRow) sameStream(other printedRow) bool {
	return row.Socket == other.Socket && row.role == other.role
}

// bytes returns the number of bytes sent at the row's rate in the given number of seconds, or nil if the
// rate is unknown.
func (row printedRow) bytes(seconds float64) *float64 {
	if math.IsNaN(row.rate) {
		return nil
	}
	return new(row.rate / 8 * seconds)
}
