package analysis

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/ciphers"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/cipher"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func cipherFactors(library, algorithm string) record.Factors {
	return record.Factors{"topology": "forward", "engine": "cipher", "library": library, "node": "router",
		"algorithm": algorithm, "operation": "encrypt", "cipher_mode": "aead", "block_size": "1420",
		"threads": "1"}
}

// cipherTrial is one of a cipher that does so many bytes per second.
func (s *synthetic) cipherTrial(f record.Factors, block, index int, rate float64) record.Trial {
	t := s.trial(quickFactors(), block, index, 1e9)
	t.Row.Kind = record.RowCipher
	t.Row.Factors = f
	t.Traffic = nil
	t.Loaded = nil
	t.Path = nil
	c := cipher.CellOf(f, 2)
	t.Cipher = &record.Cipher{
		Node:      "router",
		Watched:   record.HostNode,
		Library:   c.Library,
		Version:   "1.0",
		Algorithm: c.Algorithm,
		Operation: c.Operation,
		Mode:      c.Mode,
		Block:     c.Block,
		Threads:   1,
		CPUs:      2,
		Rate:      rate,
	}
	return t
}

// cipherRun has three cells of ciphers and one of WireGuard in userspace, in n blocks.
func cipherRun(n int) (record.Run, []record.Trial) {
	s := newSynthetic(5)
	cells := []record.Factors{cipherFactors("openssl", "chacha20-poly1305"),
		cipherFactors("openssl", "aes-128-gcm"), cipherFactors("go", "chacha20-poly1305"),
		quickFactors("tunnel", "wireguard-userspace")}
	run := syntheticRun(cells...)
	run.Environments = []record.Environment{{
		Node: "router",
		Facts: map[string]string{"cpu_model": "X9",
			"cpu_threads": "2", "cpu_flags": "aes avx2 other"},
	}}
	var trials []record.Trial
	for block := 1; block <= n; block++ {
		for i, rate := range []float64{1e9, 3e9, .5e9} {
			trials = append(trials, s.cipherTrial(cells[i], block, 4*block+i, rate))
		}

		trials = append(trials, s.trial(cells[3], block, 4*block+3, 1e9))
	}

	return run, trials
}

// TestCiphersOfTheDocument: rates with intervals, features and advice; the trials are valid without a path.
func TestCiphersOfTheDocument(t *testing.T) {
	d := Derive(cipherRun(6))
	if len(d.Ciphers) != 1 {
		t.Fatalf("got %d nodes with ciphers, want 1", len(d.Ciphers))
	}

	n := d.Ciphers[0]
	if n.Node != "router" || n.CPU.Model != "X9" || !slices.Equal(n.CPU.Features[0].Flags, []string{"aes"}) ||
		n.Versions["openssl"] != "1.0" || n.CPU.ClockFrom != cipher.ClockUnknown {
		t.Errorf("got %+v", n)
	}

	i := slices.IndexFunc(n.Advice, func(a ciphers.Advice) bool {
		return a.Kind == ciphers.AdviceCipher && a.Library == "openssl"
	})
	if i < 0 || n.Advice[i].Cipher != "aes-128-gcm" {
		t.Errorf("advice: got %+v, want aes-128-gcm of openssl", n.Advice)
	}

	if !slices.ContainsFunc(d.Summary, func(s string) bool {
		return strings.HasPrefix(s, "For the CPU of router (openssl): AES-128-GCM: ")
	}) {
		t.Errorf("summary: got %q, want the advice", d.Summary)
	}

	c := cellOf(t, d, cipherFactors("openssl", "aes-128-gcm"))
	v := c.Metrics[metrics.CipherRate]
	if c.Grade != evidence.GradeValid || v.Median != 24e9 || v.N != 6 ||
		c.Ceiling.Kind != "" || c.Missing[metrics.CyclesPerByte] == "" {
		t.Errorf("got %+v, want a valid rate of 24 Gbit/s without a ceiling", c)
	}
}

// TestAdviceOfDoubtfulCells: rates that are all over the place decide nothing; reasons to suspect the cells
// stand beside the advice.
func TestAdviceOfDoubtfulCells(t *testing.T) {
	run, trials := cipherRun(6)
	for i := range trials {
		c := trials[i].Cipher
		if c != nil && c.Algorithm == "aes-128-gcm" {
			c.Rate = 1.1e9 + 1e8*float64(trials[i].Row.Block-4)
		}
	}

	d := Derive(run, trials)
	names := func(a ciphers.Advice) bool { return a.Cipher != "" }
	n := d.Ciphers[0]
	if slices.ContainsFunc(n.Advice, names) ||
		!slices.ContainsFunc(d.Summary, func(s string) bool {
			return strings.HasPrefix(s, "For the CPU of router (openssl): cannot tell whether ")
		}) {
		t.Errorf("got %+v and %q, want that it cannot be told", n.Advice, d.Summary)
	}

	run, trials = cipherRun(6)
	hot := record.NewTable("cpu0/core_throttles")
	w := trials[0].Window
	hot.Append(w.Start-second, 1)
	hot.Append(w.End+second, 5)
	host := trials[0].Nodes[record.HostNode]
	host.Samples = append(slices.DeleteFunc(slices.Clone(host.Samples), func(s record.Samples) bool {
		return s.Probe == "thermal"
	}), record.Samples{Probe: "thermal", Table: hot})
	trials[0].Nodes[record.HostNode] = host
	told := 0
	want := " In doubt: " + evidence.ReasonThrottled + "."
	for _, a := range Derive(run, trials).Ciphers[0].Advice {
		if a.Library == cipher.OpenSSL && strings.HasSuffix(a.Text, want) {
			told++
		}
	}

	if told != 2 {
		t.Errorf("%d words of advice are in doubt, want both", told)
	}
}

// TestShareOfTheCipher: a tunnel of 1 Gbit/s, both ends on this machine's cores, of which 1.68 are busy, at
// 4 Gbit/s for each.
func TestShareOfTheCipher(t *testing.T) {
	d := Derive(cipherRun(6))
	shares := d.Ciphers[0].Shares
	if len(shares) != 1 {
		t.Fatalf("got %d shares, want that of the tunnel: %+v", len(shares), shares)
	}

	s := shares[0]
	want := 1e9 * 2 / 4e9 / 1.68
	if s.Library != "go" || s.Ends != 2 || math.Abs(s.Busy-1.68) > .02 || math.Abs(s.Share-want) > .02 ||
		!strings.Contains(s.Text, "most of it is something else") {
		t.Errorf("got %+v, want a share of %.3f by Go's library", s, want)
	}
}

func TestShareIsAFactOfTheTunnelsCauses(t *testing.T) {
	c := Cell{Diagnosis: &diagnosis.Diagnosis{Causes: []diagnosis.Cause{{Class: diagnosis.VPNProcess},
		{Class: diagnosis.Tester}}}}
	c.noteShare(CipherShare{Node: "router", Algorithm: "aes-256-gcm", Share: .7, Text: "most of it"})
	first := c.Diagnosis.Causes[0].Facts
	second := c.Diagnosis.Causes[1].Facts
	if len(first) != 1 || first[0].Text != "most of it" || *first[0].Value != .7 || len(second) > 0 {
		t.Errorf("facts: got %+v and %+v, want one of the process that is the tunnel", first, second)
	}
}

func TestTunnelsCiphers(t *testing.T) {
	for kind, want := range map[string]string{"none": "", "wireguard": "chacha20-poly1305 openssl kernel",
		"wireguard-userspace": "chacha20-poly1305 go", "esp": "aes-128-gcm openssl kernel",
		"esp-aes-gcm-256": "aes-256-gcm openssl kernel", "esp-aes-cbc-sha256": "",
		"esp-chacha20-poly1305":     "chacha20-poly1305 openssl kernel",
		"openvpn-tcp":               "aes-256-gcm openssl kernel",
		"openvpn-chacha20-poly1305": "chacha20-poly1305 openssl kernel"} {
		algorithm, libraries := cipherOf(&group{factors: record.Factors{"tunnel": kind}})
		got := strings.TrimSpace(algorithm + " " + strings.Join(libraries, " "))
		if got != want {
			t.Errorf("%s: got %q, want %q", kind, got, want)
		}
	}
}

// TestThrottledCipher: what makes the trial of a load suspect makes that of a cipher so; a clock that is
// another one in each trial is told.
func TestThrottledCipher(t *testing.T) {
	run, trials := cipherRun(2)
	hot := record.NewTable("cpu0/core_throttles")
	w := trials[0].Window
	hot.Append(w.Start-second, 1)
	hot.Append(w.End+second, 5)
	for i, hz := range []float64{2e9, 3e9} {
		clock := record.NewTable("cpu0/frequency_hz")
		w := trials[4*i].Window
		clock.Append(w.Start, hz)
		clock.Append(w.End, hz)
		host := trials[4*i].Nodes[record.HostNode]
		host.Samples = slices.DeleteFunc(slices.Clone(host.Samples), func(s record.Samples) bool {
			return s.Probe == "thermal" && i == 0
		})
		host.Samples = append(host.Samples, record.Samples{Probe: "cpufreq", Table: clock})
		if i == 0 {
			host.Samples = append(host.Samples, record.Samples{Probe: "thermal", Table: hot})
		}

		trials[4*i].Nodes[record.HostNode] = host
	}

	c := cellOf(t, Derive(run, trials), cipherFactors("openssl", "chacha20-poly1305"))
	if c.Grade != evidence.GradeSuspect || len(c.Reasons) != 1 ||
		c.Reasons[0].Kind != evidence.ReasonThrottled {
		t.Errorf("got %s for %+v, want it suspect for a throttled CPU", c.Grade, c.Reasons)
	}

	if !slices.ContainsFunc(c.Caveats, func(k record.Caveat) bool { return k.Kind == "clock-moved" }) {
		t.Errorf("caveats: got %+v, want the clock that moved", c.Caveats)
	}

	v := c.Metrics[metrics.CyclesPerByte]
	if v.Median != 2.5 {
		t.Errorf("cycles per byte: got %+v, want 2.5 in the middle of 2 and 3", v)
	}
}

// TestCiphersOfTwoRuns: their rates are compared.
func TestCiphersOfTwoRuns(t *testing.T) {
	run, trials := cipherRun(8)
	a := Derive(run, trials)
	for i := range trials {
		if c := trials[i].Cipher; c != nil {
			slower := *c
			slower.Rate *= .8
			trials[i].Cipher = &slower
		}
	}

	c := CompareRuns(a, Derive(run, trials))
	worse := 0
	for _, r := range c.Regressions {
		if r.Metric == metrics.CipherRate {
			worse++
		}
	}

	if worse != 3 || !slices.ContainsFunc(c.Summary, func(s string) bool {
		return strings.HasPrefix(s, "Cipher rate in the cells that both runs measured: 3 different")
	}) {
		t.Errorf("got %d ciphers that are worse (%v), want 3", worse, c.Summary)
	}
}
