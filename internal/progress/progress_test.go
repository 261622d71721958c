package progress

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(seconds float64) time.Time {
	return began.Add(time.Duration(seconds * float64(time.Second)))
}

func cell(tunnel, streams string) record.Factors {
	return record.Factors{
		"tunnel": tunnel, "streams": streams, "protocol": "tcp", "direction": "up",
		"topology": "forward", "nat": "off", "ip": "4",
	}
}

// words returns the factors of a usual plan.
var words = &factor.Catalogue{Factors: factor.Base(factor.Options{
	Shapes:      []factor.Shape{{Name: "forward"}},
	Tunnels:     []string{factor.NoTunnel},
	Engines:     []string{factor.Native},
	Congestions: []string{"cubic"},
})}

// story returns a run of four rows: one good, one failed, one under way.
func story() []record.Event {
	return []record.Event{
		{Time: at(0), Event: RunStarted, Run: "r1", Text: "quick", Total: 4, Left: 40 * time.Second},
		{Time: at(0.5), Event: Lab, Text: "forward: nodes client, router, server"},
		{Time: at(1), Event: TrialStarted, Row: "b1-r01", Index: 1, Cell: cell("none", "1")},
		{Time: at(1), Event: Phase, Phase: record.PhaseWindow},
		{Time: at(2), Event: Rate, Rate: 900e6, Cores: []float64{0.5, 0.97}},
		{
			Time:   at(3),
			Event:  TrialEnded,
			Row:    "b1-r01",
			Index:  1,
			Cell:   cell("none", "1"),
			Status: "ok",
			Rate:   912e6,
			RTT:    1.25e6,
			Left:   30 * time.Second,
		},
		{Time: at(4), Event: TrialStarted, Row: "b1-r02", Index: 2, Cell: cell("wireguard", "4")},
		{Time: at(5), Event: Warning, Text: "clock source is not\n stable\x1b[2J"},
		{
			Time:   at(6),
			Event:  TrialEnded,
			Row:    "b1-r02",
			Index:  2,
			Cell:   cell("wireguard", "4"),
			Status: "failed",
			Rate:   5,
			Text:   "tunnel counters did not move",
			Left:   20 * time.Second,
		},
		{Time: at(7), Event: TrialStarted, Row: "b2-r01", Index: 3, Cell: cell("none", "1")},
		{Time: at(8), Event: Phase, Phase: record.PhaseWarmup},
		{Time: at(9), Event: Rate, Rate: 450e6, Cores: []float64{0.5, 0.97}},
		{Time: at(9.5), Event: Rate, Rate: 900e6},
		{Time: at(9.5), Event: Latency, RTT: 700e3, Text: "loaded"},
		{Time: at(9.6), Event: Latency, RTT: 850e3, Text: "loaded"},
	}
}

// give sends a sink some events and closes it.
func give(t *testing.T, s Sink, events ...record.Event) {
	t.Helper()
	for _, e := range events {
		s.Event(e)
	}

	if err := s.Close(); err != nil {
		t.Fatalf("Close: got %v, want nil", err)
	}
}

// onScreen returns a live view on a screen.
func onScreen(width, height int, k look, now func() time.Time) (*screen, *live) {
	scr := newScreen(width, height)
	return scr, newLive(scr, words, k, func() (int, int) { return width, height }, now)
}

func TestPlain(t *testing.T) {
	var out bytes.Buffer
	s := Plain(&out, words)
	give(t, s, append(story(), record.Event{
		Time:   at(11),
		Event:  RunEnded,
		Status: record.RunInterrupted,
		Text:   "interrupted by the user",
	})...)
	s.Event(record.Event{Event: Warning, Text: "late"})
	want := `run r1, plan quick, 4 trials, about 40s
lab: forward: nodes client, router, server
[1/4] no tunnel TCP IPv4 1 stream up: 912 Mbit/s, rtt 1.25 ms, 30s left
warning: clock source is not  stable[2J
[2/4] wireguard TCP IPv4 4 streams up: failed: tunnel counters did not move, 20s left
run r1 interrupted: interrupted by the user
`
	d := cmp.Diff(out.String(), want)
	if d != "" {
		t.Errorf("plain lines (-got +want):\n%s", d)
	}
}

func TestJSONWritesOneEventPerLine(t *testing.T) {
	var out bytes.Buffer
	give(t, JSON(&out), story()...)
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != len(story()) {
		t.Fatalf("lines: got %d, want %d", len(lines), len(story()))
	}

	for i, l := range lines {
		var got record.Event
		if err := json.Unmarshal([]byte(l), &got); err != nil {
			t.Fatalf("line %d: got error %v, want an event", i, err)
		}

		d := cmp.Diff(got, story()[i])
		if d != "" {
			t.Errorf("event %d (-got +want):\n%s", i, d)
		}
	}
}

type brokenWriter struct{ err error }

func (b brokenWriter) Write([]byte) (int, error) { return 0, b.err }

// The live view keeps the newest candidate that a trial named, with the trial that it is of.
func TestLiveNamesACandidate(t *testing.T) {
	v := view{names: labeller{factors: words}}
	named := func(events ...record.Event) string {
		for _, e := range events {
			v.take(e)
		}

		text := ""
		for _, s := range v.causeLine() {
			text += s.text
		}

		return text
	}
	if got := named(story()...); got != "" {
		t.Errorf("got %q before any trial named a cause", got)
	}

	ended := record.Event{
		Time:       at(10),
		Event:      TrialEnded,
		Index:      3,
		Cell:       cell("none", "1"),
		Status:     "ok",
		Rate:       9e8,
		Cause:      "core 0 is full\x1b[2J",
		Confidence: .87,
	}
	silent := record.Event{Time: at(12), Event: TrialEnded, Index: 4, Cell: cell("none", "4"), Status: "ok"}
	const want = "limit    core 0 is full[2J 87 % sure, "
	if got := named(ended, silent); !strings.HasPrefix(got, want) || !strings.Contains(got, "1 stream") {
		t.Errorf("got %q, want %q and the cell", got, want)
	}
}

func TestCloseReportsTheFirstWriteError(t *testing.T) {
	broken := errors.New("pipe is gone")
	size := func() (int, int) { return 80, 24 }
	l := newLive(brokenWriter{broken}, words, look{}, size, time.Now)
	l.start(nil, func() {})
	sinks := map[string]Sink{"plain": Plain(brokenWriter{broken}, nil), "json": JSON(brokenWriter{broken}),
		"live": l}
	for name, s := range sinks {
		t.Run(name, func(t *testing.T) {
			s.Event(story()[0])
			s.Event(record.Event{Event: Warning, Text: "x"})
			for i := range 2 {
				if err := s.Close(); !errors.Is(err, broken) {
					t.Errorf("Close %d: got %v, want %v", i, err, broken)
				}
			}
		})
	}
}

func TestLiveFrames(t *testing.T) {
	tests := []struct {
		name string
		look look
		w, h int
		want string
	}{
		{"wide", look{unicode: true}, 100, 24, `warning: clock source is not  stable[2J
failed: wireguard TCP IPv4 4 streams up: tunnel counters did not move
r1 · quick · block 2 · 3/4 █████░░░░░ · 16s left
now      no tunnel TCP IPv4 1 stream up · warm-up 2s · before: 912 Mbit/s
rate     900 Mbit/s     ▅█
cores    0 ███░░░  50 %  1 ██████  97 %
latency  850 µs loaded
warnings 1  last: clock source is not  stable[2J
done     failed  wireguard TCP IPv4 4 streams up: tunnel counters did not move
         ok      no tunnel TCP IPv4 1 stream up  912 Mbit/s, rtt 1.25 ms
`},
		{"narrow, ASCII", look{}, 40, 24, `warning: clock source is not  stable[2J
failed: wireguard TCP IPv4 4 streams up:
 tunnel counters did not move
r1, quick, block 2, 3/4 #####....., 16~
now      no tunnel TCP IPv4 1 stream u~
rate     900 Mbit/s     +@
cores    0 ###...  50 %  1 ######  97 %
latency  850 us loaded
warnings 1  last: clock source is not ~
done     failed  wireguard TCP IPv4 4 ~
         ok      no tunnel TCP IPv4 1 ~
`},
		{"low", look{unicode: true, colour: true}, 60, 4, `warning: clock source is not  stable[2J
failed: wireguard TCP IPv4 4 streams up: tunnel counters did
 not move
r1 · quick · block 2 · 3/4 █████░░░░░ · 16s left
now      no tunnel TCP IPv4 1 stream up · warm-up 2s · bef…
rate     900 Mbit/s     ▅█
`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			now := at(0)
			scr, s := onScreen(tt.w, tt.h, tt.look, func() time.Time { return now })
			for _, e := range story() {
				now = e.Time
				s.Event(e)
				s.paint(keepPicture)
			}

			now = at(10)
			s.paint(keepPicture)
			d := cmp.Diff(scr.text(), tt.want)
			if d != "" {
				t.Errorf("screen (-got +want):\n%s", d)
			}

			if len(scr.faults) > 0 {
				t.Errorf("terminal faults: got %q, want none", scr.faults)
			}

			if scr.colours != tt.look.colour {
				t.Errorf("colours used: got %v, want %v", scr.colours, tt.look.colour)
			}

			writes := scr.writes
			s.paint(keepPicture)
			if scr.writes != writes {
				t.Error("an unchanged picture was written again")
			}
		})
	}
}

func TestLiveLeavesOnlyWhatMustStay(t *testing.T) {
	scr, s := onScreen(100, 24, look{unicode: true}, func() time.Time { return at(72) })
	ticks := make(chan time.Time)
	stopped := false
	s.start(ticks, func() { stopped = true })
	for _, e := range story() {
		s.Event(e)
		ticks <- e.Time
	}

	give(t, s, record.Event{Time: at(72), Event: RunEnded, Status: record.RunDone})
	want := `warning: clock source is not  stable[2J
failed: wireguard TCP IPv4 4 streams up: tunnel counters did not move
r1 done: 2 of 4 trials in 1m12s
`
	d := cmp.Diff(scr.text(), want)
	if d != "" {
		t.Errorf("screen (-got +want):\n%s", d)
	}

	if scr.col != 0 || !stopped {
		t.Errorf("after Close: got column %d, ticker stopped %v, want 0, true", scr.col, stopped)
	}
}

func TestLiveStepsAsideForAHuman(t *testing.T) {
	scr, s := onScreen(80, 24, look{}, func() time.Time { return at(1) })
	s.Event(story()[0])
	s.paint(keepPicture)
	s.Event(record.Event{Time: at(1), Event: Step, Text: "press reset, then Enter"})
	if got, want := scr.text(), "\n"; got != want {
		t.Fatalf("screen before the prompt: got %q, want %q", got, want)
	}

	for _, r := range "press reset, then Enter\n" { // the prompt, and the echo of Enter
		scr.put(r)
	}

	s.paint(keepPicture)
	s.Event(story()[2])
	s.paint(keepPicture)
	if got, want := scr.text(), "press reset, then Enter\nr1, quick"; !strings.HasPrefix(got, want) {
		t.Errorf("screen afterwards: got %q, want prefix %q", got, want)
	}
}

func TestLiveAfterTheTerminalBecameNarrower(t *testing.T) {
	got, want := rewind([]int{79, 10, 0}, 40), "\r\x1b[4A"
	if got != want {
		t.Errorf("rewind: got %q, want %q", got, want)
	}
}

func TestLiveOffATerminalIsPlain(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	give(t, Live(f, nil), story()[0])
	got, err := os.ReadFile(f.Name())
	want := "run r1, plan quick, 4 trials, about 40s\n"
	if err != nil || string(got) != want {
		t.Errorf("file: got %q, %v, want %q", got, err, want)
	}
}

func TestEventsFromManyGoroutines(t *testing.T) {
	scr, s := onScreen(80, 24, look{}, time.Now)
	ticks := make(chan time.Time)
	s.start(ticks, func() {})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				s.Event(record.Event{Time: time.Now(), Event: Warning, Text: "w", Run: "r"})
			}
		})
	}

	ticks <- time.Now()
	wg.Wait()
	give(t, s)
	got := strings.Count(scr.text(), "warning: w\n")
	if got != 200 {
		t.Errorf("warnings shown: got %d, want 200", got)
	}
}

func TestTimeLeftWithoutAnEstimate(t *testing.T) {
	var v view
	for _, e := range story()[:6] {
		e.Left = 0
		v.take(e)
	}

	got, want := v.left(at(3)), 9*time.Second
	if got != want {
		t.Errorf("left: got %v, want %v: three more at the pace of the first", got, want)
	}
}

func TestManyCoresShareOneLine(t *testing.T) {
	v := view{cores: make([]float64, 16)}
	v.cores[9] = 1
	text, _ := look{unicode: true, width: 80}.draw(v.coreLine(look{unicode: true, width: 80}))
	want := "cores    ▁▁▁▁▁▁▁▁▁█▁▁▁▁▁▁ busiest 9: 100 %"
	if text != want {
		t.Errorf("cores: got %q, want %q", text, want)
	}
}

// TestADesignThatTheLabHasChanged: cells are named by the changed design.
func TestADesignThatTheLabHasChanged(t *testing.T) {
	design := func(cells ...record.Factors) json.RawMessage {
		data, err := json.Marshal(record.Design{Cells: cells})
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	one := record.Factors{"streams": "1"}
	four := record.Factors{"streams": "4"}
	v := &view{names: labeller{factors: words}}
	v.take(record.Event{
		Event: RunStarted,
		Data: design(factor.NAT.With(one, "off"),
			factor.NAT.With(four, "masquerade")),
	})
	v.take(record.Event{Event: Phase, Phase: "plan", Data: design(one, four)})
	v.take(record.Event{Event: Phase, Phase: "set-up"})
	if v.names.vary["nat"] || !v.names.vary["streams"] {
		t.Errorf("varies: got %v, want streams alone", v.names.vary)
	}
}

func TestLabels(t *testing.T) {
	udp := record.Factors{"tunnel": "none", "protocol": "udp", "streams": "1", "direction": "up",
		"packet_size": "64", "rate": "flat", "nat": "off"}
	tcp := record.Factors{"tunnel": "wireguard", "protocol": "tcp", "streams": "4", "direction": "up",
		"mtu": "1420", "congestion": "cubic", "nat": "masquerade"}
	data, err := json.Marshal(record.Design{Cells: []record.Factors{udp, tcp}})
	if err != nil {
		t.Fatal(err)
	}

	tests := []struct {
		name string
		data string
		row  record.Event
		want string
	}{
		{"cells known", string(data), record.Event{Cell: tcp, Text: record.RowLoad},
			"wireguard TCP 4 streams NAT masquerade"},
		{"small packets", string(data), record.Event{Cell: udp, Text: record.RowLoad},
			"no tunnel UDP 1 stream no NAT 64-byte packets"},
		{"a rate that a search has chosen", string(data), record.Event{
			Cell: udp,
			Text: record.RowLoad,
			PPS:  12500,
		}, "no tunnel UDP 1 stream no NAT 64-byte packets at 12.5 kpps"},
		{"a pace that a search has chosen", string(data), record.Event{
			Cell: tcp,
			Text: record.RowLoad,
			Rate: 2e7,
		}, "wireguard TCP 4 streams NAT masquerade at 20.0 Mbit/s"},
		{"idle path", string(data), record.Event{
			Cell: record.Factors{"tunnel": "none", "nat": "off"},
			Text: record.RowIdle,
		}, "idle latency, no tunnel no NAT"},
		{"verify", string(data), record.Event{Cell: record.Factors{"tunnel": "none"}, Text: record.RowVerify},
			"every byte checked, no tunnel"},
		{"cells not known", "", record.Event{Cell: tcp, Text: record.RowLoad},
			"wireguard TCP 4 streams up MTU 1420 NAT masquerade"},
		{"other data", `{"cells": 5}`, record.Event{Cell: udp}, "no tunnel UDP 1 stream up 64-byte packets"},
		{"no factors", "", record.Event{Row: "b1-r01"}, "b1-r01"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := labeller{factors: words}
			l.learn(json.RawMessage(tt.data))
			got := l.row(tt.row)
			if got != tt.want {
				t.Errorf("label: got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestUTF8Locale(t *testing.T) {
	tests := []struct {
		name string
		vars []string
		want bool
	}{
		{"nothing set", []string{"", "", ""}, false},
		{"language", []string{"", "", "C.UTF-8"}, true},
		{"all wins", []string{"C", "", "de_DE.UTF-8"}, false},
		{"old spelling", []string{"", "en_US.utf8", "C"}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := utf8Locale(tt.vars...)
			if got != tt.want {
				t.Errorf("utf8Locale(%q): got %v, want %v", tt.vars, got, tt.want)
			}
		})
	}
}

// TestLongLinesAreMarked: a line that does not fit ends with a mark, and one that just fits does not.
func TestLongLinesAreMarked(t *testing.T) {
	l := line{{"wireguard ", bold}, {"4 streams", plain}}
	for _, tt := range []struct {
		look look
		want string
	}{
		{look{unicode: true, width: 19}, "wireguard 4 streams"},
		{look{unicode: true, width: 12}, "wireguard 4…"},
		{look{unicode: true, width: 6}, "wireg…"},
		{look{width: 12}, "wireguard 4~"},
	} {
		got, n := tt.look.draw(l)
		if got != tt.want || n != tt.look.width {
			t.Errorf("%d columns: got %q in %d, want %q", tt.look.width, got, n, tt.want)
		}
	}
}

func FuzzDraw(f *testing.F) {
	f.Add("no tunnel TCP\x1b[2J", 20)
	f.Add("速い\u202eабв\xff", 3)
	f.Fuzz(func(t *testing.T, text string, width int) {
		width = max(1, min(width, 300))
		scr := newScreen(width+1, 24)
		k := look{width: width, height: 24, unicode: true}
		drawn, n := k.draw(line{{clean(text), plain}})
		if _, err := scr.Write([]byte(drawn)); err != nil || len(scr.faults) > 0 || scr.row > 0 || n > width {
			t.Errorf("draw %q in %d columns: got %d columns, row %d, faults %q", text, width, n, scr.row,
				scr.faults)
		}
	})
}

// TestQuietAndFirstSeconds: a log reports what takes long before the first trial; --quiet leaves the
// warnings.
func TestQuietAndFirstSeconds(t *testing.T) {
	events := []record.Event{
		{Event: RunStarted, Run: "r1", Text: "quick", Total: 4, Left: 80 * time.Second},
		{Event: Phase, Phase: "tester ceiling", Text: "measuring what this machine can send, 8s"},
		{Event: Phase, Row: "b1-r01", Phase: "window"},
		{Event: Warning, Text: "skipped:\x1b[2J no queue"},
		{Event: RunEnded, Status: "done"},
	}
	var log, quiet strings.Builder
	for _, s := range []Sink{Plain(&log, nil), Quiet(&quiet)} {
		give(t, s, events...)
	}

	const warning = "warning: skipped:[2J no queue\n"
	want := "run r1, plan quick, 4 trials, about 1m20s\nmeasuring what this machine can send, 8s\n" +
		warning + "run r1 done\n"
	if log.String() != want || quiet.String() != warning {
		t.Errorf("log %q, want %q\nquiet %q, want %q", log.String(), want, quiet.String(), warning)
	}
}
