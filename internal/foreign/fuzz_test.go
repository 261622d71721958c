package foreign_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/foreign"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// fuzz holds a reader to this: no text makes it panic; an error is an *Error within the text; of what it
// takes, every number is one, times ascend where they must, and it makes a run that can go out again.
func fuzz(f *testing.F, format string, seeds ...string) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}

	f.Fuzz(func(t *testing.T, text []byte) {
		results, err := foreign.ReadFile(bytes.NewReader(text), format)
		if err != nil {
			e, ok := errors.AsType[*foreign.Error](err)
			if !ok || e.Line < 0 || e.Offset < 0 || results != nil {
				t.Fatalf("got %v with %d results", err, len(results))
			}
			return
		}

		results, left := sorted(results)
		if len(left) > 0 && len(results) == 0 {
			t.Fatalf("%d parts left out, and no result", len(left))
		}

		for i := range results {
			sound(t, &results[i])
		}

		run, trials := foreign.Run("20260102-030405-abcd", time.Unix(1, 0), []foreign.Source{{
			File:    "f",
			Results: results,
		}}, nil)
		if len(trials) != len(results) || len(trials) == 0 || len(run.ImportedFrom) == 0 {
			t.Fatalf("%d results made %d trials", len(results), len(trials))
		}

		for i := range trials[:min(len(trials), 2)] {
			var b bytes.Buffer
			err := foreign.WriteFlent(&b, &trials[i], "", "")
			if err != nil && !errors.Is(err, foreign.ErrNoSeries) {
				t.Fatalf("out again: %v", err)
			}
		}
	})
}

func sound(t *testing.T, r *foreign.Result) {
	for name, v := range r.Foreign.Values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			t.Fatalf("%s is %g", name, v)
		}
	}

	if r.Window.End < r.Window.Start || r.Window.Start < 0 {
		t.Fatalf("window %+v", r.Window)
	}

	if r.Traffic != nil {
		for _, fl := range r.Traffic.Flows {
			if fl.ReceivedBytes < 0 || fl.SentBytes < 0 || fl.ReceiverNs < 0 {
				t.Fatalf("flow %+v", fl)
			}
		}
	}

	for _, l := range []*record.Latency{r.Idle, r.Loaded} {
		if l != nil && len(l.RTT) != len(l.SentAt) {
			t.Fatalf("%d round trips, %d times", len(l.RTT), len(l.SentAt))
		}
	}
}

func FuzzIperf3(f *testing.F) {
	fuzz(f, "iperf3", string(file(f, iperf3Samples+"tcp-2.client.json")),
		string(file(f, iperf3Samples+"udp-bidir.client.json")),
		string(file(f, iperf3Samples+"refused.client.json")),
		`{"event":"start","data":{"test_start":{"protocol":"TCP","num_streams":1}}}`+"\n"+
			`{"event":"end","data":{"streams":[{"sender":{"bytes":1,"end":1},"receiver":{"bytes":1,"end":1}}]}}`,
		string(file(f, iperf3Samples+"tcp-3.printed.txt")),
		string(file(f, iperf3Samples+"udp-bidir.printed.txt")),
		string(file(f, iperf3Samples+"server.printed.txt")), "iperf3: error - no\n"+iperf3Error,
		iperf3Error+"\n"+iperf3Error, "$ iperf3 -J\n```\n"+iperf3Error+"\n```\n",
		`{"event":"start","data":{}}{"event":"error","data":"no"}{"event":"start","data":{}}{"start":{}}`)
}

func FuzzFlent(f *testing.F) {
	fuzz(f, "flent", `{"version":4,"x_values":[0,0.2,0.4],"results":{"TCP upload":[1,null,3],"Ping (ms) ICMP":[1,2,3]},`+
		`"raw_values":{"TCP upload":[{"t":1767225600.2,"val":5,"dur":0.2},{"t":1767225600.4,"val":5,"dur":0.2}],`+
		`"Ping (ms) ICMP":[{"t":1767225600.3,"val":5.5,"seq":1},{"t":1767225600.5,"val":6,"seq":4}]},`+
		`"metadata":{"NAME":"tcp_upload","T0":"2026-01-01T00:00:00.000000Z","STEP_SIZE":0.2,"SERIES_META":`+
		`{"TCP upload":{"UNITS":"Mbits/s"}}}}`, flentText, flentPeople,
		hostPings([]string{"Ping (ms) ICMP a", "Ping (ms) ICMP b"}, []float64{2, 0}, []float64{40, 3}))
}

func FuzzIRTT(f *testing.F) {
	fuzz(f, "irtt", `{"version":{"irtt":"0.9.1","json_format":1},"config":{"params":{"interval":1000000,"length":60},`+
		`"ip_version":"IPv4"},"stats":{"duplicates":0},"round_trips":`+
		`[{"lost":false,"timestamps":{"client":{"send":{"wall":1767225600000001000,"monotonic":1000}}},"delay":{"rtt":5000}},`+
		`{"lost":"true_up","timestamps":{"client":{"send":{"wall":1767225600001001000}}},"delay":{}}]}`)
}

func FuzzCrusader(f *testing.F) {
	fuzz(f, "crusader", `{"version":2,"generated_by":"Crusader 0.3","config":{"load_duration":{"secs":2,"nanos":0}},`+
		`"stream_groups":[{"download":true,"both":false,"streams":[{"data":[{"time":{"secs":1,"nanos":0},"bytes":0},`+
		`{"time":{"secs":3,"nanos":5},"bytes":100}]}]}],"pings":[{"sent":{"secs":0,"nanos":1},"latency":{"total":`+
		`{"secs":0,"nanos":7}}},{"sent":{"secs":2,"nanos":1},"latency":null}],"test_data":[{"start":{"secs":1,"nanos":0},`+
		`"kind":"Download"}]}`)
}

func FuzzNetworkQuality(f *testing.F) {
	fuzz(f, "networkquality", string(file(f, "testdata/networkquality.json")),
		string(file(f, "testdata/mach.json")), string(file(f, "testdata/networkquality-sequential.json")), `{"error_code":-1009}`)
}

func FuzzOpenSSL(f *testing.F) {
	fuzz(f, "openssl", string(file(f, "testdata/openssl.txt")), string(file(f, "testdata/openssl-mr.txt")),
		engineText+elapsedText+doingText+tableText+lowText, engineText+machineText,
		"+H:16:1024\n+F:1:sha1:nan:5.00\n", "type 16 bytes\nsha1 infk\n")
}

func FuzzWGBench(f *testing.F) { fuzz(f, "wg-bench", string(file(f, "testdata/wg-bench.md")), wgTable) }

func FuzzMinistat(f *testing.F) {
	fuzz(f, "ministat", string(file(f, "testdata/ministat.txt")), "1 2\n3", "1 -nan\ninf 2\n", "x a.txt\n"+
		"    N           Min           Max        Median           Avg        Stddev\nx 7 50 750 200 300 238.0\n")
}

// FuzzAny: whatever it is taken for, and however it is packed.
func FuzzAny(f *testing.F) {
	trial := sampleTrial()
	trial.Loaded.RTT, trial.Loaded.SentAt = trial.Loaded.RTT[:3], trial.Loaded.SentAt[:3]
	fuzz(f, "", string(exported(f, trial)), "BZh91AY&SY", "+H:16\n", "| a | b | 1 bits/sec |",
		`{"event":"start"}`,
		string(units("\ufeff1\r\n2\r\n", binary.LittleEndian)), string(units("1\n2\n", binary.BigEndian)),
		"\ufeff"+qualityText+"\ufeff"+qualityError, "["+irttText+","+irttText+"]", `{"dl_throughput":-nan(ind)}`,
		`{"ul_throughput":	nan,"responsiveness":inf}`)
}
