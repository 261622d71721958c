package driver_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/rest"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// opnAnswers are the files of testdata by the questions that they answer.
var opnAnswers = map[string]string{
	"diagnostics/system/system_information":       "system_information.json",
	"diagnostics/cpu_usage/get_c_p_u_type":        "cpu_type.json",
	"diagnostics/system/system_resources":         "system_resources.json",
	"diagnostics/system/system_temperature":       "temperature.json",
	"diagnostics/traffic/interface":               "interfaces.json",
	"diagnostics/interface/get_routes":            "routes.json",
	"diagnostics/interface/get_netisr_statistics": "netisr.json",
	"diagnostics/firewall/pf_statistics/info":     "pf_info.json",
	"diagnostics/firewall/pf_states":              "pf_states.json",
	"diagnostics/activity/get_activity":           "activity.json",
	"wireguard/service/show":                      "wireguard.json",
}

const opnKey, opnSecret = "a/key+of=", "s3cret"

// opnRouter answers as OPNsense did, with its clock running; some questions it answers otherwise, "" of which
// are refused.
func opnRouter(t *testing.T, otherwise map[string]string) host.Host {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		path := strings.TrimPrefix(q.URL.Path, "/api/")
		key, secret, _ := q.BasicAuth()
		answer, other := otherwise[path]
		switch file := opnAnswers[path]; {
		case key != opnKey || secret != opnSecret:
			w.WriteHeader(http.StatusUnauthorized)
		case q.Method != http.MethodGet, file == "", other && answer == "":
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"status":403,"message":"Forbidden"}`)
		case other:
			_, _ = io.WriteString(w, answer)
		default:
			b, err := os.ReadFile(filepath.Join("testdata/opnsense", file))
			if err != nil {
				t.Error(err)
			}
			if now := time.Now(); file == "interfaces.json" { // which the recorded one lacks
				b = bytes.Replace(b, []byte("{"), fmt.Appendf(nil, `{"time": %d.%06d, `, now.Unix(),
					now.Nanosecond()/1e3), 1)
			}
			_, _ = w.Write(b)
		}
	}))
	t.Cleanup(s.Close)
	at, err := rest.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	c, err := rest.Dial(t.Context(), at, rest.Options{
		Password:    host.SecretFrom([]byte(opnKey + ":" + opnSecret)),
		Certificate: fmt.Sprintf("SHA256:%x", sha256.Sum256(s.Certificate().Raw))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.Commands()
}

// hasty is a router that is asked more often than a driver wants.
type hasty struct{ host.Host }

func (h hasty) Repeat(ctx context.Context, c host.Command, _ time.Duration) (host.Process, error) {
	return h.Host.(host.Repeater).Repeat(ctx, c, 50*time.Millisecond)
}

func TestOPNsense(t *testing.T) {
	t.Parallel()
	labtest.DriverSuite(t, driver.OPNsense{}, opnRouter(t, nil), nil, "igb0", "igb1")
}

// TestOPNsenseTells: what the recorded answers hold.
func TestOPNsenseTells(t *testing.T) {
	h, d := opnRouter(t, nil), driver.OPNsense{}
	facts, err := d.Facts(t.Context(), h)
	if diff := cmp.Diff(map[string]string{"os": "freebsd", "distribution": "opnsense",
		"distribution_version": "24.1.3_1", "kernel": "FreeBSD 14.0-CURRENT",
		"cpu_model": "Intel(R) Xeon(R) CPU E3-1265L v3 @ 2.50GHz", "cpu_cores": "4", "cpu_threads": "8",
		"memory_bytes": "8589934592", "device:igb0:mtu": "1500", "device:igb0:driver": "igb",
		"device:igb0:speed_mbps": "1000", "device:igb1:mtu": "9000", "device:igb1:driver": "igb"},
		facts); err != nil || diff != "" {
		t.Errorf("facts (-want +got): %v\n%s", err, diff)
	}
	counters, err := d.Counters(t.Context(), h, []string{"igb0"})
	if diff := cmp.Diff(map[string]kernel.LinkCounters{"igb0": {RxBytes: 98765432, RxPackets: 123456,
		RxErrors: 1, RxDropped: 3, TxBytes: 87654321, TxPackets: 654321, TxErrors: 2}},
		counters); err != nil || diff != "" {
		t.Errorf("counters (-want +got): %v\n%s", err, diff)
	}
	if _, err := d.Counters(t.Context(), h, []string{"igb7"}); err == nil || check.HintOf(err) == "" {
		t.Errorf("counters of a device that is not assigned: got %v, want an error with a hint", err)
	}
	at := func(text string) netip.Addr { a, _ := netip.ParseAddr(text); return a }
	ways, own, err := d.Ways(t.Context(), h, []netip.Addr{at("192.0.2.5"), at("192.0.2.200"),
		at("203.0.113.7"), at("8.8.8.8"), at("2001:db8:1::7"), at("2001:db8:2::7"), at("192.0.2.1")})
	if diff := cmp.Diff([]kernel.Way{{Device: "igb1"}, {Device: "igb1", Via: at("192.0.2.9")},
		{}, {Device: "igb0", Via: at("198.51.100.1")},
		{Device: "igb1"}, {Device: "igb0", Via: at("fe80::1")}, {Device: "lo0"}}, ways,
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); err != nil || diff != "" {
		t.Errorf("ways (-want +got): %v\n%s", err, diff)
	}
	want := []netip.Addr{at("192.0.2.1"), at("198.51.100.2"), at("2001:db8:1::1")}
	if !slices.Equal(own, want) {
		t.Errorf("its own addresses: got %v, want %v", own, want)
	}
	for knob, want := range map[string]string{"link_mtu": "driver freebsd reads and sets it",
		"nat": "Firewall, NAT", "sysctl:net.isr.dispatch": "driver freebsd reads and sets it", "flowtable": "no such thing"} {
		s := record.Setting{Knob: knob, Value: "1"}
		_, err := d.Read(t.Context(), h, s)
		for _, err := range []error{err, d.Apply(t.Context(), h, s)} {
			if !errors.Is(err, host.ErrUnsupported) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", knob, err, want)
			}
		}
	}
}

// last are the last values of a series' columns that end in a stem.
func last(d record.NodeData, probe string) map[string]float64 {
	out := map[string]float64{}
	for _, s := range d.Samples {
		if s.Probe == probe && s.Table != nil {
			for _, column := range s.Table.Names {
				v := s.Table.Column(column)
				out[column] = v[len(v)-1]
			}
		}
	}
	return out
}

// TestOPNsenseSamples: the series of the recorded answers; a core's shares are of the time between samples.
func TestOPNsenseSamples(t *testing.T) {
	t.Parallel()
	w, err := driver.OPNsense{}.Watch(t.Context(), hasty{opnRouter(t, nil)}, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	from := host.Monotonic()
	d, err := w.Collect(t.Context(), from, from+int64(500*time.Millisecond))
	if err := errors.Join(err, w.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	for probe, want := range map[string]map[string]float64{
		"netdev": {"igb0/rx_bytes": 98765432, "igb0/rx_packets": 123456, "igb0/rx_errors": 1,
			"igb0/rx_dropped": 3,
			"igb0/tx_bytes":   87654321, "igb0/tx_packets": 654321, "igb0/tx_errors": 2, "igb0/tx_dropped": 0,
			"igb0/tx_collisions": 0, "igb1/rx_bytes": 0, "igb1/rx_packets": 0, "igb1/rx_errors": 0,
			"igb1/rx_dropped": 0, "igb1/tx_bytes": 0, "igb1/tx_packets": 0, "igb1/tx_errors": 0,
			"igb1/tx_dropped": 1, "igb1/tx_collisions": 0},
		"softnet": {"cpu/processed": 346, "cpu/dropped": 4, "cpu/backlog": 11, "cpu0/processed": 129,
			"cpu0/dropped": 1, "cpu0/backlog": 7, "cpu1/processed": 217, "cpu1/dropped": 3, "cpu1/backlog": 4},
		"conntrack": {"entries": 14132, "max": 200000, "drop": 0, "insert_failed": 1623},
		"thermal":   {"thermal0/temperature_c": 45.5, "cpu0/temperature_c": 62},
		"memory":    {"total_bytes": 8589934592, "free_bytes": 8589934592 - 4294967296},
	} {
		if diff := cmp.Diff(want, last(d, probe)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", probe, diff)
		}
	}
	peers := last(d, "wireguard")
	if age := peers["wg0.peer0/handshake_age_ns"]; peers["wg0.peer0/rx_bytes"] != 123456789 ||
		peers["wg0.peer0/tx_bytes"] != 987654321 || age < 1e16 || age > 1e19 || len(peers) != 5 {
		t.Errorf("peers: got %v, want two, one of which has met nobody", peers)
	}
	cpu, threads := last(d, "cpu"), last(d, "kthreads")
	total := cpu["cpu0/idle_ns"] + cpu["cpu0/softirq_ns"] + cpu["cpu0/system_ns"]
	if total < 0.4e9 || total > 60e9 { // half a second, and how late the machine is
		t.Fatalf("the first core has worked and rested %v s in %v", total/1e9, cpu)
	}
	share := func(column string, of map[string]float64) float64 { return 100 * of[column] / total }
	got := map[string]float64{}
	for column := range cpu {
		got[column] = share(column, cpu)
	}
	got["wg"] = share("wg-crypt/kthread_cpu_ns", threads)
	want := map[string]float64{"cpu0/idle_ns": 0.39, "cpu0/softirq_ns": 99.12, "cpu0/system_ns": 0.49,
		"cpu0/irq_ns": 0, "cpu0/user_ns": 0,
		"cpu1/idle_ns": 98, "cpu1/softirq_ns": 0.5, "cpu1/irq_ns": 0.25, "cpu1/user_ns": 0.5,
		"cpu1/system_ns": 0.75, "wg": 1}
	near := cmp.Comparer(func(a, b float64) bool { return max(a-b, b-a) < 0.01 })
	if diff := cmp.Diff(want, got, near); diff != "" {
		t.Errorf("shares of the cores (-want +got):\n%s", diff)
	}
}

// TestOPNsenseOdd: a router with many threads, or with one core, or that tells no numbers.
func TestOPNsenseOdd(t *testing.T) {
	t.Parallel()
	thread := `{"C":"0","PID":"1","THR":"100001","USERNAME":"root","TIME":"0:00","WCPU":"%s","COMMAND":"%s"},`
	many := strings.Repeat(fmt.Sprintf(thread, "0.01%", "[kernel{some_name_or_other}]"), 2000)
	for name, tt := range map[string]struct{ details, column string }{
		"many":     {many + fmt.Sprintf(thread, "40.00%", "[idle{idle: cpu0}]"), "cpu0/idle_ns"},
		"one core": {fmt.Sprintf(thread, "40.00%", "[idle]"), "cpu0/idle_ns"},
		"cut off":  {fmt.Sprintf(thread, "40.00%", "[idle{idle:"), "cpu0/idle_ns"},
		"numbers": {fmt.Sprintf(thread, "NaN%", "[idle{idle: cpu0}]") + fmt.Sprintf(thread, "-1%", "[idle]") +
			fmt.Sprintf(thread, "Inf%", "[idle{idle: cpu1}]"), "cpu1/idle_ns"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, err := driver.OPNsense{}.Watch(t.Context(), hasty{opnRouter(t, map[string]string{
				"diagnostics/activity/get_activity":   `{"details":[` + strings.TrimSuffix(tt.details, ",") + `]}`,
				"diagnostics/system/system_resources": `{"memory":{"total":"Inf","used":1}}`,
			})}, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			d, err := w.Collect(t.Context(), host.Monotonic(), host.Monotonic())
			if err := errors.Join(err, w.Close(t.Context())); err != nil {
				t.Fatal(err)
			}
			cpu := last(d, "cpu")
			if _, told := cpu[tt.column]; !told || len(last(d, "memory")) > 0 {
				t.Errorf("got %v and memory %v, want %s and no memory", cpu, last(d, "memory"), tt.column)
			}
			for column, v := range cpu {
				if !strings.HasPrefix(column, tt.column[:4]) || !(v >= 0 && v < 60e9) {
					t.Errorf("%s = %v, want times of %s alone", column, v, tt.column[:4])
				}
			}
		})
	}
	// One that is silent is given up with the reason.
	h := hasty{opnRouter(t, map[string]string{"diagnostics/activity/get_activity": "<html>"})}
	if _, err := (driver.OPNsense{}).Watch(t.Context(), h, time.Second); err == nil ||
		!strings.Contains(err.Error(), "want JSON") {
		t.Errorf("pages in place of answers: got %v, want the reason", err)
	}
}

// TestOPNsenseRefused: what a key may not ask, or a version has not, leaves its series alone; what is no
// OPNsense is not taken for one; nothing of what comes instead is believed.
func TestOPNsenseRefused(t *testing.T) {
	t.Parallel()
	no := map[string]string{}
	for path := range opnAnswers {
		no[path] = ""
	}
	delete(no, "diagnostics/traffic/interface")
	delete(no, "diagnostics/system/system_information")
	w, err := driver.OPNsense{}.Watch(t.Context(), hasty{opnRouter(t, no)}, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	d, err := w.Collect(t.Context(), host.Monotonic(), host.Monotonic())
	if err := errors.Join(err, w.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	for _, s := range d.Samples {
		if (s.Table != nil) != (s.Probe == "netdev") || (s.Unavailable != "") != (s.Probe != "netdev") {
			t.Errorf("%s: got %v, %q, want the devices alone", s.Probe, s.Table, s.Unavailable)
		}
	}
	facts, err := driver.OPNsense{}.Facts(t.Context(), opnRouter(t, no))
	if err != nil || facts["cpu_model"] != "" || facts["distribution_version"] == "" {
		t.Errorf("facts: got %v, %v", facts, err)
	}
	for name, answer := range map[string]string{"other": `{"versions":["pfSense 2.8"]}`, "list": `[]`,
		"text": `"x"`, "number": "1"} {
		h := opnRouter(t, map[string]string{"diagnostics/system/system_information": answer})
		if a := (driver.OPNsense{}).Check(t.Context(), h); a.State != check.No {
			t.Errorf("%s: got %v, want no", name, a)
		}
	}
	if a := (driver.OPNsense{}).Check(t.Context(), host.Local()); a.State != check.No ||
		!strings.Contains(a.Reason, "https") {
		t.Errorf("a machine with a shell: got %+v, want no, it is asked by https", a)
	}
	for path := range opnAnswers {
		h := opnRouter(t, map[string]string{path: `{"interfaces":{"a":{"device":"\u001b[31m"}},` +
			`"details":[1,{"COMMAND":7}],"rows":[[]],"time":"x","netisr":{"workstream":{"a":{"work":[{"cpu":"99999999"}]}}}}`})
		for range 2 {
			_, err1 := driver.OPNsense{}.Facts(t.Context(), h)
			_, err2 := driver.OPNsense{}.Counters(t.Context(), h, []string{"igb0"})
			_, _, err3 := driver.OPNsense{}.Ways(t.Context(), h, []netip.Addr{netip.IPv6Loopback()})
			for _, err := range []error{err1, err2, err3} {
				if err != nil && check.Plain(err.Error()) != err.Error() {
					t.Errorf("%s: %q is not plain", path, err)
				}
			}
		}
	}
}

// TestOPNsensePaths: each question is one that OPNsense has had in every series since 24.7.
func TestOPNsensePaths(t *testing.T) {
	b, err := os.ReadFile("testdata/opnsense/paths.txt")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string][]string{}
	for line := range strings.Lines(string(b)) {
		version, path, _ := strings.Cut(strings.TrimSpace(line), " ")
		known[version] = append(known[version], path)
	}
	plain := func(path string) string { return strings.ToLower(strings.ReplaceAll(path, "_", "")) }
	versions := slices.Sorted(maps.Keys(known))
	if len(versions) != 5 {
		t.Fatalf("got %d versions, want 5", len(versions))
	}
	for question, file := range opnAnswers {
		for _, version := range versions[1:] {
			// The router takes system_information for systemInformation (core, Mvc/Router.php); what
			// follows is a parameter.
			if !slices.ContainsFunc(known[version], func(path string) bool {
				path, _, _ = strings.Cut(path, "/{")
				return strings.HasPrefix(plain("/api/"+question)+"/", plain(path)+"/")
			}) {
				t.Errorf("%s has no %s", version, question)
			}
		}
		data, err := os.ReadFile(filepath.Join("testdata/opnsense", file))
		if err != nil || !json.Valid(data) {
			t.Errorf("%s: %v, want JSON", file, err)
		}
	}
}
