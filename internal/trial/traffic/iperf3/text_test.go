package iperf3

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func printed(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name + ".printed.txt")
	if err != nil {
		t.Fatal(err)
	}

	return string(b)
}

// rates are the sums of what arrived by direction, in bit/s.
func rates(t *record.Traffic) map[string]float64 {
	out := map[string]float64{}
	for _, f := range t.Flows {
		out[f.Direction] += float64(f.ReceivedBytes) * 8e9 / float64(f.ReceiverNs)
	}
	return out
}

// TestPrinted: every test of what iperf3 3.12 printed has the rate of its own last lines, and the conditions
// that its lines name.
func TestPrinted(t *testing.T) {
	const up, down = record.Up, record.Down
	for _, tt := range []struct {
		name, direction, protocol string
		streams                   int
		rates                     map[string]float64 // Mbit/s
		retransmits, lost         int64              // of all flows
	}{
		{"tcp-3", up, "tcp", 3, map[string]float64{up: 148.5}, 9, 0},
		{"tcp-reverse", down, "tcp", 1, map[string]float64{down: 50.3}, 2, 0},
		{"tcp-bidir-2", record.Both, "tcp", 2, map[string]float64{up: 97.8, down: 97.8}, 25, 0},
		{"udp", up, "udp", 1, map[string]float64{up: 50.1 * 359 / 382}, 0, 23},
		{"udp-reverse-2", down, "udp", 2, map[string]float64{down: 99.6 * 660 / 774}, 0, 114},
		{"udp-bidir", record.Both, "udp", 1, map[string]float64{up: 50.1 * 375 / 382, down: 50.1 * 369 / 382}, 0, 20},
		{"verbose", up, "tcp", 1, map[string]float64{up: 5.87 * 8 * 1.048576}, 1, 0},
		{"server-output", up, "tcp", 1, map[string]float64{up: 49.4}, 0, 0},
		{"title", up, "tcp", 1, map[string]float64{up: 50.3}, 2, 0},
	} {
		text := printed(t, tt.name)
		for form, text := range map[string]string{"as it is": text,
			"CRLF":   strings.ReplaceAll(text, "\n", "\r\n"),
			"quoted": "client | " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\nclient | ")} {
			all := ReadPrinted([]byte(text))
			if len(all) != 1 || all[0].Err != nil {
				t.Errorf("%s, %s: got %+v, want one test", tt.name, form, all)
				continue
			}

			f := all[0].File
			load := f.Traffic.Load
			if load.Direction != tt.direction || load.Protocol != tt.protocol || load.Streams != tt.streams {
				t.Errorf("%s, %s: got the load %+v", tt.name, form, load)
			}

			for d, v := range rates(f.Traffic) {
				want := tt.rates[d] * 1e6
				if math.Abs(v-want) > 1e-3*want {
					t.Errorf("%s, %s: got %g bit/s %s, want %g", tt.name, form, v, d, want)
				}
			}

			again := int64(0)
			lost := int64(0)
			for _, flow := range f.Traffic.Flows {
				if flow.TCP != nil {
					again += *flow.TCP.Retransmits
				}

				if flow.Packets != nil {
					lost += flow.Packets.Lost
				}
			}

			if again != tt.retransmits || lost != tt.lost {
				t.Errorf("%s, %s: got %d retransmits, %d lost packets", tt.name, form, again, lost)
			}

			if len(f.Missing) > 0 {
				t.Errorf("%s, %s: got %v as missing", tt.name, form, f.Missing)
			}
		}
	}

	f := ReadPrinted([]byte(printed(t, "verbose")))[0].File
	if f.Traffic.Version != "3.12" || f.Traffic.Load.Congestion != "bbr" || f.Began.Unix() != 1795862961 {
		t.Errorf("got version %q, congestion control %q, began %v", f.Traffic.Version,
			f.Traffic.Load.Congestion, f.Began)
	}

	title := ReadPrinted([]byte(printed(t, "title")))[0].File.Title
	if title != "a title" {
		t.Errorf("got the title %q", title)
	}

	warm := ReadPrinted([]byte(printed(t, "tcp-3")))[0].File.Traffic.Load.Warmup
	if warm.Seconds() != 1 {
		t.Errorf("got a warm-up of %v, want 1s", warm)
	}
}

// TestPrintedByServer: of a server's text, the tests in which it counted what arrived are read.
func TestPrintedByServer(t *testing.T) {
	got := ""
	for _, p := range ReadPrinted([]byte(printed(t, "server"))) {
		switch {
		case p.Err != nil && strings.Contains(p.Err.Error(), "server's file"):
			got += "refused "
		case p.Err != nil:
			got += p.Err.Error() + " "
		default:
			got += fmt.Sprintf("%s×%d %.1f ", p.File.Traffic.Load.Direction, p.File.Traffic.Load.Streams,
				rates(p.File.Traffic)[record.Up]/1e6)
		}
	}

	const want = "up×1 48.9 up×3 148.5 refused refused refused refused refused up×1 49.3 up×1 49.4 up×1 50.3 "
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestPrintedParts: what was cut, edited or printed by another program is refused, and what is unknown is
// missing.
func TestPrintedParts(t *testing.T) {
	three := printed(t, "tcp-3")
	reverse := printed(t, "tcp-reverse")
	grep := func(text string, keep func(line string) bool) string {
		out := ""
		for line := range strings.Lines(text) {
			if keep(line) {
				out += line
			}
		}
		return out
	}
	without := func(text string, words ...string) string {
		return grep(text, func(line string) bool {
			for _, w := range words {
				if strings.Contains(line, w) {
					return false
				}
			}
			return true
		})
	}
	const lines = "last lines, those of sender and receiver, are not all in it"
	for _, tt := range []struct{ name, text, want string }{
		{"no totals", without(three, "sender", "receiver"), lines},
		{"no receiver", without(three, "receiver"), lines},
		{"no sender", without(three, "sender"), lines},
		{"a stream is missing", without(three, "[  7]"), "streams are missing"},
		{"interrupted", without(reverse, "iperf Done") + "iperf3: interrupt - the client has terminated\n",
			"interrupt - the client has terminated"},
		{"an error", "iperf3: error - unable to connect to server: Connection refused\n", "Connection refused"},
		{"no rate", strings.ReplaceAll(reverse, "50.3 Mbits", "-nan bits"), "is unknown"},
		{"lost packets unknown", strings.ReplaceAll(printed(t, "udp"), "23/382 (6%)", "Unknown/382"),
			"how many packets were lost is unknown"},
		{"iperf 2", "Client connecting to 127.0.0.1, TCP port 5001\n[  3]  0.0-10.0 sec  1.10 GBytes   941 Mbits/sec\n",
			"iperf 2"},
		{"iperf 2.1", "[  1] 0.0000-10.0123 sec  1.10 GBytes   941 Mbits/sec\n", "iperf 2"},
	} {
		all := ReadPrinted([]byte(tt.text))
		if len(all) != 1 || all[0].Err == nil || !strings.Contains(all[0].Err.Error(), tt.want) {
			t.Errorf("%s: got %+v, want one test with %q", tt.name, all, tt.want)
		}
	}

	for _, tt := range []struct{ name, text, missing string }{
		{"totals alone", grep(reverse, func(l string) bool {
			return strings.Contains(l, "sender") || strings.Contains(l, "receiver")
		}), "[direction ip]"},
		{"sums alone", grep(three, func(l string) bool { return strings.Contains(l, "SUM") }), "[streams ip]"},
		{"no head", without(three, "Connecting", "local"), "[ip]"},
	} {
		all := ReadPrinted([]byte(tt.text))
		if len(all) != 1 || all[0].Err != nil {
			t.Fatalf("%s: got %+v, want one test", tt.name, all)
		}

		got := fmt.Sprint(all[0].File.Missing)
		if got != tt.missing {
			t.Errorf("%s: got %s as missing, want %s", tt.name, got, tt.missing)
		}
	}

	all := ReadPrinted([]byte(strings.ReplaceAll(reverse, "50.3 Mbits/sec    2 ", "50.3 Mbits/sec      ")))
	if len(all) != 1 || all[0].Err != nil || all[0].File.Traffic.Flows[0].TCP.Retransmits != nil {
		t.Errorf("retransmits that are not there: got %+v", all)
	}

	if n := len(ReadPrinted([]byte(three + three + reverse))); n != 3 {
		t.Errorf("three tests: got %d", n)
	}

	headless := without(three, "Connecting", "local", "iperf Done")
	if n := len(ReadPrinted([]byte(headless + headless))); n != 2 {
		t.Errorf("two tests without their first and last lines: got %d", n)
	}
}
