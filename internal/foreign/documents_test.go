package foreign_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/foreign"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

// Documents of formats that can hold several, one test each.
const (
	irttText = `{"version":{"irtt":"0.9.1","json_format":1},"config":{"params":{"interval":1000000,"length":60},` +
		`"ip_version":"IPv4"},"round_trips":[{"lost":"false","timestamps":{"client":{"send":` +
		`{"wall":1767225600000001000,"monotonic":1000}}},"delay":{"rtt":5000}}]}`
	qualityText  = `{"dl_throughput":560000000,"ul_throughput":88000000,"responsiveness":540.5}`
	qualityError = `{"error_code":-1009,"error_domain":"NSURLErrorDomain"}`
	iperf3Error  = `{"start":{"connected":[],"version":"iperf 3.12"},"intervals":[],"end":{},` +
		`"error":"unable to connect to server: Connection refused"}`
)

// units encodes a text in UTF-16.
func units(text string, order binary.ByteOrder) []byte {
	out := []byte{}
	for _, u := range utf16.Encode([]rune(text)) {
		out = order.(binary.AppendByteOrder).AppendUint16(out, u)
	}
	return out
}

// TestEncodings: a text is read alike in every encoding that Windows writes.
func TestEncodings(t *testing.T) {
	const bom = "\ufeff"
	for _, sample := range []string{iperf3Samples + "tcp-2.client.json", "testdata/openssl.txt",
		"testdata/wg-bench.md", "testdata/ministat.txt", "testdata/networkquality.json"} {
		text := file(t, sample)
		want := read(t, text, "")
		crlf := strings.ReplaceAll(string(text), "\n", "\r\n")
		for name, encoded := range map[string][]byte{
			"UTF-8 with a mark":          []byte(bom + string(text)),
			"UTF-8 with a mark, CRLF":    []byte(bom + crlf),
			"UTF-16LE with a mark":       units(bom+crlf, binary.LittleEndian),
			"UTF-16BE with a mark":       units(bom+string(text), binary.BigEndian),
			"UTF-16LE without a mark":    units(crlf, binary.LittleEndian),
			"UTF-16BE without a mark":    units(string(text), binary.BigEndian),
			"two marks, as of two files": []byte(bom + bom + string(text)),
		} {
			if !foreign.Encoded(encoded) {
				t.Errorf("%s in %s: taken for plain text", sample, name)
			}

			expect.Same(t, fmt.Sprintf("%s in %s", sample, name), want, read(t, encoded, ""))
		}

		if foreign.Encoded(text) {
			t.Errorf("%s: taken for another encoding", sample)
		}
	}

	_, err := foreign.ReadFile(bytes.NewReader(append(units(bom+"1\n2\n", binary.LittleEndian), '3')), "")
	expect.Error(t, "UTF-16 of an odd length", err, "in the middle of a character")
}

// streamed writes a document of iperf3 --json as --json-stream does.
func streamed(t testing.TB, whole []byte) string {
	t.Helper()
	var parts struct {
		Start, End json.RawMessage
		Intervals  []json.RawMessage
	}
	must(t, json.Unmarshal(whole, &parts))
	out := ""
	line := func(event string, data json.RawMessage) {
		var flat bytes.Buffer
		must(t, json.Compact(&flat, data))
		out += `{"event":"` + event + `","data":` + flat.String() + "}\n"
	}
	line("start", parts.Start)
	for _, i := range parts.Intervals {
		line("interval", i)
	}

	line("end", parts.End)
	return out
}

// TestSeveralDocuments: each test of a file is a trial with its own numbers, the lines of --json-stream give
// what --json does, and a test that failed is reported wherever it stands.
func TestSeveralDocuments(t *testing.T) {
	up := string(file(t, iperf3Samples+"tcp-2.client.json"))
	down := string(file(t, iperf3Samples+"tcp-reverse.client.json"))
	const failedStream = `{"event":"start","data":{"version":"iperf 3.17"}}` + "\n" +
		`{"event":"error","data":"unable to connect"}` + "\n" + `{"event":"end","data":{}}` + "\n"
	text := string(file(t, iperf3Samples+"tcp-3.printed.txt"))
	upLines := streamed(t, []byte(up))
	downLines := streamed(t, []byte(down))
	const refused, unable = "Connection refused", "unable to connect"
	for _, tt := range []struct {
		name, text string
		want       []string // of each part: a text that was read alone, or a reason
	}{
		{"two", up + down, []string{up, down}},
		{"two on one line", strings.TrimSpace(up) + down, []string{up, down}},
		{"a list", "[" + up + "," + down + "]\n", []string{up, down}},
		{"an error first", iperf3Error + up + down, []string{refused, up, down}},
		{"an error between", up + iperf3Error + "\n" + down, []string{up, refused, down}},
		{"an error last", up + down + iperf3Error, []string{up, down, refused}},
		{"another object", up + `{"hello":1}`, []string{up, "no stream in it"}},
		{"a stream", upLines, []string{up}},
		{"a stream with the whole", upLines + up, []string{up}}, // of --json-stream-full-output
		{"two streams", upLines + downLines, []string{up, down}},
		{"a stream that failed first", failedStream + upLines + downLines, []string{unable, up, down}},
		{"a stream that failed last", upLines + downLines + failedStream, []string{up, down, unable}},
		{"a stream without an end", upLines[:strings.Index(upLines, `{"event":"end"`)] + downLines,
			[]string{"no stream in it", down}},
		{"a stream and a document", upLines + down, []string{up, down}},
		{"a stream with the whole, and another", upLines + up + downLines + down, []string{up, down}},
		{"texts", text + text, []string{text, text}},
		{"a text behind a document, an error between", up + "iperf3: error - the server is busy\n" + text,
			[]string{up, "iperf3: error - the server is busy", text}},
		{"marks between", "\ufeff" + up + "\ufeff" + down, []string{up, down}},
		{"irtt", irttText + "\n" + irttText, []string{irttText, irttText}},
		{"networkQuality", qualityText + qualityError + qualityText,
			[]string{qualityText, "NSURLErrorDomain -1009", qualityText}},
		{"flent", flentText + "\n" + flentText, []string{flentText, flentText}},
		{"flent's damage", flentText + `{"version":5,"x_values":[0],"results":{}}`,
			[]string{flentText, "version 5"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := read(t, []byte(tt.text), "")
			if len(got) != len(tt.want) {
				t.Fatalf("got %d results, want %d: %+v", len(got), len(tt.want), got)
			}

			for i, want := range tt.want {
				if !strings.HasPrefix(want, "{") && want != text {
					why := got[i].LeftOut
					if !strings.Contains(why, want) || !strings.HasPrefix(why, "line ") {
						t.Errorf("part %d: got %q, want a line and %q", i+1, why, want)
					}
					continue
				}

				alone := read(t, []byte(want), "")
				expect.Same(t, fmt.Sprintf("part %d", i+1), alone, got[i:i+1])
			}

			d := derive(t, nil, got...)
			failures := len(got) - len(d.Trials)
			if said(d, "left-out") != (failures > 0) {
				t.Errorf("%d failures: got the caveats %v", failures, d.Caveats)
			}
		})
	}
}

// TestPasted: prompts, fences, warnings and prose around a document do not hide it, and a format that is
// named reads what detection does.
func TestPasted(t *testing.T) {
	one := string(file(t, iperf3Samples+"tcp-2.client.json"))
	want := read(t, []byte(one), "")
	for name, text := range map[string]string{
		"a prompt":         "root@OpenWrt:~# iperf3 -c 192.168.1.2 -J\n" + one + "root@OpenWrt:~# ",
		"a fence":          "What I see:\n\n```json\n" + one + "```\n\nIs that \"normal\"?\n",
		"a warning":        "warning: UDP block size 1460 exceeds TCP MSS 1448, may result in fragmentation / drops\n" + one,
		"iperf3's prompt":  "Password: " + one,
		"quotes":           "it's \"odd\n" + one,
		"PowerShell":       "\ufeffPS C:\\Users\\me> .\\iperf3.exe -c 10.0.0.1 -J\r\n" + strings.ReplaceAll(one, "\n", "\r\n"),
		"a brace of prose": "log: {\"oops\nand: {\"a b}\n" + one + "end {\"\n",
		"a brace":          "${HOST} { x }\n" + one + "}\n",
	} {
		for _, format := range []string{"", "iperf3"} {
			got := read(t, []byte(text), format)
			expect.Same(t, fmt.Sprintf("%s, --from %q", name, format), want, got)
		}
	}

	for name, text := range map[string]string{
		"cut":         "$ iperf3 -J\n" + one[:len(one)/2],
		"cut, second": one + one[:len(one)/2],
		"cut, first":  one[:len(one)/2] + one,
	} {
		_, err := foreign.ReadFile(strings.NewReader(text), "")
		if e, ok := errors.AsType[*foreign.Error](err); !ok || e.Line < 2 {
			t.Errorf("%s: got %v, want an *Error with a line", name, err)
		}
	}
}

// TestNotFinite: a value that is no finite number is unknown, whoever writes it how, and the others are read.
func TestNotFinite(t *testing.T) {
	whole := string(file(t, iperf3Samples+"udp-2.client.json"))
	for _, value := range []string{"nan", "-nan", "NaN", "inf", "-inf", "Infinity", "-Infinity", "-nan(ind)",
		"1.#INF", "-1.#IND00", "null"} {
		for _, gap := range []string{":", ":\t", ": "} {
			text := whole
			for _, key := range []string{"jitter_ms", "lost_percent", "bits_per_second", "host_total"} {
				text = withValue(text, key, gap+value)
			}

			got := read(t, []byte(text), "")
			want := read(t, []byte(whole), "")
			diff := cmp.Diff(want, got, cmpopts.EquateNaNs())
			if diff != "" {
				t.Fatalf("%s%s (-finite +not):\n%s", gap, value, diff)
			}
		}
	}

	text := withValue(qualityText, "responsiveness", ":-nan")
	d := derive(t, nil, read(t, []byte(text), "")...)
	if v, has := d.Trials[0].Metrics[metrics.Responsiveness]; has {
		t.Errorf("a responsiveness of -nan is %g, want it missing", v)
	}

	if v := d.Trials[0].Metrics[metrics.Goodput]; math.Abs(v-648e6) > 1 {
		t.Errorf("got goodput %g beside it, want 648e6", v)
	}

	names := read(t, []byte(strings.Replace(whole, `"start":`, `"title": "nan, inf", "start":`, 1)), "")
	if names[0].Factors["title"] != "nan, inf" {
		t.Errorf("got the title %q, want it as it was", names[0].Factors["title"])
	}
}

// withValue replaces what follows each key of a JSON text.
func withValue(text, key, value string) string {
	parts := strings.Split(text, `"`+key+`"`)
	for i, p := range parts[1:] {
		parts[i+1] = value + p[strings.IndexAny(p, ",}\n"):]
	}
	return strings.Join(parts, `"`+key+`"`)
}

// TestUnknownRetransmits: where a sender's system does not count them they are missing with a reason, not 0.
func TestUnknownRetransmits(t *testing.T) {
	whole := string(file(t, iperf3Samples+"tcp-2.client.json"))
	counted := derive(t, nil, read(t, []byte(whole), "")...).Trials[0]
	if _, has := counted.Metrics[metrics.Retransmits]; !has {
		t.Fatal("the sample itself has none")
	}

	for name, text := range map[string]string{
		"-1":     withValue(whole, "retransmits", ":-1"),
		"null":   withValue(whole, "retransmits", ": null"),
		"-nan":   withValue(whole, "retransmits", ":\t-nan"),
		"absent": strings.ReplaceAll(whole, `"retransmits"`, `"else"`),
		"one":    strings.Replace(whole, `"max_snd_cwnd"`, `"retransmits": -1, "max_snd_cwnd"`, 1),
		"text": strings.ReplaceAll(string(file(t, iperf3Samples+"tcp-reverse.printed.txt")),
			"50.3 Mbits/sec    2 ", "50.3 Mbits/sec      "),
	} {
		d := derive(t, nil, read(t, []byte(text), "")...)
		tr := d.Trials[0]
		if v, has := tr.Metrics[metrics.Retransmits]; has || tr.Missing[metrics.Retransmits] == "" {
			t.Errorf("%s: got %g retransmits, missing for %q", name, v, tr.Missing[metrics.Retransmits])
		}

		if _, has := d.Cells[0].Metrics[metrics.Retransmits]; has || tr.Metrics[metrics.Goodput] == 0 {
			t.Errorf("%s: the cell has retransmits, or the trial no goodput", name)
		}
	}
}

// TestColumnsWithGaps: a number that is none is left out with its place, and the others are trials.
func TestColumnsWithGaps(t *testing.T) {
	for _, value := range []string{"nan", "-nan", "NaN", "inf", "-Inf", "+inf", "-nan(ind)", "1.#INF"} {
		got := read(t, []byte("1 10\n"+value+" 20\n3 30\n"), "")
		d := derive(t, nil, got...)
		if len(d.Trials) != 5 || len(d.Cells) != 2 || got[2].LeftOut == "" {
			t.Errorf("%s: got %d trials in %d cells and %+v", value, len(d.Trials), len(d.Cells), got[2])
		}

		want := "line 2, byte 5: column 1 has "
		if !strings.HasPrefix(got[2].LeftOut, want) {
			t.Errorf("%s: got %q, want %q", value, got[2].LeftOut, want)
		}
	}
}

// TestOpenSSLGaps: a figure that openssl could not compute is left out with its line, in either form, and the
// others of its line are read.
func TestOpenSSLGaps(t *testing.T) {
	const table = "The 'numbers' are in 1000s of bytes per second processed.\n"
	for _, tt := range []struct {
		name, text   string
		figures, out int
	}{
		{"blocks", table + "type 16 bytes 1024 bytes\nsha256 100.00k -nank\nsha1 infk 5.00k\n", 2, 2},
		{"keys", " op op/s\n 253 bits ecdh (X25519)   0.0001s  inf\n 448 bits ecdh (X448)   0.0005s  7.0\n", 1, 1},
		{"-mr", "+H:16:1024\n+F:1:sha1:nan:5.00\n+F:2:sha256:9.00:8.00\n+F5:23:448:-nan:inf\n", 3, 2},
	} {
		figures, left := sorted(read(t, []byte(tt.text), "openssl"))
		for _, why := range left {
			if !strings.HasPrefix(why, "line ") {
				t.Errorf("%s: got %q, want a line", tt.name, why)
			}
		}

		expect.Same(t, tt.name, [2]int{tt.figures, tt.out}, [2]int{len(figures), len(left)})
	}
}
