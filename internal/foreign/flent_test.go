package foreign_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/chokepoint-lab/chokepoint/internal/foreign"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// flentText is composed in flent's format: durations as they were measured, a probe lost, some after the
// load, numbers from 3 on, values of other names, and metadata that names machines.
const flentText = `{"version": 3, "x_values": [0.0, 0.2, 0.4, 0.6],
"results": {"TCP download": [null, 91.5, 93.25, null], "Ping (ms) ICMP": [1.5, null, 30.25, 2]},
"raw_values": {
 "TCP download": [{"t": 1767323045.21, "val": 91.5, "dur": 0.1913, "tcp_cwnd": 12},
  {"t": 1767323045.387, "val": 93.25, "dur": 0.17712}],
 "Ping (ms) ICMP": [{"t": 1767323045.0313, "val": 1.5, "seq": 3.0}, {"t": 1767323045.4, "val": 30.25, "seq": 5.0},
  {"t": 1767323045.6009998, "val": 2, "seq": 6.0}],
 "qdisc_stats_router": [{"t": 1767323045.2, "delay": null, "dropping": "dropping", "peer \" ": "10.0.0.9"}]},
"metadata": {"NAME": "tcp_download", "TITLE": "a title", "NOTE": null, "TIME": "2026-01-02T03:04:04.900000Z",
 "T0": "2026-01-02T03:04:05.000000Z", "HOST": "router-2", "LOCAL_HOST": "192.0.2.7", "FLENT_VERSION": "1.0.1-git-1cfb649",
 "IP_VERSION": 4, "LENGTH": 60, "TOTAL_LENGTH": 70, "STEP_SIZE": 0.2, "KERNEL_NAME": "Linux",
 "SYSCTLS": {"net.core.rmem_max": 16777216, "net.ipv4.tcp_rmem": "4096 87380 6291456"}, "MODULE_VERSIONS": {"sch_cake": "1.1"},
 "EGRESS_INFO": {"driver": "e1000e", "nexthop": "10.60.1.2", "link_params": {"ether": "02:00:00:14:03:31"},
  "qdiscs": [{"id": "1:1"}], "tc_stats": ["Sent 254810910299 bytes 200692829 pkt"]},
 "REMOTE_METADATA": {"router": {"KERNEL_RELEASE": "6.1.0"}, "2001:db8::5": null}, "GATEWAYS": [{"iface": "eth0", "ip": "10.0.0.1"}],
 "IP_ADDRS": {"lo": ["127.0.0.1", "::1"], "eth0": ["fe80::1%eth0", "198.51.100.4/24"]},
 "HTTP_GETTER_WORKERS": 4, "HTTP_GETTER_URLLIST": "http://me:hunter2@router-2/list",
 "TEST_PARAMETERS": {"wifi_password": "hunter2"},
 "SERIES_META": {"TCP download": {"UNITS": "Mbits/s", "RUNNER": "NetperfDemoRunner",
  "COMMAND": "netperf -L 10.60.1.1 -H router-2 -p 12865"}, "Ping (ms) ICMP": {"UNITS": "ms", "RUNNER": "PingRunner"}}}}`

// unzipped is what a file of flent's holds.
func unzipped(t *testing.T, text []byte) (out map[string]any) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(text))
	if err == nil {
		err = json.NewDecoder(z).Decode(&out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestFlentIsTheSame: a file goes out as it came in, but for addresses and passwords.
func TestFlentIsTheSame(t *testing.T) {
	in := read(t, []byte(flentText), "")
	_, trials := foreign.Run("20260102-030405-cccc", time.Now(), []foreign.Source{{File: "x", Results: in}},
		nil)
	out := exported(t, &trials[0])
	public := strings.NewReplacer("10.0.0.9", "(address)", "192.0.2.7", "(address)", "10.60.1.2", "(address)",
		"02:00:00:14:03:31", "(address)", "2001:db8::5", "(address)", "10.0.0.1", "(address)",
		"fe80::1%eth0", "(address)", "198.51.100.4/", "(address)/", "me:hunter2@", "", `"hunter2"`, "null",
		"10.60.1.1", "(address)")
	var want map[string]any
	if err := json.Unmarshal([]byte(public.Replace(flentText)), &want); err != nil {
		t.Fatal(err)
	}
	got := unzipped(t, out)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the file (-as it came +as it went):\n%s", diff)
	}
	for _, v := range trials[0].Foreign.Facts {
		if strings.Contains(v, "192.0.2.7") {
			t.Errorf("a fact is %q", v)
		}
	}
	again := read(t, out, "")
	if diff := cmp.Diff(in, again, cmpopts.EquateNaNs()); diff != "" {
		t.Errorf("what is read of both (-first +second):\n%s", diff)
	}
}

// TestFlentRawIsMeasured: a series on the axis of a trial of ours is not shown as raw, probes are.
func TestFlentRawIsMeasured(t *testing.T) {
	trial := sampleTrial()
	raw := unzipped(t, exported(t, &trial))["raw_values"].(map[string]any)
	if _, has := raw["TCP upload"]; has || len(raw) != 1 {
		t.Errorf("got raw values of %d series, want those of probes alone", len(raw))
	}
	answered := 0
	for _, rtt := range trial.Loaded.RTT {
		if rtt >= 0 {
			answered++
		}
	}
	if n := len(raw["Ping (ms) ICMP"].([]any)); n != answered {
		t.Errorf("got %d raw round trips, want %d", n, answered)
	}
	lasting := record.Table{Names: []string{"bytes"}, T: []int64{trial.Origin, trial.Origin + 1e9},
		V: [][]float64{{0, 1e6}}}
	trial.Loaded, trial.Window.Begin, trial.Window.Start = nil, trial.Origin, trial.Origin
	trial.Traffic.Flows = trial.Traffic.Flows[:1]
	trial.Traffic.Flows[0].Received = &lasting
	if n := read(t, exported(t, &trial), "")[0].Traffic.Flows[0].ReceivedBytes; n < 1e6-2 || n > 1e6+2 {
		t.Errorf("got %d bytes, want 1000000 with those of the first step", n)
	}
}
