package foreign_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/foreign"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// flentText follows flent's format: durations as measured, a lost probe, some after the load, sequence
// numbers from 3 on, values of other names, and metadata that names machines.
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

// unzipped returns the content of a flent file.
func unzipped(t *testing.T, text []byte) (out map[string]any) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(text))
	if err == nil {
		err = json.NewDecoder(z).Decode(&out)
	}

	must(t, err)
	return out
}

// TestFlentIsTheSame: a file goes out as it came in, but for addresses and passwords.
func TestFlentIsTheSame(t *testing.T) {
	in := read(t, []byte(flentText), "")
	trial := imported(in[0])
	out := exported(t, trial)
	public := strings.NewReplacer("router-2", "(host 1)", "192.0.2.7", "(address 2)",
		"2001:db8::5", "(address 3)", `"router":`, `"(host 4)":`, "10.0.0.9", "(address 5)",
		"10.60.1.2", "(address 6)", "02:00:00:14:03:31", "(address 7)", "10.0.0.1", "(address 8)",
		"fe80::1%eth0", "(address 9)", "198.51.100.4/", "(address 10)/", "me:hunter2@", "",
		`"hunter2"`, "null", "10.60.1.1", "(address 11)")
	var want map[string]any
	must(t, json.Unmarshal([]byte(public.Replace(flentText)), &want))
	got := unzipped(t, out)
	expect.Same(t, "the file", want, got)
	for _, v := range trial.Foreign.Facts {
		if strings.Contains(v, "192.0.2.7") {
			t.Errorf("a fact is %q", v)
		}
	}

	again := read(t, out, "")
	expect.Same(t, "what is read of both", in, again)
}

// scrubbed returns what is read of a flent file, which is read of its export too, and all that is kept of it
// or exported, which holds none of the secrets.
func scrubbed(t *testing.T, text string, secrets ...string) (foreign.Result, string) {
	t.Helper()
	in := read(t, []byte(text), "")
	trial := imported(in[0])
	out := exported(t, trial)
	expect.Same(t, "what is read of both", in, read(t, out, ""))
	b, err := json.Marshal([]any{unzipped(t, out), trial})
	must(t, err)
	for _, secret := range secrets {
		if bytes.Contains(b, []byte(secret)) {
			t.Errorf("%s stays:\n%s", secret, b)
		}
	}

	return in[0], string(b)
}

// TestFlentRawIsMeasured: a series on the axis of a trial of ours is not shown as raw, probes are.
func TestFlentRawIsMeasured(t *testing.T) {
	trial := sampleTrial()
	raw := unzipped(t, exported(t, trial))["raw_values"].(map[string]any)
	_, has := raw["TCP upload"]
	if has || len(raw) != 1 {
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

	lasting := record.Table{
		Names: []string{"bytes"},
		T:     []int64{trial.Origin, trial.Origin + 1e9},
		V:     [][]float64{{0, 1e6}},
	}
	trial.Loaded, trial.Window.Begin, trial.Window.Start = nil, trial.Origin, trial.Origin
	trial.Traffic.Flows = trial.Traffic.Flows[:1]
	trial.Traffic.Flows[0].Received = &lasting
	if n := read(t, exported(t, trial), "")[0].Traffic.Flows[0].ReceivedBytes; n < 1e6-2 || n > 1e6+2 {
		t.Errorf("got %d bytes, want 1000000 with those of the first step", n)
	}
}

// TestFlentNamesNobody: whatever a file calls its machines, nothing of what is made of it does, and series
// that are called by them stay apart.
func TestFlentNamesNobody(t *testing.T) {
	const file = `{"version": 4, "x_values": [0.2, 0.4], "results": {"TCP upload BE 192.0.2.1": [1, 2],
"TCP upload BE 192.0.2.2": [3, 4], "TCP upload BE far.example.org": [5, 6], "TCP download::2": [1, 1],
"Ping (ms) ICMP 192.0.2.1": [9, 9]},
"raw_values": {"TCP upload BE 192.0.2.1": [{"t": 1767323045.2, "val": 1, "dur": 0.2, "by": "me@192.0.2.1"}]},
"metadata": {"NAME": "rtt_fair at 192.0.2.1", "TITLE": "ping to 192.0.2.1, src:2001:db8::7 via pc-5:22",
 "T0": "2026-01-02T03:04:05.000000Z", "HOST": "192.0.2.1", "HOSTS": ["192.0.2.1", "192.0.2.2", "far.example.org:12865"],
 "LOCAL_HOST": "pc-5", "NOTE": "at home: 192.0.2.1-192.0.2.2, wan-192.0.2.9.53, pc-5, enx020000140331, 127.0.0.1 in 5 ms",
 "REMOTE_METADATA": {"root@gate": {"LOCAL_HOST": "pc-6"}}, "EGRESS_INFO": {"qdiscs": [{"id": "8001:", "parent": "1:10"}],
 "iface": "ether:02:00:00:14:03:31", "sw": "0200.0014.0331"},
 "SERIES_META": {"TCP upload BE 192.0.2.1": {"UNITS": "Mbits/s", "COMMAND": "ssh root@gate netperf -H 192.0.2.1:5"}}}}`
	in, _ := scrubbed(t, file, "192.0.2", "2001:db8", "example", "pc-5", "pc-6", "gate", "root", "0331",
		"me@")
	want := []string{"Ping (ms) ICMP (address 1)", "TCP download::2", "TCP upload BE (address 1)",
		"TCP upload BE (address 2)", "TCP upload BE (host 3)"}
	expect.Same(t, "series", want, in.Foreign.Series.Names)
	const wantNote = "at home: (address 1)-(address 2), wan-(address 10).53, (host 4), (address 11), " +
		"127.0.0.1 in 5 ms"
	got := in.Foreign.Facts["NOTE"]
	if got != wantNote {
		t.Errorf("got %q, want %q", got, wantNote)
	}

	n := len(in.Traffic.Flows)
	if n != 4 {
		t.Errorf("got %d flows, want 4", n)
	}
}

// homes is spelt so that the tree holds no path of a developer's machine.
const homes = "/" + "home"

// flentPeople names somebody, his network, his files and his device, in keys and in words.
const flentPeople = `{"version": 4, "x_values": [0.2, 0.4], "results": {"TCP upload": [1, 2],
"Ping (ms) ICMP Zorkwell": [9, 9]},
"raw_values": {"TCP upload": [{"t": 1767323045.2, "val": 1, "dur": 0.2, "ssid": "Zorkwell Nest 5G"}]},
"metadata": {"NAME": "` + homes + `/zorkwell/tests/mine", "TITLE": "kitchen, SSID: Attic-7, user=qwertz",
 "T0": "2026-01-02T03:04:05.000000Z", "NOTE": "by qwertz, mail to asdf.jkl@example.org, on Zorkwell Nest 5G",
 "WIFI": {"SSID": "Zorkwell Nest 5G", "signal": -50, "channel": "36"}, "USER": "zorkwell", "BATCH_UUID": "f00d-1",
 "EGRESS_INFO": {"driver": "ath9k", "serial_number": "ZX81-4711", "SERIAL": 4712, "iface": "wlx020000140331"},
 "DATA_FILENAME": "/mnt/my disk/Zork Well/rrul.flent.gz", "LOG": "C:\\Users\\Yuiop\\flent.log",
 "TEST_PARAMETERS": {"cmd": "~/bin/x --serial=ZX82 /sys/class/net/eth0 -o=/srv/zorkstore/a"},
 "HTTP_GETTER_URLLIST": "https://zork:pw@localhost/a/b", "SHARE": "\\\\nas\\zorkfiles",
 "SERIES_META": {"TCP upload": {"UNITS": "Mbits/s", "COMMAND": "/usr/bin/netperf -F ` + homes + `/zorkwell/f -H localhost"},
  "Ping (ms) ICMP Zorkwell": {"UNITS": "ms"}}}}`

// TestFlentScrubsPeople: nothing that is kept or goes out names a person, a network, a folder or a serial
// number, wherever it stands; what a system calls its own files stays.
func TestFlentScrubsPeople(t *testing.T) {
	_, all := scrubbed(t, flentPeople, "zorkwell", "Nest", "Attic", "qwertz", "asdf", "ZX8", "4711", "4712",
		"f00d", "my disk", "Zork Well", "Yuiop", "zorkstore", "zork:", "zorkfiles", "example", "0331")
	for _, stays := range []string{"/usr/bin/netperf -F", "/sys/class/net/eth0", "https://localhost/a/b",
		"ath9k", `"channel":"36"`, `"signal":-50`, `"NAME":"mine"`, "kitchen"} {
		if !strings.Contains(all, stays) {
			t.Errorf("%s is lost:\n%s", stays, all)
		}
	}
}

// TestFlentRawIsAList: flent reads raw values that are none as a list without any, and as an object.
func TestFlentRawIsAList(t *testing.T) {
	trial := sampleTrial()
	for i := range trial.Loaded.RTT {
		trial.Loaded.RTT[i] = -1
	}

	raw := unzipped(t, exported(t, trial))["raw_values"]
	expect.Same(t, "of lost probes", map[string]any{"Ping (ms) ICMP": []any{}}, raw)
	for _, none := range []string{"", `"raw_values": null, `} {
		in := read(t, []byte(`{"version": 4, "x_values": [0.2, 0.4], "results": {"TCP upload": [1, 2]}, `+none+
			`"metadata": {"T0": "2026-01-02T03:04:05.000000Z"}}`), "")
		raw := unzipped(t, exported(t, imported(in[0])))["raw_values"]
		expect.Same(t, fmt.Sprintf("of a file with %q", none), map[string]any{}, raw)
	}
}

// hostPings makes a flent test with round trips to several hosts, each with its idle and loaded round trip in
// ms; 0 is no answer. The load is on from 1 s to 3 s.
func hostPings(series []string, idle, loaded []float64) string {
	var results, raw []string
	for i, n := range series {
		var points []string
		for k := range 30 {
			at := float64(k) / 10
			rtt := idle[i]
			if at >= 1 {
				rtt = loaded[i]
			}

			if rtt > 0 {
				points = append(points, fmt.Sprintf(`{"t": %f, "val": %g, "seq": %d}`, 1767323045+at+rtt/1e3, rtt, k))
			}
		}

		results = append(results, fmt.Sprintf("%q: [null, null]", n))
		raw = append(raw, fmt.Sprintf("%q: [%s]", n, strings.Join(points, ",")))
	}
	return `{"version": 4, "x_values": [1, 3], "results": {"TCP upload": [5, 5],` + strings.Join(results, ",") +
		`}, "raw_values": {"TCP upload": [{"t": 1767323047, "val": 5, "dur": 1}, {"t": 1767323048, "val": 5, "dur": 1}],` +
		strings.Join(raw, ",") + `}, "metadata": {"NAME": "rtt_fair", "T0": "2026-01-02T03:04:05.0Z"}}`
}

// TestFlentHosts: of several series of round trips the worst is taken and named, and all are listed; those of
// ICMP go before others, and a host that answers little hides no other.
func TestFlentHosts(t *testing.T) {
	const a, b, c = "Ping (ms) ICMP a", "Ping (ms) ICMP b", "Ping (ms) ICMP c"
	for _, tt := range []struct {
		name         string
		series       []string
		idle, loaded []float64
		want         string
		loadedMs     float64
		listed       []string
	}{
		{"the last", []string{a, b, c}, []float64{20, 5, 4}, []float64{21, 6, 55}, c, 55,
			[]string{"worst of 3 series, " + c, a + ": idle 20.0 ms, under load 21.0 ms", c +
				": idle 4.00 ms, under load 55.0 ms"}},
		{"the far one is not the worst", []string{a, b}, []float64{200, 2}, []float64{201, 40}, b, 40,
			[]string{"worst of 2 series, " + b}},
		{"one without an answer", []string{a, b}, []float64{0, 2}, []float64{0, 40}, b, 40,
			[]string{a + ": no answer"}},
		{"one without an answer under load", []string{a, b}, []float64{9, 2}, []float64{0, 4}, b, 4,
			[]string{a + ": idle 9.00 ms, no answer under load"}},
		{"ICMP beside other kinds", []string{"Ping (ms) UDP BE", "Ping (ms) ICMP", "Ping (ms) avg"},
			[]float64{2, 2, 2}, []float64{90, 30, 60}, "Ping (ms) ICMP", 30, nil},
		{"other kinds alone", []string{"Ping (ms) UDP BE", "Ping (ms) UDP BK"}, []float64{2, 2},
			[]float64{9, 30}, "Ping (ms) UDP BK", 30, []string{"worst of 2 series, Ping (ms) UDP BK"}},
		{"numbered", []string{"Ping (ms) ICMP::1", "Ping (ms) ICMP::2", "Ping (ms) ICMP::delay_up"},
			[]float64{2, 2, 2}, []float64{9, 30, 90}, "Ping (ms) ICMP::2", 30, []string{"of 2 series"}},
	} {
		r := read(t, []byte(hostPings(tt.series, tt.idle, tt.loaded)), "")[0]
		if r.Loaded == nil || float64(r.Loaded.RTT[3]) != tt.loadedMs*1e6 ||
			!strings.HasSuffix(r.Loaded.Includes, tt.want) {
			t.Errorf("%s: got the round trips %+v, want those of %s", tt.name, r.Loaded, tt.want)
		}

		d := derive(t, nil, r)
		var caveats []string
		for _, k := range d.Trials[0].Caveats {
			caveats = append(caveats, k.Text)
		}

		if len(caveats) > 0 != (len(tt.listed) > 0) {
			t.Errorf("%s: said %q", tt.name, caveats)
		}

		for _, want := range tt.listed {
			if !strings.Contains(strings.Join(caveats, " "), want) {
				t.Errorf("%s: got %q, want %q in it", tt.name, caveats, want)
			}
		}
	}
}
