package foreign_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/foreign"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// output returns what a program prints within half a minute.
func output(t *testing.T, program string, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", program, strings.Join(args, " "), err, errs.String(), out)
	}

	return out
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// TestRealIperf3 holds the numbers of the installed iperf3's files against the sums that it gives itself.
func TestRealIperf3(t *testing.T) {
	apart.Needs(t, "iperf3")
	help := output(t, "iperf3", "--help")
	forms := []string{"--json"}
	if bytes.Contains(help, []byte("--json-stream")) {
		forms = append(forms, "--json-stream")
	}

	for _, form := range forms {
		for _, args := range [][]string{{}, {"-R"}, {"-P", "2", "--bidir"}, {"-u", "-b", "20M"},
			{"-u", "-b", "20M", "-R"}, {"-O", "1", "--get-server-output"}} {
			t.Run(form+" "+strings.Join(args, " "), func(t *testing.T) {
				port := freePort(t)
				server := exec.Command("iperf3", "-s", "-1", "-J", "-p", port)
				var their bytes.Buffer
				server.Stdout = &their
				must(t, server.Start())
				defer func() { server.Process.Kill(); server.Wait() }()
				var text []byte
				for range 50 { // until it listens
					time.Sleep(50 * time.Millisecond)
					var err error
					all := append([]string{"-c", "127.0.0.1", "-p", port, "-t", "1", form, "-i", "0.2",
						"--title", "a title"}, args...)
					// by --json it ends with 0 whatever happened
					if text, err = exec.Command("iperf3", all...).Output(); err == nil &&
						!bytes.Contains(text, []byte("unable to connect")) {
						break
					}
				}

				if got := foreign.Detect(bytes.NewReader(text)); got != "iperf3" {
					t.Fatalf("it looks like %q: %s", got, text)
				}

				r := read(t, text, "")[0]
				d := derive(t, nil, r)
				got := d.Trials[0].Metrics[metrics.Goodput]
				want := sumReceived(t, text)
				if math.Abs(got-want) > .1*want {
					t.Errorf("goodput is %g bit/s, iperf3 says %g", got, want)
				}

				if r.Factors["title"] != "a title" {
					t.Errorf("got the conditions %v, want the title", r.Factors)
				}

				age := time.Since(r.Began)
				if age < 0 || age > time.Hour {
					t.Errorf("it began %v", r.Began)
				}
			})
		}
	}
}

// sumReceived returns iperf3's own sum in bit/s.
func sumReceived(t *testing.T, text []byte) float64 {
	t.Helper()
	type sum struct {
		Rate float64 `json:"bits_per_second"`
	}
	var f struct {
		End struct {
			Received sum  `json:"sum_received"`
			Reverse  sum  `json:"sum_received_bidir_reverse"`
			UDP      *sum `json:"sum"`
		} `json:"end"`
	}
	for line := range bytes.Lines(text) { // of a stream
		var e struct {
			Event string
			Data  json.RawMessage
		}
		if json.Unmarshal(line, &e) == nil && e.Event == "end" {
			text = fmt.Appendf(nil, `{"end":%s}`, e.Data)
		}
	}

	must(t, json.Unmarshal(text, &f))
	if f.End.UDP != nil {
		return f.End.UDP.Rate
	}

	return f.End.Received.Rate + f.End.Reverse.Rate
}

// TestRealOpenSSL: what the installed openssl prints for people and for machines, of ciphers and keys.
func TestRealOpenSSL(t *testing.T) {
	apart.Needs(t, "openssl")
	for _, tt := range []struct {
		args   []string
		metric string
		n      int
		cell   string // of the first
	}{
		{[]string{"-bytes", "1420", "-evp", "aes-128-gcm"}, metrics.CipherRate, 1,
			"algorithm=aes-128-gcm block_size=1420 cipher_mode=evp operation=encrypt threads=1"},
		{[]string{"ed25519"}, metrics.CipherOps, 2, "algorithm=ed25519 operation=sign threads=1"},
		{[]string{"ecdhx25519"}, metrics.CipherOps, 1, "algorithm=x25519 operation=derive threads=1"},
		{[]string{"ecdhx448"}, metrics.CipherOps, 1, "algorithm=x448 operation=derive threads=1"},
		{[]string{"-bytes", "1420", "-evp", "blake2b512"}, metrics.CipherRate, 1,
			"algorithm=blake2b512 block_size=1420 operation=hash threads=1"},
		{[]string{"-multi", "2", "-bytes", "1420", "-evp", "chacha20-poly1305"}, metrics.CipherRate, 1,
			"algorithm=chacha20-poly1305 block_size=1420 cipher_mode=evp operation=encrypt threads=2"},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			t.Parallel()
			if tt.args[0] == "-multi" { // by elapsed time; the others by CPU time, which no program changes
				apart.Long(t, "takes longer than a package has")
			}

			var rates [2]float64
			for i, form := range [][]string{nil, {"-mr"}} {
				args := slices.Concat([]string{"speed", "-seconds", "1"}, form, tt.args)
				text := output(t, "openssl", args...)
				got := foreign.Detect(bytes.NewReader(text))
				if got != "openssl" {
					t.Fatalf("%v: it looks like %q:\n%s", args, got, text)
				}

				results := read(t, text, "")
				if len(results) != tt.n {
					t.Fatalf("%v: got %d results, want %d:\n%s", args, len(results), tt.n, text)
				}

				key := results[0].Factors.Key()
				if !contains(key, tt.cell) {
					t.Errorf("%v: got the cell %q, want it to have %q", args, key, tt.cell)
				}

				rates[i] = results[0].Foreign.Values[tt.metric]
			}

			ratio := rates[0] / rates[1]
			if !(ratio > .25 && ratio < 4) {
				t.Errorf("%v: %g for people, %g for machines", tt.args, rates[0], rates[1])
			}
		})
	}
}

// TestRealIRTT: the statistics of the installed irtt match the round trips that are read.
func TestRealIRTT(t *testing.T) {
	apart.Needs(t, "irtt")
	_, server := irtt(t)
	file := filepath.Join(t.TempDir(), "out.json.gz")
	for range 20 {
		time.Sleep(100 * time.Millisecond)
		client := exec.Command("irtt", "client", "-Q", "-i", "10ms", "-d", "600ms", "-o", file, server)
		if client.Run() == nil {
			break
		}
	}

	text, err := os.ReadFile(file)
	must(t, err)
	got := foreign.Detect(bytes.NewReader(text))
	if got != "irtt" {
		t.Fatalf("it looks like %q", got)
	}

	r := read(t, text, "")[0]
	n := len(r.Idle.RTT)
	if n < 40 || n > 61 || r.Idle.IntervalNs != 10e6 {
		t.Fatalf("got %d round trips every %d ns, want 60 every 10 ms", n, r.Idle.IntervalNs)
	}

	d := derive(t, nil, r)
	p50 := d.Trials[0].Metrics["rtt_idle_p50_ns"]
	if p50 < 1e3 || p50 > 100e6 {
		t.Errorf("the median over loopback is %g ns", p50)
	}

	why := d.Trials[0].Missing[metrics.Goodput]
	if why == "" {
		t.Error("that there is no goodput is not said")
	}
}

// irtt starts a server.
func irtt(t *testing.T) (*exec.Cmd, string) {
	t.Helper()
	address := "127.0.0.1:" + freePort(t)
	server := exec.Command("irtt", "server", "-b", address)
	must(t, server.Start())
	t.Cleanup(func() { server.Process.Kill(); server.Wait() })
	return server, address
}

// TestRealFlentReads: the installed flent reads the file of a trial of ours as it reads its own, and draws
// the plots that the document says.
func TestRealFlentReads(t *testing.T) {
	apart.Needs(t, "flent")
	apart.Long(t, "takes longer than a package has")
	dir := t.TempDir()
	trial := sampleTrial()
	idle := sampleTrial()
	idle.Traffic, idle.Loaded, idle.Idle = nil, nil, trial.Loaded
	lost := sampleTrial()
	for i := range lost.Loaded.RTT {
		lost.Loaded.RTT[i] = -1
	}

	plots := []string{"totals", "ping_cdf", "ping", "box_totals"}
	for name, x := range map[string]struct {
		trial *record.Trial
		plots []string
	}{
		"load": {trial, plots},
		"idle": {idle, []string{"ping"}},
		"lost": {lost, []string{"totals"}},
	} {
		file := filepath.Join(dir, name+".flent.gz")
		must(t, os.WriteFile(file, exported(t, x.trial), 0o600))
		for _, plot := range x.plots {
			png := filepath.Join(dir, name+"-"+plot+".png")
			output(t, "flent", "-i", file, "-f", "plot", "-p", plot, "-o", png)
			b, err := os.ReadFile(png)
			if err != nil || !bytes.HasPrefix(b, []byte("\x89PNG")) || len(b) < 5000 {
				t.Errorf("plot %s of %s: %v, %d bytes, want a PNG", plot, name, err, len(b))
			}
		}

		if name != "load" {
			continue
		}

		csv := string(output(t, "flent", "-i", file, "-f", "csv"))
		if !strings.Contains(csv, "TCP upload") || !strings.Contains(csv, "TCP download") ||
			!strings.Contains(csv, "Ping (ms) ICMP") {
			t.Errorf("flent's CSV lacks a series:\n%.300s", csv)
		}

		stats := string(output(t, "flent", "-i", file, "-f", "stats"))
		if !strings.Contains(stats, "TCP upload") {
			t.Errorf("flent's statistics:\n%s", stats)
		}
	}
}

// pingTest is a flent test that needs no non-free program, as netperf was.
const pingTest = `AGGREGATOR = 'timeseries'
DESCRIPTION = 'round trips'
TOTAL_LENGTH = LENGTH
DEFAULTS = {'PLOT': 'ping'}
DATA_SETS = o([('Ping (ms) ICMP', {'ip_version': IP_VERSION, 'interval': STEP_SIZE, 'length': LENGTH,
    'host': HOST, 'units': 'ms', 'runner': 'ping'})])
PLOTS = o([('ping', {'description': 'Ping', 'type': 'timeseries',
    'series': [{'data': 'Ping (ms) ICMP', 'label': 'Ping'}]})])
`

// zipped compresses a flent file.
func zipped(t *testing.T, doc map[string]any) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	must(t, errors.Join(json.NewEncoder(z).Encode(doc), z.Close()))
	return b.Bytes()
}

// TestRealFlentWrites: what the installed flent measures is read, and comes out for flent as it was.
func TestRealFlentWrites(t *testing.T) {
	apart.Needs(t, "flent", "ping")
	apart.Long(t, "takes longer than a package has")
	dir := t.TempDir()
	test := filepath.Join(dir, "pings")
	must(t, os.WriteFile(test+".conf", []byte(pingTest), 0o600))
	args := []string{test, "-H", "127.0.0.1", "-l", "3", "-s", "0.2", "-D", dir, "-t", "a title"}
	out, err := exec.Command("flent", args...).CombinedOutput()
	files, _ := filepath.Glob(filepath.Join(dir, "*.flent.gz"))
	if err != nil || len(files) != 1 {
		t.Fatalf("flent %v made %v, %v:\n%s", args, files, err, out)
	}

	r := read(t, file(t, files[0]), "")[0]
	if r.Idle == nil || len(r.Idle.RTT) < 10 || r.Foreign.Version == "" || r.Factors["title"] != "a title" {
		t.Fatalf("got %v, %+v, %+v of\n%s", r.Factors, r.Foreign, r.Idle, out)
	}

	back := filepath.Join(dir, "back.flent.gz")
	must(t, os.WriteFile(back, exported(t, imported(r)), 0o600))
	was := unzipped(t, file(t, files[0]))
	is := unzipped(t, file(t, back))
	expect.Same(t, "raw values", was["raw_values"], is["raw_values"])
	for key := range was["metadata"].(map[string]any) {
		_, has := is["metadata"].(map[string]any)[key]
		if !has {
			t.Errorf("metadata lacks %s", key)
		}
	}

	got := is["metadata"].(map[string]any)["NAME"]
	if got != "pings" {
		t.Errorf("the test is called %v, want pings without its folder", got)
	}

	is["metadata"].(map[string]any)["NAME"] = test // flent finds a test of one's own by its folder alone
	must(t, os.WriteFile(back, zipped(t, is), 0o600))
	first := output(t, "flent", "-i", files[0], "-f", "csv")
	second := output(t, "flent", "-i", back, "-f", "csv")
	a := strings.Split(string(first), "\n")
	b := strings.Split(string(second), "\n")
	if len(a) != len(b) || len(a) < 10 {
		t.Fatalf("flent's CSV before and after:\n%s\n%s", first, second)
	}

	for i := range a {
		for k, field := range strings.Split(a[i], ",") {
			was, err := strconv.ParseFloat(field, 64)
			other := strings.Split(b[i]+",,", ",")[k]
			is, _ := strconv.ParseFloat(other, 64)
			if err != nil && field != other || math.Abs(was-is) > 1e-9 {
				t.Errorf("line %d of flent's CSV: %q, then %q", i+1, a[i], b[i])
			}
		}
	}
}
