package foreign_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/cipher"
	"github.com/chokepoint-lab/chokepoint/internal/foreign"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// iperf3Samples returns recorded outputs of the engine's tests.
const iperf3Samples = "../trial/traffic/iperf3/testdata/"

func file(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	must(t, err)
	return b
}

func read(t testing.TB, text []byte, format string) []foreign.Result {
	t.Helper()
	results, err := foreign.ReadFile(bytes.NewReader(text), format)
	if err != nil {
		t.Fatalf("read %s: %v", format, err)
	}

	return results
}

// sorted returns the results of a file, and why each other part was left out.
func sorted(parts []foreign.Result) (results []foreign.Result, left []string) {
	for _, p := range parts {
		if p.LeftOut != "" {
			left = append(left, p.LeftOut)
		} else {
			results = append(results, p)
		}
	}
	return results, left
}

// derive makes a run of results, and its document.
func derive(t testing.TB, conditions record.Factors, results ...foreign.Result) *analysis.Document {
	t.Helper()
	run, trials := foreign.Run("20260102-030405-abcd", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		[]foreign.Source{{File: "sample", Results: results}}, conditions)
	return analysis.Derive(run, trials)
}

// TestSamples: each is recognised, and gives the numbers that it holds under the conditions that it names.
func TestSamples(t *testing.T) {
	for _, tt := range []struct {
		name, file, format string
		want               []map[string]float64 // of each trial, to a part in a thousand
		cell               string               // of the first
	}{
		{"iperf3, TCP", iperf3Samples + "tcp-2.client.json", "iperf3", []map[string]float64{
			{metrics.Goodput: 7517.2e6}}, "direction=up engine=iperf3 ip=4 protocol=tcp streams=2"},
		{"iperf3, both ways", iperf3Samples + "tcp-bidir-2.client.json", "iperf3", []map[string]float64{{}},
			"direction=both engine=iperf3 ip=4 protocol=tcp streams=2"},
		{"iperf3, UDP", iperf3Samples + "udp-reverse.client.json", "iperf3", []map[string]float64{
			{metrics.LossRatio: 0}}, "direction=down engine=iperf3 ip=4 packet_size=200 protocol=udp"},
		{"iperf3, the server's", iperf3Samples + "tcp-2.server.json", "iperf3", []map[string]float64{
			{metrics.Goodput: 7460e6}}, "direction=up engine=iperf3 ip=4 protocol=tcp streams=2"},
		{"iperf3's text", iperf3Samples + "tcp-bidir-2.printed.txt", "iperf3", []map[string]float64{
			{metrics.GoodputUp: 97.8e6, metrics.GoodputDown: 97.8e6, metrics.Retransmits: 25}},
			"direction=both engine=iperf3 ip=4 protocol=tcp streams=2"},
		{"iperf3's text, UDP", iperf3Samples + "udp-reverse-2.printed.txt", "iperf3", []map[string]float64{
			{metrics.LossRatio: 114. / 774}}, "direction=down engine=iperf3 ip=4 protocol=udp streams=2"},
		{"networkQuality", "testdata/networkquality.json", "networkquality", []map[string]float64{
			{metrics.Goodput: 648e6, metrics.GoodputDown: 560e6, metrics.GoodputUp: 88e6,
				metrics.Responsiveness: 540.5, metrics.RequestIdle: 42e6}},
			"direction=both engine=networkquality protocol=tcp"},
		{"networkQuality -s", "testdata/networkquality-sequential.json", "networkquality", []map[string]float64{
			{metrics.Goodput: 360e6, metrics.Responsiveness: 812.5},
			{metrics.Goodput: 32e6, metrics.Responsiveness: 143.25}},
			"direction=down engine=networkquality protocol=tcp"},
		{"mach", "testdata/mach.json", "networkquality", []map[string]float64{
			{metrics.Goodput: 104e6, metrics.Responsiveness: 347, metrics.RequestIdle: 12.5e6,
				metrics.RequestLoaded: 231e6},
			{metrics.Goodput: 21e6, metrics.Responsiveness: 99}}, "direction=down engine=mach protocol=tcp"},
		{"openssl -mr", "testdata/openssl-mr.txt", "openssl", []map[string]float64{
			{metrics.CipherRate: 8 * 466978360}, {metrics.CipherOps: 15235.79}, {metrics.CipherOps: 4271}},
			"algorithm=aes-128-gcm block_size=1420 cipher_mode=evp engine=cipher library=openssl " +
				"node=router operation=encrypt threads=1 topology=forward"},
		{"openssl", "testdata/openssl.txt", "openssl", []map[string]float64{
			{metrics.CipherRate: 8 * 452117.76e3}, {metrics.CipherRate: 8 * 3108.86e6}, {metrics.CipherOps: 24691.4},
			{metrics.CipherOps: 8822.4}, {metrics.CipherOps: 29000}}, "algorithm=aes-128-gcm block_size=16 engine=cipher library=openssl"},
		{"wg-bench", "testdata/wg-bench.md", "wg-bench", []map[string]float64{
			{metrics.Goodput: 1.02e9}, {metrics.Goodput: 317e6}},
			"device=Example Board / RISC-V C910 protocol=tcp system=OpenWrt 24.10 / 6.6.73 tunnel=wireguard"},
		{"ministat", "testdata/ministat.txt", "ministat", []map[string]float64{
			{metrics.Goodput: 100e6}, {metrics.Goodput: 200e6}, {metrics.Goodput: 110e6}, {metrics.Goodput: 210e6},
			{metrics.Goodput: 120e6}}, "column=tcp · 1 stream"},
		{"crusader", "testdata/crusader.json", "crusader", []map[string]float64{
			{metrics.Goodput: 52060656}, {metrics.Goodput: 18643668}, {metrics.Goodput: 8673335 + 8196219,
				metrics.GoodputDown: 8673335, metrics.GoodputUp: 8196219}},
			"direction=down engine=crusader ip=4 protocol=tcp"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := file(t, tt.file)
			if got := foreign.Detect(bytes.NewReader(text)); got != tt.format {
				t.Fatalf("it looks like %q, want %s", got, tt.format)
			}

			results := read(t, text, "")
			d := derive(t, nil, results...)
			if len(d.Trials) != len(tt.want) {
				t.Fatalf("got %d trials, want %d", len(d.Trials), len(tt.want))
			}

			key := d.Trials[0].Factors.Key()
			if !strings.HasPrefix(key, tt.cell) && !contains(key, tt.cell) {
				t.Errorf("got the cell %q, want it to have %q", key, tt.cell)
			}

			for i, want := range tt.want {
				for name, v := range want {
					if got, ok := d.Trials[i].Metrics[name]; !ok || math.Abs(got-v) > 1e-3*math.Abs(v) {
						t.Errorf("trial %d: %s is %g (%v), want %g", i+1, name, got, ok, v)
					}
				}
			}

			if !said(d, "foreign") || len(d.Run.ImportedFrom) == 0 {
				t.Errorf("nothing says that it was imported: %v, %v", d.Run.ImportedFrom, d.Caveats)
			}

			for _, c := range d.Cells {
				drifts := len(c.Reasons) == 1 && c.Reasons[0].Kind == "drift" // a network's, on one sample
				if c.Grade != "valid" && !drifts || c.Diagnosis != nil && len(c.Diagnosis.Causes) > 0 {
					t.Errorf("cell %s is %s for %v, with causes %v", c.Label, c.Grade, c.Reasons, c.Diagnosis)
				}
			}
		})
	}
}

// TestOpenSSLCells: what openssl prints of the algorithms that a plan's cells measure has those cells'
// factors, in either form; with -multi the number of processes is theirs.
func TestOpenSSLCells(t *testing.T) {
	const usual = "engine=cipher library=openssl node=router "
	for _, tt := range []struct {
		file, text string
		want       []string
	}{
		{"speed-packet.txt", "", []string{"algorithm=aes-128-gcm block_size=1420 cipher_mode=evp " + usual +
			"operation=encrypt threads=1 topology=forward"}},
		{"speed-multi.txt", "", []string{"algorithm=sha1 block_size=1420 " + usual +
			"operation=hash threads=2 topology=forward"}},
		{"speed-derive.txt", "", []string{"algorithm=x25519 " + usual + "operation=derive threads=1 topology=forward"}},
		{"speed-multi-derive.txt", "", []string{"algorithm=x448 " + usual +
			"operation=derive threads=2 topology=forward"}},
		{"speed-signature.txt", "", []string{"algorithm=ed448 " + usual + "operation=sign threads=1 topology=forward",
			"algorithm=ed448 " + usual + "operation=verify threads=1 topology=forward"}},
		{"", "                              op      op/s\n 253 bits ecdh (X25519)   0.0001s  13305.9\n" +
			" 448 bits ecdh (X448)   0.0005s   2168.0\n 256 bits ecdh (nistp256)   0.0001s  11853.0\n" +
			"                              sign    verify    sign/s verify/s\n" +
			" 456 bits EdDSA (Ed448)   0.0005s   0.0005s   1997.1   1823.7\n", []string{
			"algorithm=x25519 " + usual + "operation=derive threads=1 topology=forward",
			"algorithm=x448 " + usual + "operation=derive threads=1 topology=forward",
			"algorithm=256 bits ecdh (nistp256) " + usual + "operation=derive threads=1 topology=forward",
			"algorithm=ed448 " + usual + "operation=sign threads=1 topology=forward",
			"algorithm=ed448 " + usual + "operation=verify threads=1 topology=forward"}},
		{"", "type             1420 bytes\naes-128 cbc     1701575.08k\nChaCha20-Poly1305   364011.43k\n", []string{
			"algorithm=aes-128-cbc block_size=1420 engine=cipher implementation=low-level library=openssl " +
				"node=router operation=encrypt threads=1 topology=forward",
			"algorithm=chacha20-poly1305 block_size=1420 cipher_mode=evp " + usual +
				"operation=encrypt threads=1 topology=forward"}},
	} {
		text := []byte(tt.text)
		if tt.file != "" {
			text = file(t, "../cipher/testdata/"+tt.file)
		}

		var got []string
		for _, r := range read(t, text, "openssl") {
			got = append(got, r.Factors.Key())
		}

		expect.Same(t, fmt.Sprintf("cells of %s%.20q", tt.file, tt.text), tt.want, got)
	}
}

// TestOpenSSLTexts: of several texts in one file, in both forms, each figure has the processes of its own.
func TestOpenSSLTexts(t *testing.T) {
	const one, two = "+H:1420\n+F:25:sha1:3\n", "Got: +H:1420 from 0\nGot: +F:25:sha1:1 from 0\n" +
		"Got: +H:1420 from 1\nGot: +F:25:sha1:2 from 1\n+F:25:sha1:3\n"
	const key, keys = "+F5:23:448:350:0.002857\n", "Got: +F5:23:448:484:0.002 from 0\n" +
		"Got: +F5:23:448:350:0.002 from 1\n+F5:23:448:834:0.001\n"
	const table = "version: 3.0.19\ntype 1420 bytes\nsha1 4.00k\n op op/s\n" +
		" 448 bits ecdh (X448) 0.0005s 9.0\n"
	const tables = "Got: +H:1420 from 0\nGot: +F:25:sha1:1 from 0\nGot: +F:25:sha1:2 from 1\n" + table
	for _, tt := range []struct {
		name, text, threads string
	}{
		{"one behind two", two + one, "21"}, {"two behind one", one + two, "12"},
		{"keys, which have no head", keys + key, "21"}, {"two kinds", two + keys + key + one, "2211"},
		{"people behind machines", two + table, "211"}, {"machines behind people", table + one + two, "1112"},
		{"people, two and one", tables + table, "2211"}, {"people, then one of a machine", tables + one, "221"},
	} {
		got := ""
		for _, r := range read(t, []byte(tt.text), "openssl") {
			got += cipher.ThreadsFactor.Of(r.Factors)
		}

		if got != tt.threads {
			t.Errorf("%s: got figures of %q processes, want %q", tt.name, got, tt.threads)
		}
	}
}

// contains reports whether another cell has all levels of a cell.
func contains(key, pairs string) bool {
	for p := range strings.FieldsSeq(pairs) {
		if !strings.Contains(key, p) {
			return false
		}
	}
	return true
}

func said(d *analysis.Document, kind string) bool {
	for _, c := range d.Caveats {
		if c.Kind == kind {
			return true
		}
	}
	return false
}

// TestRefused: what holds no result is refused with the reason and, where there is one, the place.
func TestRefused(t *testing.T) {
	for _, tt := range []struct{ name, format, text, want string }{
		{"a test that failed", "", string(file(t, iperf3Samples+"refused.client.json")), "Connection refused"},
		{"a server's file of UDP", "", string(file(t, iperf3Samples+"udp-2.server.json")), "it is the server's file"},
		{"a server's reverse test", "", string(file(t, iperf3Samples+"tcp-reverse.server.json")),
			"it is the server's file"},
		{"JSON that is wrong", "iperf3", "{\n\"start\": {},\n\"end\": oops}", "line 3, byte 23"},
		{"a stream cut off", "", `{"event":"start","data":{"version":"iperf 3.17"}}` + "\n" +
			`{"event":"interval","data":{"str`, "line 2"},
		{"a stream of others", "iperf3", `{"event":"party","data":{}}`, `event "party" is none of iperf3's`},
		{"a stream that failed", "", `{"event":"start","data":{}}` + "\n" +
			`{"event":"error","data":"unable to connect"}` + "\n" + `{"event":"end","data":{}}`, "unable to connect"},
		{"flent's future", "", `{"version":5,"x_values":[0],"results":{},"raw_values":{},"metadata":{}}`, "version 5"},
		{"flent's lengths", "flent", `{"version":4,"x_values":[0,1],"results":{"a":[1]},"raw_values":{},` +
			`"metadata":{"T0":"2026-01-01T00:00:00.0Z"}}`, `"a" has 1 values for 2 times`},
		{"flent's time", "flent", `{"version":4,"x_values":[1,0],"results":{},"raw_values":{},` +
			`"metadata":{"T0":"2026-01-01T00:00:00.0Z"}}`, "must be from 0 on and ascend"},
		{"irtt's future", "", `{"version":{"json_format":2},"round_trips":[]}`, "JSON format 2"},
		{"networkQuality that failed", "", `{"error_code":-1009,"error_domain":"NSURLErrorDomain"}`,
			"networkQuality failed: NSURLErrorDomain -1009"},
		{"crusader's bytes", "", `{"stream_groups":[{"download":true,"streams":[{"data":[` +
			`{"time":{"secs":1,"nanos":0},"bytes":9},{"time":{"secs":2,"nanos":0},"bytes":8}]}]}],"pings":[]}`,
			"must not fall"},
		{"openssl's rate", "openssl", "+H:16\n+F:1:sha1:-5\n", "line 2, byte 6"},
		{"a table without a rate", "wg-bench", "| a | b | c |\n| - | - | - |\n| a | b | fast 7 |\n",
			`line 3, byte 28: a: "fast 7" is no rate`},
		{"a word among numbers", "ministat", "1\n2\nthree\n", `line 3, byte 4: "three" is no number`},
		{"infinity alone", "ministat", "+Inf\n-nan\n", "there is no number in it"},
		{"ministat's summary", "", "x before.txt\n+ after.txt\n+----+\n|x  +|\n+----+\n    N           Min           Max" +
			"        Median           Avg        Stddev\nx   7            50           750           200           300" +
			"     238.04761\n+   5           150           930           500           540     299.08193\n" +
			"No difference proven at 95.0% confidence\n", "it is a summary of ministat, which has no single values"},
		{"ministat's summary, named", "ministat", "    N           Min           Max        Median           Avg" +
			"        Stddev\nx   7            50           750           200           300     238.04761\n",
			"it is a summary of ministat"},
		{"benchstat's summary", "", "goos: linux\n       │ old.txt │ new.txt │\n       │ sec/op │ sec/op vs base │\n" +
			"Run-8   2.240n ± 0%  2.241n ± 0%  ~ (p=0.706 n=30)\n", "it is a summary of benchstat"},
		{"benchstat's old summary", "", "name     old time/op  new time/op  delta\nRun-8  13.6ms ± 1%  11.8ms ± 1%" +
			"  -13.31%  (p=0.016 n=4+5)\n", "it is a summary of benchstat"},
		{"nothing", "", "", "there is nothing in it"},
		{"prose", "", "hello\n", "its format is not known"},
		{"brackets", "", strings.Repeat("[", 1000), "its format is not known"},
		{"iperf3's text, cut", "", "Connecting to host 127.0.0.1, port 5201\n[ ID] Interval  Transfer\n" +
			"[  5]   0.00-1.00   sec   112 MBytes   941 Mbits/sec    0   1.2 MBytes\n",
			"iperf3's last lines, those of sender and receiver, are not all in it"},
		{"iperf 2", "", "Client connecting to 127.0.0.1, TCP port 5001\n" +
			"[  3]  0.0-10.0 sec  1.10 GBytes   941 Mbits/sec\n", "the output of iperf 2, which is not read"},
		{"a broken bzip2", "", "BZh91AY&SYgarbage", "decompressed"},
		{"a letter among numbers", "", "1\n2\nx\n", `line 3, byte 4: "x" is no number`},
		{"a list of iperf3's", "iperf3", `{"start":{},"intervals":[{"streams":[{"bytes":1e400}]}]}`,
			"line 1, byte 51: intervals.streams.bytes: want a number in its range, got 1e400"},
		{"no object", "iperf3", `[]`, "want an object, got a list"},
		{"flent's numbers", "flent", `{"version":4,"x_values":["soon"]}`,
			"line 1, byte 31: x_values: want a number in its range, got a text"},
		{"flent's results", "", "{\"version\":4,\"x_values\":[0,1],\"metadata\":{\"TITLE\":\"results\"}," +
			"\n\"results\":{\"a\":[null,2],\"TCP upload\":[1,\n\"soon\"]}}",
			"line 3, byte 109: results.TCP upload: want a number in its range, got a text"},
		{"flent's raw values", "flent", `{"version":4,"raw_values":{"a b":[{"val":"x","t":1},{"t":"y"}]}}`,
			"line 1, byte 60: raw_values.a b.t: want a number in its range, got a text"},
		{"flent's list of lists", "flent", `{"version":4,"results":{"a":[[1]]}}`,
			"results: want a number in its range, got a list"},
		{"flent's tests of the web", "", `{"version":4,"x_values":[0,1],"results":{"HTTP latency":[1,2]},` +
			`"raw_values":{},"metadata":{"T0":"2026-01-01T00:00:00.0Z"}}`,
			"none of its series is one that is read: HTTP latency"},
		{"flent's single step", "", `{"version":4,"x_values":[0],"results":{"TCP upload":[9]},` +
			`"raw_values":{},"metadata":{"T0":"2026-01-01T00:00:00.0Z"}}`,
			`series "TCP upload" has one time step, which has no length`},
		{"flent's gaps", "", `{"version":4,"x_values":[0,1],"results":{"TCP upload":[null,null]},` +
			`"raw_values":{},"metadata":{"T0":"2026-01-01T00:00:00.0Z"}}`,
			`series "TCP upload" has no rate at any time`},
		{"a format of nobody", "speedtest", "{}", "is not known"},
		{"a broken gzip", "", "\x1f\x8b\x08\x00garbage", "decompressed"},
		{"many objects", "irtt", `{"round_trips":[` + strings.Repeat("{},", 1<<20) + "{}]}", "objects"},
		{"a rate beyond belief", "networkquality", `{"dl_throughput":1e300,"ul_throughput":1}`, "cannot be"},
	} {
		results, err := foreign.ReadFile(strings.NewReader(tt.text), tt.format)
		e, ok := errors.AsType[*foreign.Error](err)
		if !ok || !strings.Contains(e.Error(), tt.want) || results != nil {
			t.Errorf("%s: got %v, want an *Error with %q", tt.name, err, tt.want)
		}
	}
}

// TestCutOff: no beginning of a file passes for a whole one.
func TestCutOff(t *testing.T) {
	for _, name := range []string{iperf3Samples + "tcp-2.client.json", "testdata/networkquality.json",
		"testdata/mach.json", "testdata/crusader.json"} {
		text := bytes.TrimSpace(file(t, name))
		for n := 1; n < len(text); n += 1 + len(text)/200 {
			_, err := foreign.ReadFile(bytes.NewReader(text[:n]), "")
			if _, ok := errors.AsType[*foreign.Error](err); !ok {
				t.Errorf("%s, %d bytes of %d: got %v, want an *Error", name, n, len(text), err)
			}
		}
	}
}

// endless is one line without end.
type endless struct{ what byte }

func (e endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = e.what
	}
	return len(b), nil
}

// TestBounded: neither a line of a gigabyte nor a bomb takes more than is allowed.
func TestBounded(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	_, err := io.Copy(z, io.LimitReader(endless{' '}, 1<<28))
	must(t, err)
	z.Close()
	deep := append([]byte(`{"round_trips":`), bytes.Repeat([]byte("["), 1<<20)...)
	for name, r := range map[string]io.Reader{"a line of 256 MiB": io.LimitReader(endless{'7'}, 1<<28),
		"a bomb": &bomb, "brackets": bytes.NewReader(deep),
		"numbers": io.MultiReader(strings.NewReader(`{"version":4,"x_values":[`),
			io.LimitReader(&repeat{"1,", 0}, 60<<20))} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := foreign.ReadFile(r, "")
		runtime.ReadMemStats(&after)
		if _, ok := errors.AsType[*foreign.Error](err); !ok {
			t.Errorf("%s: got %v, want an *Error", name, err)
		}

		took := (after.TotalAlloc - before.TotalAlloc) >> 20
		if took > 200 {
			t.Errorf("%s: %d MiB were asked for in all", name, took)
		}
	}
}

// repeat is a text over and over.
type repeat struct {
	text string
	at   int
}

func (r *repeat) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = r.text[r.at%len(r.text)]
		r.at++
	}
	return len(b), nil
}

// TestServerOutput: --get-server-output has the other end's series.
func TestServerOutput(t *testing.T) {
	var client map[string]json.RawMessage
	must(t, json.Unmarshal(file(t, iperf3Samples+"tcp-2.client.json"), &client))
	client["server_output_json"] = file(t, iperf3Samples+"tcp-2.server.json")
	both, err := json.Marshal(client)
	must(t, err)
	for _, f := range read(t, both, "")[0].Traffic.Flows {
		if f.Sent == nil || f.Received == nil {
			t.Errorf("stream %d: series sent %v, received %v, want both", f.Stream, f.Sent != nil,
				f.Received != nil)
		}
	}
}

// TestRepetitions: results of the same conditions are trials of one cell; conditions that are named join or
// tell apart.
func TestRepetitions(t *testing.T) {
	up := read(t, file(t, iperf3Samples+"tcp-2.client.json"), "")
	down := read(t, file(t, iperf3Samples+"tcp-reverse.client.json"), "")
	d := derive(t, record.Factors{"device": "a board", "congestion": ""}, up[0], down[0], up[0])
	if len(d.Cells) != 2 || d.Cells[0].Runs != 2 || d.Cells[1].Runs != 1 {
		t.Fatalf("got cells %+v, want one of two trials and one of one", d.Cells)
	}

	for _, c := range d.Cells {
		_, has := c.Factors["congestion"]
		if has || c.Factors["device"] != "a board" {
			t.Errorf("got the cell %v, want the conditions named", c.Factors)
		}
	}
}

// TestHostileWords: nothing in a file steers a terminal or fills a page.
func TestHostileWords(t *testing.T) {
	text := bytes.Replace(file(t, iperf3Samples+"tcp-2.client.json"), []byte(`"start":`),
		[]byte(`"title": "\u001b[2J`+strings.Repeat("long ", 1000)+`\u202e", "start":`), 1)
	for n, level := range read(t, text, "")[0].Factors {
		if strings.ContainsAny(level, "\x1b\u202e\n") || len([]rune(level)) > 120 {
			t.Errorf("factor %s: %q", n, level)
		}
	}
}

// sampleTrial returns a trial of ours: two streams up, one down, and probes.
func sampleTrial() *record.Trial {
	const second = int64(1e9)
	origin := 5 * second
	flow := func(direction string, stream int, rate float64) record.Flow {
		table := record.NewTable("bytes")
		for i := range 51 {
			table.Append(origin+second+int64(i)*second/10, rate/8*float64(i)/10)
		}

		total := int64(rate / 8 * 5)
		return record.Flow{
			Direction:     direction,
			Stream:        stream,
			SentBytes:     total,
			ReceivedBytes: total,
			SenderNs:      5 * second,
			ReceiverNs:    5 * second,
			Received:      table,
		}
	}
	probe := &record.Latency{Probe: "echo", Stamps: "user", IntervalNs: 20e6}
	for i := range 300 {
		rtt := int64(2e6 + i*1000)
		if i%50 == 49 {
			rtt = -1
		}

		probe.SentAt, probe.RTT = append(probe.SentAt, origin+int64(i)*20e6), append(probe.RTT, rtt)
	}

	return &record.Trial{
		Row: record.Row{
			Assignment: record.Assignment{
				Block: 1,
				Index: 1,
				Kind:  record.RowLoad,
				Factors: record.Factors{
					"protocol": "tcp", "direction": "both", "streams": "2", "ip": "4"},
			},
			ID: "b1-r01",
		},
		TrialHead: record.TrialHead{
			ID: "b1-r01.1",
			Started: time.Date(2026,
				1, 2, 3, 4, 5, 0, time.UTC),
		},
		Run:     "20260102-030405-aaaa",
		Attempt: 1,
		Status:  record.TrialOK,
		Origin:  origin,
		Ended:   origin + 6*second,
		Window: record.Window{
			Begin: origin + second,
			Start: origin + second,
			End:   origin + 6*second,
			Stop:  origin + 6*second,
		},
		Traffic: &record.Traffic{
			Engine: "native",
			Load: record.Load{
				Protocol:  "tcp",
				Direction: record.Both,
				Streams:   2,
			},
			Flows: []record.Flow{flow(record.Up, 1, 100e6), flow(record.Up, 2, 60e6),
				flow(record.Down, 1, 40e6)},
		},
		Loaded: probe,
	}
}

// imported returns the trial of a result.
func imported(r foreign.Result) *record.Trial {
	_, trials := foreign.Run("20260102-030405-bbbb", time.Now(), []foreign.Source{{
		File:    "x",
		Results: []foreign.Result{r},
	}}, nil)
	return &trials[0]
}

func exported(t testing.TB, trial *record.Trial) []byte {
	t.Helper()
	var b bytes.Buffer
	must(t, foreign.WriteFlent(&b, trial, "two up, one down", "a note"))
	return b.Bytes()
}

// TestFlentThereAndBack: what goes out comes in with the same rates and the same round trips, and what came
// in goes out as it was.
func TestFlentThereAndBack(t *testing.T) {
	trial := sampleTrial()
	out := exported(t, trial)
	again := exported(t, trial)
	if !bytes.Equal(out, again) {
		t.Error("the same trial gave other bytes")
	}

	if got := foreign.Detect(bytes.NewReader(out)); got != "flent" {
		t.Fatalf("it looks like %q", got)
	}

	in := read(t, out, "")[0]
	want := map[string]int64{record.Up: 100e6, record.Down: 25e6} // bytes
	got := map[string]int64{}
	for _, f := range in.Traffic.Flows {
		got[f.Direction] += f.ReceivedBytes
	}

	for d, n := range want {
		if math.Abs(float64(got[d]-n)) > 2 {
			t.Errorf("%s: got %d bytes, want %d", d, got[d], n)
		}
	}

	var rtts, sent []int64
	for _, l := range []*record.Latency{in.Idle, in.Loaded} {
		if l != nil {
			rtts, sent = append(rtts, l.RTT...), append(sent, l.SentAt...)
		}
	}

	for i, w := range trial.Loaded.RTT {
		if i < len(rtts) && rtts[i] != w {
			t.Fatalf("probe %d: got %d ns, want %d", i, rtts[i], w)
		}

		at := trial.Loaded.SentAt[i] - trial.Origin
		if i < len(sent) && w >= 0 && sent[i]-at > 1000 {
			t.Fatalf("probe %d was sent at %d ns, want %d", i, sent[i], at)
		}
	}

	if n := len(trial.Loaded.RTT) - 1; len(rtts) != n { // that the last is lost, nothing after it tells
		t.Errorf("got %d probes, want %d", len(rtts), n)
	}

	second := read(t, exported(t, imported(in)), "")[0]
	expect.Same(t, "series after the second way out", in.Foreign.Series, second.Foreign.Series)
	expect.Same(t, "facts after the second way out", in.Foreign.Facts, second.Foreign.Facts)
	if !in.Began.Equal(second.Began) {
		t.Errorf("began %v, then %v", in.Began, second.Began)
	}
}

func TestFlentNeedsASeries(t *testing.T) {
	trial := sampleTrial()
	trial.Traffic, trial.Loaded = nil, nil
	expect.Error(t, "a trial of none", foreign.WriteFlent(io.Discard, trial, "", ""), foreign.ErrNoSeries)
}

// TestRunIsDatedByItsFiles: a run has the time of what was measured, as far as its files say, and is called
// by program and file.
func TestRunIsDatedByItsFiles(t *testing.T) {
	now := time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC)
	at := func(day int) time.Time { return time.Date(2026, 5, day, 10, 0, 0, 0, time.UTC) }
	quality := func(start string) foreign.Source {
		text := `{"dl_throughput": 5, "ul_throughput": 5, "start_date": "` + start + `"}`
		return foreign.Source{File: "mac.json", Results: read(t, []byte(text), "")}
	}
	ministat := func(comment string) foreign.Source {
		return foreign.Source{File: "n", Results: read(t, []byte(comment+"1\n2\n"), "ministat")}
	}
	for _, tt := range []struct {
		what    string
		sources []foreign.Source
		started time.Time
		name    string
		undated int // trials
	}{
		{"a date", []foreign.Source{quality("2026-05-01 10:00:00.000")}, at(1), "networkQuality: mac.json", 0},
		{"a date without a fraction", []foreign.Source{quality("2026-05-01 10:00:00")}, at(1),
			"networkQuality: mac.json", 0},
		{"a date with its zone", []foreign.Source{quality("2026-05-01T12:00:00+02:00")}, at(1),
			"networkQuality: mac.json", 0},
		{"the first of two", []foreign.Source{quality("2026-05-02 10:00:00"), quality("2026-05-01 10:00:00")},
			at(1), "networkQuality: 2 files", 0},
		{"no date", []foreign.Source{quality("soon")}, now, "networkQuality: mac.json", 1},
		{"a date of no calendar of ours", []foreign.Source{quality("9999-05-01 10:00:00")}, now,
			"networkQuality: mac.json", 1},
		{"numbers", []foreign.Source{ministat("")}, now, "ministat: n", 2},
		{"numbers of a run", []foreign.Source{ministat("# run 20260501-100000-abcd, goodput in bit/s; x\n")},
			at(1), "ministat: n", 0},
		{"a date and none", []foreign.Source{quality("2026-05-01 10:00:00"), ministat("")}, at(1),
			"networkQuality, ministat: 2 files", 2},
	} {
		run, trials := foreign.Run("20261128-090000-abcd", now, tt.sources, nil)
		if !run.Started.Equal(tt.started) || run.Ended.Before(run.Started) || !run.ImportedAt.Equal(now) {
			t.Errorf("%s: %v to %v, imported %v; want from %v", tt.what, run.Started, run.Ended,
				run.ImportedAt, tt.started)
		}

		if run.Design.Name != tt.name {
			t.Errorf("%s: the run is called %q, want %q", tt.what, run.Design.Name, tt.name)
		}

		undated := 0
		for _, trial := range trials {
			if strings.Contains(strings.Join(trial.Foreign.Lacks, ";"), "when it was measured") {
				undated++
				if !trial.Started.Equal(now) {
					t.Errorf("%s: an undated trial began %v", tt.what, trial.Started)
				}
			}
		}

		if undated != tt.undated {
			t.Errorf("%s: %d trials are undated, want %d", tt.what, undated, tt.undated)
		}
	}
}

// TestColumnsKeepTheirNames: what report --format ministat writes behind a cell's name is no part of the
// name, so that two runs can be compared.
func TestColumnsKeepTheirNames(t *testing.T) {
	var names []string
	for _, median := range []string{"5.81 Gbit/s, valid", "3 Gbit/s, suspect"} {
		text := "# 1: no tunnel: median of 2 " + median + "\n1\n2\n"
		results := read(t, []byte(text), "ministat")
		run, _ := foreign.Run("20261128-090000-abcd", time.Now(),
			[]foreign.Source{{File: "n", Results: results}}, nil)
		names = append(names, run.Design.Cells[0]["column"])
	}

	if names[0] != names[1] || !strings.Contains(names[0], "no tunnel") {
		t.Errorf("the column is called %q in one run and %q in the other", names[0], names[1])
	}
}

// TestForeignNumbersAreShown: what another program measured and no column has is in the summary, without a
// confidence that is ours; a number that it did not give has its reason.
func TestForeignNumbersAreShown(t *testing.T) {
	d := derive(t, nil, read(t, file(t, "testdata/networkquality.json"), "")...)
	text := strings.Join(d.Summary, "\n")
	for _, want := range []string{"540 RPM (fair).", "560 Mbit/s went down, 88.0 Mbit/s went up, " +
		"a request took 42.0 ms without load"} {
		if !strings.Contains(text, want) {
			t.Errorf("the summary lacks %q:\n%s", want, text)
		}
	}

	for _, p := range d.UnderLoad {
		for direction, w := range p.Directions {
			if w.Confidence != "" {
				t.Errorf("%s: confidence %s in one number of another program", direction, w.Confidence)
			}
		}
	}

	sequential := derive(t, nil, read(t, file(t, "testdata/networkquality-sequential.json"), "")...)
	if text := strings.Join(sequential.Summary, "\n"); !strings.Contains(text, "17.5 ms without load") {
		t.Errorf("the base round trip is not shown:\n%s", text)
	}

	mach := derive(t, nil, read(t, file(t, "testdata/mach.json"), "")...)
	if text := strings.Join(mach.Summary, "\n"); !strings.Contains(text,
		"12.5 ms without load, 231 ms under load") {
		t.Errorf("mach's latency is not shown:\n%s", text)
	}
}

// TestFewAnswersHaveAReason: too few round trips of irtt, or none, have no median, and the reason.
func TestFewAnswersHaveAReason(t *testing.T) {
	const trip = `{"lost": %q, "timestamps": {"client": {"send": {"monotonic": %d}}}, "delay": {"rtt": 5000}}`
	for _, lost := range [][]string{{"false"}, {"false", "true", "true"}, {"true", "true", "true_up"}} {
		var trips []string
		for i, l := range lost {
			trips = append(trips, fmt.Sprintf(trip, l, 1000+i*1000))
		}

		d := derive(t, nil, read(t, []byte(`{"version": {"irtt": "0.9.1", "json_format": 1}, "round_trips": [`+
			strings.Join(trips, ",")+`]}`), "irtt")...)
		const p50 = "rtt_idle_p50_ns"
		_, known := d.Cells[0].Metrics[p50]
		if known || d.Cells[0].Missing[p50] == "" {
			t.Errorf("%v: the median is known: %v, missing for %q", lost, known, d.Cells[0].Missing[p50])
		}
	}
}

// TestFormatsAreListed: each name is one that the reader takes.
func TestFormatsAreListed(t *testing.T) {
	for _, name := range foreign.Formats() {
		if _, err := foreign.ReadFile(strings.NewReader("~"), name); err == nil ||
			strings.Contains(err.Error(), "is not known") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
