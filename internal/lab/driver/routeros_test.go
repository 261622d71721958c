package driver

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
)

func TestQuoteROS(t *testing.T) {
	for word, want := range map[string]string{
		"":                       `""`,
		"ether1":                 `"ether1"`,
		`a "b" $c \d; /e [f] {g`: `"a \"b\" \$c \\d; /e [f] {g"`,
		"a\nb\tc\x1b\x7f":        `"a\nb\09c\1B\7F"`,
		"é":                      `"é"`,
	} {
		got := quoteROS(word)
		if got != want {
			t.Errorf("%q: got %s, want %s", word, got, want)
		}
	}
}

// Texts in the form that the manual and users of :serialize show; composed.
func TestParseItems(t *testing.T) {
	tests := []struct {
		text string
		want []item
	}{
		{"", nil},
		{"[]\r\n", nil},
		{`{"platform":"MikroTik","free-memory":871346176,"cpu-load":3}` + "\r\n",
			[]item{{"platform": "MikroTik", "free-memory": "871346176", "cpu-load": "3"}}},
		{`[{".id":"*1","name":"lan","rx-byte":18446744073709551615,"running":true,` + "\r\n" +
			`"mtu":2048.000000,"immediate-gw":["192.0.2.1%lan","wan"],"none":null,"nested":{"a":1}},` +
			`{".id":"*2","na` + "\r\n" +
			`me":"a;b=c\n"}]`, []item{{".id": "*1", "name": "lan", "rx-byte": "18446744073709551615",
			"running": "true", "mtu": "2048", "immediate-gw": "192.0.2.1%lan,wan"},
			{".id": "*2", "name": "a;b=c\n"}}},
	}
	for _, tt := range tests {
		got, err := parseItems(tt.text)
		must(t, err)
		same(t, tt.want, got, "%q", tt.text)
	}

	for _, text := range []string{"no such item", "[1]", `["a"]`, `[{"a":1}`, "true"} {
		if got, err := parseItems(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}

func TestParseROSTime(t *testing.T) {
	for text, want := range map[string]time.Duration{"5ms": 5 * time.Millisecond,
		"100us":        100 * time.Microsecond,
		"00:00:00.100": 100 * time.Millisecond, "1w2d3h4m5s": 9*24*time.Hour + 3*time.Hour + 4*time.Minute +
			5*time.Second, "1w00:00:05": 7*24*time.Hour + 5*time.Second, "2d": 48 * time.Hour, "0s": 0} {
		if got, err := parseROSTime(text); got != want || err != nil {
			t.Errorf("%s: got %v, %v, want %v", text, got, err, want)
		}
	}

	for _, text := range []string{"", "5", "xs", "1w-5s", "-5s", "1:2", "9999999w"} {
		if got, err := parseROSTime(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}

// Queue types as a router has them by default (manual, Queues), and others; the values in the forms of print
// and of as-value.
func TestQueueState(t *testing.T) {
	types := []item{{"name": "ethernet-default", "kind": "pfifo", "pfifo-limit": "50"},
		{"name": "only-hardware-queue", "kind": "none"},
		{"name": "multi-queue-ethernet-default", "kind": "mq-pfifo", "mq-pfifo-limit": "50"},
		{"name": "fq", "kind": "fq-codel", "fq-codel-limit": "10240", "fq-codel-quantum": "1514",
			"fq-codel-target": "00:00:00.005", "fq-codel-interval": "100ms", "fq-codel-memlimit": "32.0MiB",
			"fq-codel-ecn": "true", "fq-codel-flows": "1024", "fq-codel-ce-threshold": "1d"},
		{"name": "cake", "kind": "cake", "cake-bandwidth": "50.0Mbps", "cake-diffserv": "besteffort",
			"cake-atm": "none", "cake-ack-filter": "none", "cake-nat": "yes", "cake-rtt": "100ms",
			"cake-memlimit": "0"},
		{"name": "aggressive", "kind": "cake", "cake-ack-filter": "aggressive"},
		{"name": "red", "kind": "red"}}
	for name, want := range map[string]string{"ethernet-default": "pfifo limit 50",
		"only-hardware-queue": "noqueue", "no-queue": "noqueue", "multi-queue-ethernet-default": "mq",
		"fq": "fq_codel limit 10240 flows 1024 quantum 1514 target 5ms interval 100ms memory_limit 32m " +
			"ecn",
		"cake":       "cake bandwidth 50M besteffort rtt 100ms nat noack-filter noatm",
		"aggressive": "", "red": "", "not there": ""} {
		got, err := queueOfType(name, types)
		if got.String() != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
		}

		if want == "" {
			continue
		}

		if _, err := queueArguments(got); err != nil {
			t.Errorf("%s: %v cannot be set: %v", name, got, err)
		}
	}
}

func TestParseROSFirewall(t *testing.T) {
	parses(t, parseROSFirewall, map[string]string{
		"0\n0\n0\n0\n0\n0\n0\n0\n0\n0\n0\n0\n": "off",
		"0 9 0 0 0 0 0 9 0 0 0 0":              "off", // without a jump they do nothing
		"1 9 0 0 0 0 1 9 0 0 0 0":              "9",
		"1 0 1 1 1 7 1 0 1 1 1 7":              "7 in a set stateful log",
		"1 9 0 0 0 0 0 0 0 0 0 0":              "", "1 9": "", "x": "", "1 0 0 0 0 0 1 0 0 0 0 0": "0",
	})
}

// rosPrinted is a sample as the loop prints it. Composed in the form of :serialize.
const rosPrinted = sampleMark + "1729680660992477203\n" + partMark + "\n" +
	`{"cpu-frequency":1400,"free-memory":850000,"total-memory":1000000}` + "\n" + partMark + "\n" +
	`[{".id":"*0","cpu":"cpu0","irq":7,"load":12},{".id":"*1","cpu":"1","load":"100%"},` +
	`{"cpu":"x","load":1}]` + "\n" + partMark + "\n" +
	`{"max-entries":1048576,"total-entries":87}` + "\n" + partMark + "\n" +
	`[{"name":"lan","rx-byte":38784330741,"rx-packet":1,"tx-drop":"a,b","tx-queue-drop":3},` +
	`{"name":"a\u001b[2J"}]` + "\n"

// TestParseROSSample: what is absent or no number has no value, never zero.
func TestParseROSSample(t *testing.T) {
	s, err := parseROSSample(rosPrinted)
	if err != nil || s.at != 1729680660992477203 {
		t.Fatalf("got time %d, %v", s.at, err)
	}

	same(t, map[string]values{
		"memory":  {"total_bytes": 1e6, "free_bytes": 850000},
		"cpufreq": {"cpu/frequency_hz": 1.4e9},
		"cpu": {"cpu0/idle_ns": 88, "cpu0/irq_ns": 7, "cpu0/unclassified_ns": 5, "cpu1/idle_ns": 0,
			"cpu1/unclassified_ns": 100},
		"conntrack": {"entries": 87, "max": 1048576},
		"netdev":    {"lan/rx_bytes": 38784330741, "lan/rx_packets": 1, "lan/tx_queue_dropped": 3},
	}, s.probes, "sample")
	w := &rosWatch{}
	hear := rosLines(w.add)
	for i, at := range []string{"1000000000", "3000000000", "4000000000"} {
		text := strings.Replace(rosPrinted, "1729680660992477203", at, 1) + consoleDone
		if i == 1 { // one that was cut off is left out
			text = text[:200] + "\n" + text
		}

		for line := range strings.SplitSeq(text, "\n") {
			hear(line + "\r")
		}
	}

	if len(w.samples) != 3 {
		t.Fatalf("got %d samples, %v, want 3", len(w.samples), w.trouble)
	}

	tables := rosTables(w.samples, 1e9, "")
	diff := cmp.Diff(tables[0].Table.Column("cpu0/idle_ns"), []float64{0, .88 * 2e9, .88 * 3e9},
		cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1 }))
	if diff != "" {
		t.Errorf("idle time (-got +want):\n%s", diff)
	}

	same(t, []int64{0, 2e9, 3e9}, tables[0].Table.T, "times")
	for _, s := range tables {
		if (s.Table == nil) != (s.Unavailable != "") {
			t.Errorf("%s: neither series nor a reason, or both", s.Probe)
		}
	}
}

func TestRefused(t *testing.T) {
	for said, unsupported := range map[string]bool{
		"bad command name rps (line 1 column 25)":                true,
		"failure: not allowed by device-mode":                    true,
		"input does not match any value of kind":                 true,
		"failure: already have such entry":                       false,
		"not enough permissions (9)":                             false,
		"expected end of command (line 1 column 37)":             false,
		"\x1b[31m" + strings.Repeat("x", 5000) + " no such item": false,
	} {
		err := refused(said)
		got := strings.HasPrefix(err.Error(), "unsupported")
		if got != unsupported || len(err.Error()) > 500 {
			t.Errorf("%.80q: got %v", said, err)
		}
	}
}

func TestGuardSilence(t *testing.T) {
	if got, ok := guardSilence(newGuard(45 * time.Second)); got != 45*time.Second || !ok {
		t.Errorf("got %v, %v, want 45 seconds", got, ok)
	}

	for _, name := range []string{"", "chokepoint-guard-", "chokepoint-guard-0123456789ab", "x",
		"chokepoint-guard-0123456789ab-0s", "chokepoint-guard-\"; /x-45s"} {
		if _, ok := guardSilence(name); ok {
			t.Errorf("%q is taken for a guard", name)
		}
	}
}

func FuzzRouterOS(f *testing.F) {
	f.Add(rosPrinted)
	f.Add(`[{"name":"a","kind":"cake","cake-rtt":"00:00:00.100"},{"dst-address":"0.0.0.0/0"}]`)
	f.Add("1 9 0 0 0 0 1 9 0 0 0 0")
	f.Add("1w2d00:00:05.5")
	f.Fuzz(func(t *testing.T, text string) {
		w := &rosWatch{}
		hear := rosLines(w.add)
		for line := range strings.Lines(text) {
			hear(strings.TrimSuffix(line, "\n"))
		}

		hear(consoleDone)
		for _, s := range rosTables(w.samples, 0, "") {
			if s.Table != nil && len(s.Table.T) == 0 {
				t.Errorf("%s: a table without samples", s.Probe)
			}
		}

		all, err := parseItems(text)
		for _, i := range all {
			if q, err := queueOfType(i["name"], all); err == nil {
				state := q.String()
				if again, err := knob.Queue().Parse(state); err != nil || string(again) != state {
					t.Errorf("queue %q is not canonical: %q, %v", state, again, err)
				}
			}
		}

		if err == nil {
			parseROSWays(all, nil)
			parseOwn(all)
		}

		if state, err := parseROSFirewall(text); err != nil && state != "" {
			t.Errorf("firewall: got %q with error %v", state, err)
		}

		if d, err := parseROSTime(text); err == nil && d < 0 {
			t.Errorf("time: got %v", d)
		}

		if q := quoteROS(text); strings.ContainsAny(q, "\n\r\x1b") {
			t.Errorf("quoted %q steers a terminal", q)
		}

		sinceVersion(text)
		if refused(text) == nil {
			t.Error("got no error")
		}
	})
}
