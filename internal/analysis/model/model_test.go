package model

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
)

// costing is a sweep of a device whose packets cost a ns and b ns per byte.
func costing(a, b float64, packets ...int) []Size {
	var out []Size
	for _, n := range packets {
		payload := n - 52
		out = append(out, Size{n, payload, float64(payload) * 8 / (a + b*float64(n)) * 1e9})
	}
	return out
}

func near(t *testing.T, what string, got, want, by float64) {
	t.Helper()
	if !(math.Abs(got-want) <= by*math.Abs(want)+1e-9) {
		t.Errorf("%s = %g, want %g", what, got, want)
	}
}

func TestPacketCost(t *testing.T) {
	for _, test := range []struct {
		name  string
		a, b  float64
		bound string
	}{
		{"both", 1000, 2, BoundBoth}, // 1000 of 1000 + 2 × 733.3 ns: 41 %
		{"packets", 500, 0, BoundPackets}, {"bytes", 0, 2, BoundBytes},
		{"rather packets", 1000, .6, BoundPackets}, // 69 %
		{"rather bytes", 100, 1, BoundBytes},       // 12 %
	} {
		c, err := FitPacketCost(costing(test.a, test.b, 100, 600, 1500), RepeatedWithin)
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}

		near(t, test.name+": per packet", c.PerPacket.Value, test.a, 1e-6)
		near(t, test.name+": per byte", c.PerByte.Value, test.b, 1e-6)
		if c.Bound != test.bound {
			t.Errorf("%s: bound by %s, want %s", test.name, c.Bound, test.bound)
		}

		bps, low, high, err := c.At(1000, 948)
		if err != nil {
			t.Fatal(err)
		}

		want := 948 * 8 / (test.a + test.b*1000) * 1e9
		near(t, test.name+": predicted", bps, want, 1e-6)
		near(t, test.name+": low", low, want, 1e-3)
		near(t, test.name+": high", high, want, 1e-3)
	}
}

// TestPublishedSweeps: the two tables of MTU fall faster than fewer bytes per packet can explain, which is
// said with the figures; packets of the Utilite cost 60 µs whatever their size.
func TestPublishedSweeps(t *testing.T) {
	for _, test := range []struct {
		device string
		rates  [3]float64 // at 1420, 1400 and 1280 bytes
		want   string
	}{
		// 2050 ÷ 2450 = 83.67 %, 1228 ÷ 1368 = 89.77 %; 2380 ÷ 2450 is 1.4 % below its own bound: too little
		{"BPI-R4", [3]float64{2450, 2380, 2050}, "from 1420 to 1280 bytes the rate falls to 83.7 %, and if " +
			"packets alone cost time to no less than 89.8 %"},
		{"OpenWrt One", [3]float64{610, 595, 520}, "from 1420 to 1280 bytes the rate falls to 85.2 %"},
	} {
		_, err := FitPacketCost([]Size{{1420, 1368, test.rates[0] * 1e6}, {1400, 1348, test.rates[1] * 1e6},
			{1280, 1228, test.rates[2] * 1e6}}, RepeatedWithin)
		if !errors.Is(err, ErrImpossible) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %s", test.device, err, test.want)
		}
	}

	all := lineAsPayload(published(t))
	said := strings.Join(Impossible(published(t), all, all), "\n")
	// 1 Gbit/s of Ethernet carries 1368 of 1518 + 20 bytes in WireGuard
	for _, want := range []string{"BPI-R4, wireguard: no fixed", "OpenWrt One, wireguard: no fixed",
		"RB5009UPr+S+IN, wireguard: 1.00 Gbit/s of payload (soak, clock 1400) where its link carries 901 ",
		"OpenWrt One, none: 2.35 Gbit/s of payload (2026) where its link carries 941 Mbit/s",
		"OpenWrt One, none: 2.36 Gbit/s"} {
		if !strings.Contains(said, want) {
			t.Errorf("impossible in the catalogue: got\n%s\nwant %s", said, want)
		}
	}

	n := strings.Count(said, "\n") + 1
	if n != 5 {
		t.Errorf("impossible in the catalogue: got %d, want 5:\n%s", n, said)
	}

	all = published(t).Results
	if said := strings.Join(Impossible(published(t), all, all), "\n"); strings.Contains(said, "RB5009") {
		t.Errorf("the catalogue has a rate of a line for one of payload: %s", said)
	}

	utilite := []Size{{1500, 1500, 168e6}, {500, 500, 62e6}, {200, 200, 26.2e6}, {55, 55, 6.9e6}}
	if _, err := FitPacketCost(utilite, RepeatedWithin); !errors.Is(err, ErrImpossible) {
		t.Errorf("Utilite within 2 %%: %v", err) // 26.3 % of the rate with 27.5 % of the payload
	}

	c, err := FitPacketCost(utilite, OnceWithin)
	if err != nil || c.Bound != BoundPackets {
		t.Fatalf("Utilite: bound by %q, %v", c.Bound, err)
	}

	// by hand: times 71429, 64516, 61069 and 63768 ns; means 65195 ns and 563.75 bytes
	// Σ dx × dt = 8,106,170 and Σ dx² = 1,271,769
	near(t, "Utilite, per byte", c.PerByte.Value, 6.374, .001)
	near(t, "Utilite, per packet", c.PerPacket.Value, 61602, .001)
}

func TestSweepsThatAreRefused(t *testing.T) {
	for _, test := range []struct {
		name  string
		sweep []Size
		want  string
	}{
		{"none", nil, "fewer than two sizes"},
		{"one size twice", costing(1, 1, 500, 500), "fewer than two sizes"},
		{"no rate", []Size{{1500, 1448, 0}, {500, 448, 1}}, "1500 bytes have no rate"},
		{"faster with less", []Size{{1500, 1448, 1e9}, {500, 448, 1.2e9}}, "if bytes alone cost time no more than 92.8 %"},
	} {
		_, err := FitPacketCost(test.sweep, RepeatedWithin)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %s", test.name, err, test.want)
		}
	}

	c, err := FitPacketCost(costing(1000, 1, 500, 1000), RepeatedWithin)
	if err != nil {
		t.Fatal(err)
	}

	if c.PerPacket.Level != 0 {
		t.Error("two sizes were given an interval")
	}

	for _, packet := range []int{249, 2001} {
		if _, _, _, err := c.At(packet, packet-52); err == nil {
			t.Errorf("%d bytes: got a prediction, want a refusal", packet)
		}
	}
}

// TestPacketCostCovers: of 2000 noisy sweeps about 95 % have the truth inside of each interval, and no cost
// is ever below zero.
func TestPacketCostCovers(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const a, b, runs = 5000.0, 4.0, 2000
	packets, bytes := 0, 0
	for range runs {
		sweep := costing(a, b, 64, 200, 500, 1000, 1500)
		for i := range sweep {
			time := a + b*float64(sweep[i].Packet) + 60*random.NormFloat64()
			sweep[i].Payload = sweep[i].Packet
			sweep[i].GoodputBps = float64(sweep[i].Packet) * 8 / time * 1e9
		}

		c, err := FitPacketCost(sweep, RepeatedWithin)
		if err != nil || c.PerPacket.Low < 0 || c.PerByte.Low < 0 {
			t.Fatalf("%+v, %v", c, err)
		}

		if c.PerPacket.Low <= a && a <= c.PerPacket.High {
			packets++
		}

		if c.PerByte.Low <= b && b <= c.PerByte.High {
			bytes++
		}
	}

	near(t, "coverage of the cost per packet", float64(packets)/runs, .95, .02)
	near(t, "coverage of the cost per byte", float64(bytes)/runs, .95, .02)
}

// Quantiles of tables: Abramowitz and Stegun, 26.10.
func TestStudent(t *testing.T) {
	for freedom, want := range map[int]float64{1: 12.706, 10: 2.228, 11: 2.201, 15: 2.131, 30: 2.042,
		120: 1.980} {
		got := student(freedom)
		if math.Abs(got-want) > .001 {
			t.Errorf("student(%d) = %.4f, want %.3f", freedom, got, want)
		}
	}
}

func TestScaling(t *testing.T) {
	var points []statistics.ScalingPoint
	for _, n := range []float64{1, 2, 4, 8} {
		points = append(points, statistics.ScalingPoint{
			Level:      n,
			GoodputBps: 100 * n / (1 + .1*(n-1) + .01*n*(n-1)),
		})
	}

	s, err := FitScaling(points)
	if err != nil {
		t.Fatal(err)
	}

	near(t, "contention", s.Contention, .1, 1e-6)
	near(t, "coherence", s.Coherence, .01, 1e-6)
	six, err := s.At(6)
	near(t, "X(6)", six, 600/1.8, 1e-6)
	if err != nil {
		t.Error(err)
	}

	if !strings.Contains(s.Text(), "most with 9") { // √(0.9 ÷ 0.01) = 9.5
		t.Errorf("Text() = %s", s.Text())
	}

	for _, n := range []float64{0, 17} {
		if _, err := s.At(n); err == nil {
			t.Errorf("X(%g): got a rate, want a refusal", n)
		}
	}

	if _, err := FitScaling(points[:2]); err == nil {
		t.Error("two levels: got a law, want a refusal")
	}
}

func TestElasticity(t *testing.T) {
	for _, test := range []struct {
		points []Clocked
		want   float64
	}{{[]Clocked{{1000, 100}, {1400, 140}}, 1}, {[]Clocked{{1000, 100}, {1400, 100}}, 0},
		{[]Clocked{{1000, 100}, {4000, 200}, {2000, 141.42136}}, .5}} {
		got, err := Elasticity(test.points)
		if err != nil {
			t.Error(err)
		}

		near(t, "elasticity", got, test.want, 1e-6)
	}

	for _, bad := range [][]Clocked{nil, {{1000, 1}, {1000, 2}}, {{0, 1}, {1000, 2}}} {
		if _, err := Elasticity(bad); err == nil {
			t.Errorf("%v: got an elasticity, want a refusal", bad)
		}
	}
}

func TestTunnelRate(t *testing.T) {
	// 1000 ns to forward and 1420 ns for the cipher; 1368 × 8 bits in 2420 ns
	got, err := Stages{Forward: 1000, Cipher: 1e9}.TunnelRate(1420, 1368, 1)
	near(t, "rate", got, 4522314050, 1e-6)
	if err != nil {
		t.Error(err)
	}

	twice, _ := Stages{Forward: 1000, Cipher: 1e9}.TunnelRate(1420, 1368, 2)
	near(t, "of two fragments", twice, 1368*8/3420e-9, 1e-6)
	if _, err := (Stages{Forward: 1000}).TunnelRate(1420, 1368, 1); err == nil {
		t.Error("no speed: got a rate, want a refusal")
	}
}

func published(t *testing.T) *catalogue.Catalogue {
	t.Helper()
	c, err := catalogue.Published()
	if err != nil {
		t.Fatal(err)
	}

	return c
}

// TestPredict asks what the catalogue answers, what a model must answer, and what all must refuse.
func TestPredict(t *testing.T) {
	c := published(t)
	scores := LeaveOneOut(c, c.Results, OfPublished)
	ask := func(q catalogue.Result) Prediction { return Predict(c, c.Results, q, scores) }

	p := ask(catalogue.Result{Device: "bpi-r4", Tunnel: "wireguard", Protocol: "tcp", Streams: 4, MTU: 1420})
	if len(p.Measured) != 1 || *p.Measured[0].GoodputBps != 2450e6 || p.Measured[0].Unstated != nil {
		t.Errorf("BPI-R4: measured %+v", p.Measured)
	}

	if refusal := refusalOf(p, ByPackets); !strings.Contains(refusal, "falls to 83.7 %") {
		t.Errorf("BPI-R4: packet cost refuses with %q", refusal)
	}

	p = ask(catalogue.Result{Device: "BPI-R4", Tunnel: "wireguard", Protocol: "tcp", Streams: 3, MTU: 1420})
	best := answer(t, p, ByStreams)
	if len(p.Measured) != 0 || best.GoodputBps < 2100e6 || best.GoodputBps > 2480e6 ||
		best.Low >= best.GoodputBps || best.High <= best.GoodputBps {
		t.Errorf("BPI-R4 with three streams: %+v", best)
	}

	p = ask(catalogue.Result{
		Device:    "Utilite Standard",
		Tunnel:    "none",
		Protocol:  "udp",
		Direction: "in",
		Packet:    1000,
	})
	near(t, "Utilite with 1000 bytes", answer(t, p, ByPackets).GoodputBps, 8000e9/(61602+6374), .001)

	// 225.9 MB/s of ChaCha20 on each of two cores: 3.6 Gbit/s at most; no WireGuard device has that speed
	p = ask(catalogue.Result{Device: "mt7622", Tunnel: "wireguard", Protocol: "tcp", MTU: 1420})
	near(t, "mt7622 at most", p.AtMostBps, 225897130*2*8*1368/1420, 1e-6)
	if best := answer(t, p, ByClock); best.GoodputBps > p.AtMostBps {
		t.Errorf("mt7622: %+v", best)
	}

	if refusal := refusalOf(p, ByCipher); !strings.Contains(refusal, "no other device has both") {
		t.Errorf("mt7622: cipher refuses with %q", refusal)
	}

	p = ask(catalogue.Result{Device: "mt7621", Tunnel: "wireguard", Protocol: "tcp", MTU: 1420})
	if len(p.Estimates) > 0 || len(p.Refused) != len(models) || p.AtMostBps == 0 {
		t.Errorf("mt7621: got %+v, want refusals and a bound", p)
	}

	// OpenVPN is one thread: two cores of the mt7621 carry what one of them encrypts. The AES of the mt7622
	// is 33 times as fast as that of the quickest router with OpenVPN, which tells nothing of the rest.
	p = ask(catalogue.Result{Device: "mt7621", Tunnel: "openvpn", Protocol: "tcp"})
	near(t, "mt7621 with OpenVPN at most", p.AtMostBps, 20722220*8*1396./1448, 1e-6) // ChaCha20
	answer(t, p, ByCipher)
	p = ask(catalogue.Result{Device: "mt7622", Tunnel: "openvpn", Protocol: "tcp"})
	if refusal := refusalOf(p, ByCipher); !strings.Contains(refusal, "quicker or slower") {
		t.Errorf("mt7622 with OpenVPN: cipher refuses with %q", refusal)
	}

	// what a study says is known of it
	for _, r := range c.Results {
		q := r
		q.GoodputBps = nil
		p := ask(q)
		if r.GoodputBps != nil && !slices.ContainsFunc(p.Measured, func(a Answer) bool {
			return a.Row == r.Row
		}) {
			t.Errorf("row %d: its own question is answered by %+v", r.Row, p.Measured)
		}
	}

	for _, w := range c.Powers {
		got := ask(catalogue.Result{Device: w.Device}).Powers
		if !slices.Contains(got, w) {
			t.Errorf("%s, %s: its power is answered by %+v", w.Device, w.Load, got)
		}
	}
}

// TestPredictByOwnClock: a device whose rate goes with its clock goes on to do so.
func TestPredictByOwnClock(t *testing.T) {
	c := published(t)
	slow, quick := 500e6, 700e6
	row := catalogue.Result{Source: "own", Device: "run", Tunnel: "none", Protocol: "tcp"}
	a, b := row, row
	a.Clock = "1000"
	a.GoodputBps = &slow
	b.Clock = "1400"
	b.GoodputBps = &quick
	q := row
	q.Clock = "800"
	p := Predict(c, []catalogue.Result{a, b}, q, nil)
	best := answer(t, p, ByClock)
	near(t, "at 800 MHz", best.GoodputBps, 400e6, 1e-6)
	if best.High != 0 {
		t.Errorf("a range without scores: %+v", best)
	}
}

func answer(t *testing.T, p Prediction, model string) Estimate {
	t.Helper()
	for _, e := range p.Estimates {
		if e.Model == model {
			return e
		}
	}

	t.Fatalf("%s: got %+v, refused %+v, want %s", Words(p.Question), p.Estimates, p.Refused, model)
	return Estimate{}
}

// TestClock: a clock that is asked for scales what processor and cipher allow, or is refused; rates at one
// do not answer another.
func TestClock(t *testing.T) {
	c := published(t)
	ask := func(device, tunnel, clock string) Prediction {
		return Predict(c, c.Results, catalogue.Result{
			Device:   device,
			Tunnel:   tunnel,
			Protocol: "tcp",
			Clock:    clock,
		}, nil)
	}
	usual := ask("mt7622", "wireguard", "")
	half := ask("mt7622", "wireguard", "675")
	near(t, "mt7622 at half its clock", answer(t, half, ByClock).GoodputBps,
		answer(t, usual, ByClock).GoodputBps/2, 1e-9)
	near(t, "the bound of its cipher", half.AtMostBps, usual.AtMostBps/2, 1e-9)
	// 4 × 700 MHz × √(344 × 237) kbit/s, by the BPI-R4 and the OpenWrt One: below the link of the study
	near(t, "RB5009 at 700 MHz", answer(t, ask("RB5009UPr+S+IN", "wireguard", "700"), ByClock).GoodputBps,
		799e6, .001)
	// the link of its study is not that of the router
	near(t, "RB5009 at 1400 MHz", answer(t, ask("RB5009UPr+S+IN", "wireguard", "1400"), ByClock).GoodputBps,
		1598e6, .001)
	if got := answer(t, ask("Edge4Go", "none", "1500"), ByClock); !strings.Contains(
		strings.Join(got.Basis, "\n"), "no more than its link of 1.00 Gbit/s allows") {
		t.Errorf("Edge4Go: %q, want its link named", got.Basis)
	}

	if got, want := refusalOf(ask("mt7622", "wireguard", "100"), ByClock),
		"100 MHz is more than a factor of 2 from the 1350 MHz of the device"; got != want {
		t.Errorf("mt7622 at 100 MHz: got %q, want %q", got, want)
	}

	q := catalogue.Result{Device: "BPI-R4", Tunnel: "wireguard", Protocol: "tcp", Streams: 3, Clock: "1000"}
	p := Predict(c, c.Results, q, nil)
	if refusalOf(p, ByStreams) == "" {
		t.Errorf("rates at the usual clock told of 1000 MHz: %+v", p.Estimates)
	}

	// rates of the usual clock are no answer at another one, and that is why
	q = catalogue.Result{Device: "BPI-R4", Tunnel: "wireguard", Protocol: "tcp", Streams: 4, MTU: 1420}
	for clock, want := range map[string]int{"": 1, "1800": 1, "900": 0} {
		q.Clock = clock
		if got := Predict(c, c.Results, q, nil).Measured; len(got) != want {
			t.Errorf("BPI-R4 at %q MHz: %+v, want %d measured", clock, got, want)
		}
	}

	for _, model := range []string{ByPackets, ByStreams} {
		q.Clock = "900"
		if got := refusalOf(Predict(c, c.Results, q, nil), model); got != "its rates are at 1800 MHz" {
			t.Errorf("BPI-R4 at 900 MHz: %s refused for %q", model, got)
		}
	}

	q.Streams = 3
	q.MTU = 0
	q.Clock = "1000"
	own := []catalogue.Result{*rated(q, 1e9), *rated(q, 1.1e9)}
	own[0].Device = "run"
	own[1].Device = "run"
	own[1].MTU = 1400
	q.Device = "run"
	got := refusalOf(Predict(c, own, q, nil), ByClock)
	if !strings.HasSuffix(got, "the clock was never changed; and its processor is not known") {
		t.Errorf("a run at one clock: refused for %q", got)
	}
}

// TestCipherBound: a bound rests on the speed in the largest block, wherever it stands, and on the number of
// cores that encrypt: where that is not known, there is none.
func TestCipherBound(t *testing.T) {
	c := published(t)
	q := catalogue.Result{Device: "mt7621", Tunnel: "wireguard", Protocol: "tcp", MTU: 1420}
	want := Predict(c, nil, q, nil).AtMostBps
	speed := func(device string, block int) catalogue.Speed {
		return catalogue.Speed{
			Source:    "own",
			Device:    device,
			Algorithm: "chacha20-poly1305",
			Operation: "throughput",
			Block:     block,
			Value:     new(1e6),
			Unit:      "B/s",
		}
	}
	c.Speeds = append(c.Speeds, speed("mt7621", 1024), speed("Box", 16384))
	near(t, "mt7621 at most", Predict(c, nil, q, nil).AtMostBps, want, 1e-9)
	c.Devices = append(c.Devices, catalogue.Device{Name: "Box", SoC: "x", Arch: "x"})
	q.Device = "Box"
	p := Predict(c, nil, q, nil)
	if p.AtMostBps != 0 || refusalOf(p, ByCipher) != "how many cores it has is not known" {
		t.Errorf("unknown cores: at most %g by %q, refused %+v", p.AtMostBps, p.AtMost, p.Refused)
	}

	q.Device = "run" // which device it is, a run does not say
	p = Predict(c, nil, q, nil)
	for _, model := range []string{ByCipher, ByClock} {
		got := refusalOf(p, model)
		if got != "its processor is not known" {
			t.Errorf("a run: %s refused for %q", model, got)
		}
	}

	q.Device = "Box"
	q.Tunnel = "openvpn"
	q.MTU = 0
	p = Predict(c, nil, q, nil)
	if p.AtMostBps != 0 || !strings.HasSuffix(p.Unbound, "unknown is the speed of aes-128-gcm, aes-128-cbc, "+
		"sha1, sha256") {
		t.Errorf("one of its ciphers: at most %g, %q", p.AtMostBps, p.Unbound)
	}

	for algorithm, bps := range map[string]float64{"aes-128-gcm": 1e6, "aes-128-cbc": 6e6, "sha1": 3e6,
		"sha256": 1e6} {
		s := speed("Box", 16384)
		s.Algorithm = algorithm
		s.Value = new(bps)
		c.Speeds = append(c.Speeds, s)
	}

	// one thread, and 1 ÷ (1 ÷ 6 + 1 ÷ 3) MB/s of cipher and hash
	p = Predict(c, nil, q, nil)
	near(t, "Box with OpenVPN at most", p.AtMostBps, 2e6*8*1396./1448, 1e-9)
	if p.AtMost != "openssl's aes-128-cbc with sha1 in software on 1 core" || !p.InSoftware {
		t.Errorf("Box is bound by %q", p.AtMost)
	}
}

// TestPredictSpeed: every published figure of a cipher is an answer, moves with the clock within a factor of
// two, and tells nothing of another device.
func TestPredictSpeed(t *testing.T) {
	c := published(t)
	for _, s := range c.Speeds {
		p := PredictSpeed(c, s.Device, s.Algorithm, 0)
		if (s.Value == nil) != (len(p.Measured) == 0) || (p.Refused == "") != (s.Value != nil) {
			t.Errorf("%s, %s: %+v", s.Device, s.Algorithm, p)
		}
	}

	p := PredictSpeed(c, "MT7622", "sha1", 675)
	if len(p.Scaled) != 1 {
		t.Fatalf("sha1 at half the clock: %+v", p)
	}

	near(t, "sha1 at half the clock", *p.Scaled[0].Value, 596765350./2, 1e-9)
	near(t, "sha1 as published", *p.Measured[0].Value, 596765350, 1e-9)
	for clock, want := range map[float64]string{100: "more than a factor of 2", 1350: ""} {
		got := PredictSpeed(c, "mt7622", "sha1", clock).Refused
		if !strings.Contains(got, want) ||
			want == "" && got != "" {
			t.Errorf("%g MHz: refused %q, want %q", clock, got, want)
		}
	}

	// 1350 MHz ÷ 225.9 MB/s and 880 MHz ÷ 20.7 MB/s
	if got := PredictSpeed(c, "BPI-R4", "chacha20-poly1305", 0).Refused; !strings.Contains(got,
		"5.98 to 42.5 cycles for each byte") {
		t.Errorf("another device: refused %q", got)
	}
}

func rated(r catalogue.Result, bps float64) *catalogue.Result {
	r.GoodputBps = &bps
	return &r
}

// TestRange: the range of an estimate is no narrower than the model's own interval, nor than the intervals
// of what it rests on.
func TestRange(t *testing.T) {
	c := published(t)
	scores := LeaveOneOut(c, c.Results, OfPublished)
	e := answer(t, Predict(c, c.Results, catalogue.Result{
		Device:   "Utilite Standard",
		Tunnel:   "none",
		Protocol: "udp",
		Packet:   300,
	}, scores), ByPackets)
	// one of its sweeps has 33.1 to 44.0 Mbit/s for one more measurement
	near(t, "low", e.Low, 33.1e6, .002)
	near(t, "high", e.High, 44.0e6, .002)

	q := catalogue.Result{Device: "run", Tunnel: "none", Protocol: "tcp"}
	var rows []catalogue.Result
	for i, bps := range []float64{273e6, 240e6} {
		r := rated(q, bps)
		r.MTU = 1500 - 100*i
		r.Spread = []float64{.67, .39}[i]
		rows = append(rows, *r)
	}

	q.MTU = 1450
	for _, scores := range [][]Errors{scores, nil} {
		e = answer(t, Predict(c, rows, q, scores), ByPackets)
		near(t, "low of wide cells", e.Low, e.GoodputBps*.47, 1e-9) // their median is 53 %
		near(t, "high of wide cells", e.High, e.GoodputBps*1.53, 1e-9)
		got := e.Basis[len(e.Basis)-1]
		if !strings.Contains(got, "±53.0 %") {
			t.Errorf("basis of wide cells: %q", got)
		}
	}

	for runs, want := range map[int]string{6: "intervals of ±53.0 % around these",
		2: "the least and most of too few runs for an interval, ±53.0 % around these"} {
		rows[0].Runs, rows[1].Runs = 6, runs
		e = answer(t, Predict(c, rows, q, nil), ByPackets)
		got := e.Basis[len(e.Basis)-1]
		if !strings.HasPrefix(got, want) {
			t.Errorf("basis of cells of %d runs: %q, want %q", runs, got, want)
		}
	}
}

// TestRangeWithoutEnd: where the model's own interval has no upper end, the range has none, or that of the
// link.
func TestRangeWithoutEnd(t *testing.T) {
	c := published(t)
	scores := LeaveOneOut(c, c.Results, OfPublished)
	ask := func(device string) Estimate {
		q := catalogue.Result{Device: device, Tunnel: "none", Protocol: "udp"}
		var rows []catalogue.Result
		for packet, bps := range map[int]float64{1500: 300e6, 1000: 180e6, 500: 120e6} {
			r := rated(q, bps)
			r.Packet = packet
			r.Spread = .2
			r.Runs = 6
			rows = append(rows, *r)
		}

		q.Packet = 1200
		return answer(t, Predict(c, rows, q, scores), ByPackets)
	}
	e := ask("run")
	if e.High != 0 || !(e.Low < e.GoodputBps/2) || !strings.HasSuffix(e.Range(), "bit/s or more") {
		t.Errorf("no link is known: %g to %g, %q", e.Low, e.High, e.Range())
	}

	e = ask("Edge4Go") // 1 Gbit/s of Ethernet carries 1172 of 1238 bytes
	near(t, "high by the link", e.High, 947e6, .001)
	if !strings.HasPrefix(e.Range(), "from ") {
		t.Errorf("link is known: %q", e.Range())
	}

	a := Advice{LowBps: 1e6}
	if a.check(1e9); a.Verdict != Borderline {
		t.Errorf("1 Mbit/s or more for 1 Gbit/s: %s, want %s", a.Verdict, Borderline)
	}
}

// TestSuspectIsSaid: a document says of how many rates in doubt its figures are.
func TestSuspectIsSaid(t *testing.T) {
	c := published(t)
	q := catalogue.Result{Device: "run", Tunnel: "none", Protocol: "tcp"}
	rows := []catalogue.Result{*rated(q, 1e9), *rated(q, 2e9), *rated(q, 3e9)}
	rows[1].Grade, rows[2].Grade = "suspect", "valid"
	p := Predict(c, rows, q, nil)
	if p.Rates != 3 || p.Suspect != 1 {
		t.Errorf("prediction: %d of %d rates are suspect, want 1 of 3", p.Suspect, p.Rates)
	}

	for _, e := range LeaveOneOut(c, rows, OfOwn) {
		if e.Suspect != 1 {
			t.Errorf("errors of %s: %d rates are suspect, want 1", e.Model, e.Suspect)
		}
	}
}

// lineAsPayload are the published results with the rate of the line as payload of the RB5009's soak, of which
// the study gives none.
func lineAsPayload(c *catalogue.Catalogue) []catalogue.Result {
	rows := slices.Clone(c.Results)
	i := slices.IndexFunc(rows, func(r catalogue.Result) bool { return r.Condition == "soak" })
	rows[i].GoodputBps = new(1e9)
	return rows
}

// TestAnswersBeyondTheLink: a published rate that the link cannot carry is named so where it answers.
func TestAnswersBeyondTheLink(t *testing.T) {
	c := published(t)
	n := 0
	for _, a := range Predict(c, lineAsPayload(c), catalogue.Result{
		Device:   "RB5009UPr+S+IN",
		Tunnel:   "wireguard",
		Protocol: "tcp",
	}, nil).Measured {
		if (a.Impossible != "") != (*a.GoodputBps > 950e6) {
			t.Errorf("%s, %s: impossible is %q", a.Rate(), a.Conditions(), a.Impossible)
		}

		if a.Impossible != "" {
			n++
		}
	}

	if n != 1 {
		t.Errorf("%d rates are impossible, want the soak's alone", n)
	}
}

// TestSpreadOfOwnRates: what the intervals of a run allow is not called impossible.
func TestSpreadOfOwnRates(t *testing.T) {
	var rows []catalogue.Result
	// from 500 to 200 bytes to 35.5 %, where packets alone leave 36.4 %
	for packet, rate := range map[int]float64{500: 2340e6, 200: 831e6, 100: 359e6} {
		rows = append(rows, catalogue.Result{
			Source:     "own",
			Device:     "run",
			Tunnel:     "none",
			Protocol:   "udp",
			Packet:     packet,
			GoodputBps: &rate,
			Runs:       6,
		})
	}

	if said := Impossible(published(t), rows, rows); len(said) != 1 {
		t.Errorf("without spread: %q, want one sweep", said)
	}

	rows[0].Spread = .03
	if said := Impossible(published(t), rows, rows); len(said) != 0 {
		t.Errorf("with spread: %q, want none", said)
	}
}

func refusalOf(p Prediction, model string) string {
	for _, r := range p.Refused {
		if r.Model == model {
			return r.Reason
		}
	}
	return ""
}

// TestLeaveOneOut: every published rate is asked of every model, every estimate is counted, and what a
// model is asked for it is not shown.
func TestLeaveOneOut(t *testing.T) {
	c := published(t)
	scores := LeaveOneOut(c, c.Results, OfPublished)
	for _, e := range scores {
		if e.N+e.Refused != 107 || len(e.Scores) != 107 { // two of 109 rows have no rate
			t.Errorf("%s: %d estimates and %d refusals, want 107 in all", e.Model, e.N, e.Refused)
		}

		within := e.Within()
		sum := within[4] + within[5]
		if !slices.IsSorted(within[:5]) || sum != e.N || e.N == 0 || e.Low < e.Least || e.High > e.Most {
			t.Errorf("%s: %d within 100 %% or beyond of %d; %g to %g in %g to %g", e.Model, sum, e.N, e.Low,
				e.High, e.Least, e.Most)
		}

		// a model that was shown the answer would follow it
		changed := *c
		changed.Results = append([]catalogue.Result{}, c.Results...)
		far := 1.0
		changed.Results[6].GoodputBps = &far
		again := LeaveOneOut(&changed, changed.Results, OfPublished)
		before := e.Scores[6]
		after := again[indexOf(scores, e.Model)].Scores[6]
		if before.Row != 7 || before.EstimatedBps != after.EstimatedBps {
			t.Errorf("%s: row %d was estimated %g, and %g with another answer", e.Model, before.Row,
				before.EstimatedBps, after.EstimatedBps)
		}
	}

	for _, s := range scores[indexOf(scores, ByStreams)].Scores {
		if s.Row == 9 && (s.Refused != "" || math.Abs(s.Error) > .15) { // BPI-R4, four streams
			t.Errorf("row 9: %+v", s)
		}
	}
}

// TestErrorsAreCumulated: what is within 5 % is within 10 % too.
func TestErrorsAreCumulated(t *testing.T) {
	e := Errors{Scores: []Score{{Error: .05}, {Error: -.07}, {Error: .3}, {Error: 1.2}, {Refused: "no"}}}
	got, want := e.Within(), [...]int{1, 2, 2, 3, 3, 1}
	if got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func indexOf(scores []Errors, model string) int {
	for i, e := range scores {
		if e.Model == model {
			return i
		}
	}
	return -1
}

// TestAdvise: what the studies say of use follows from their figures. The OpenWrt One does for lines up to
// 500 Mbit/s, the BPI-R4 for 1 and 2.5 Gbit/s, neither for 10 Gbit/s; the RB5009 does for a gigabit only
// with fq_codel or its clock held; without a tunnel the Edge4Go nearly fills a gigabit, the APU4d4 does not.
func TestAdvise(t *testing.T) {
	c := published(t)
	scores := LeaveOneOut(c, c.Results, OfPublished)
	for _, test := range []struct {
		device, tunnel string
		wan            float64
		users          int
		verdict, why   string
	}{
		{"OpenWrt One", "wireguard", 500e6, 1, Enough, "490 Mbit/s with 1 stream"},
		{"OpenWrt One", "wireguard", 500e6, 10, Enough, "615 Mbit/s with 8 streams"},
		{"OpenWrt One", "wireguard", 1e9, 10, NotEnough, "615 Mbit/s"},
		{"BPI-R4", "wireguard", 1e9, 1, Enough, "1.58 Gbit/s with 1 stream"},
		{"BPI-R4", "wireguard", 1e9, 10, Enough, "2.48 Gbit/s with 8 streams"},
		{"BPI-R4", "wireguard", 2.5e9, 10, Enough, "2.48 Gbit/s"},
		{"BPI-R4", "wireguard", 2.5e9, 1, NotEnough, "1.58 Gbit/s"},
		{"BPI-R4", "wireguard", 10e9, 10, NotEnough, "2.48 Gbit/s"},
		{"BPI-R4", "wireguard", 3e9, 4, Borderline, "2.10 Gbit/s with 2 streams; 2.48 Gbit/s with 8 streams"},
		{"TP-Link TL-WDR4300", "openvpn", 300e6, 5, CannotTell,
			"; measured only with MTU 6000: 30.4 Mbit/s"},
		{"RB5009UPr+S+IN", "wireguard", 1e9, 10, Borderline, "measured 194 Mbit/s (down, queue fq-codel, clock auto) to 883 Mbit/s (up, queue fq-codel, clock 1400)"},
		{"OpenWrt One", "none", 1e9, 1, Borderline, "model cores and clock"},
		{"OpenWrt One", "none", 2.5e9, 1, NotEnough, "to 941 Mbit/s"},
		{"RB5009UPr+S+IN", "none", 2.5e9, 1, CannotTell, "the study's link was 1.00 Gbit/s: it cannot tell"},
		{"RB5009UPr+S+IN", "wireguard", 2.5e9, 4, CannotTell, "the study's link was 1.00 Gbit/s: it cannot"},
		{"Edge4Go", "none", 1e9, 4, Borderline, "924 Mbit/s (IPv4, 2026, separate client, firewall on)"},
		{"APU4d4", "none", 1e9, 1, NotEnough, "338 Mbit/s (IPv6, 2026, separate client, firewall on) to 373 Mbit/s"},
		{"mt7621", "wireguard", 1e9, 1, NotEnough, "no more than"},
		{"Turris Omnia", "wireguard", 1e9, 1, CannotTell, "no published result"},
		{"mt7622", "wireguard", 5e9, 1, NotEnough, "model cores and clock"},
		{"mt7621", "openvpn", 1e9, 1, NotEnough, "no more than"},
	} {
		n := Need{WANBps: test.wan, Tunnel: test.tunnel, MTU: FittingMTU(test.tunnel), Users: test.users}
		advice := Advise(c, n, scores)
		if len(advice) != len(c.Devices) {
			t.Fatalf("%d devices of %d", len(advice), len(c.Devices))
		}

		for _, a := range advice {
			if a.Device == test.device && (a.Verdict != test.verdict || !strings.Contains(a.Why, test.why)) {
				t.Errorf("%s, %s, %g: %s (%s), want %s (%s)", a.Device, test.tunnel, test.wan, a.Verdict,
					a.Why, test.verdict, test.why)
			}

			if a.Device == "RB5009UPr+S+IN" && test.tunnel == "wireguard" && test.users == 1 &&
				!slices.Contains(a.Missing, "1 user at once") {
				t.Errorf("RB5009: 4 streams stand for one user: %q", a.Missing)
			}

			if a.Device == "Edge4Go" && a.Watts != "11 to 16 W" {
				t.Errorf("Edge4Go draws %q", a.Watts)
			}
		}
	}

	// a study's link that is faster than a bound leaves a verdict as it is, one that is not takes it back
	for link, want := range map[string]string{"1GbE": NotEnough, "0.01GbE": CannotTell} {
		linked := *c
		linked.Devices = slices.Clone(c.Devices)
		for i := range linked.Devices {
			linked.Devices[i].Link = link
		}

		n := Need{WANBps: 2.5e9, Tunnel: "openvpn", MTU: FittingMTU("openvpn")}
		for _, a := range Advise(&linked, n, scores) {
			if a.Device == "mt7621" && a.Verdict != want {
				t.Errorf("with a link of %s: %+v, want %s", link, a, want)
			}
		}
	}

	// 1 Gbit/s carries 901 Mbit/s through WireGuard: docs/method/ceilings.md
	near(t, "needed", Need{WANBps: 1e9, Tunnel: "wireguard", MTU: 1420}.GoodputBps(), 901e6, .001)
	// a quicker line never turns a device to the better
	rank := map[string]int{Enough: 0, EnoughIf: 1, CannotTell: 2, Borderline: 2, NotEnough: 3}
	last := map[string]int{}
	for _, wan := range []float64{1e7, 1e8, 3e8, 5e8, 1e9, 2.5e9, 1e10} {
		for _, a := range Advise(c, Need{WANBps: wan, Tunnel: "wireguard", MTU: 1420, Users: 4}, scores) {
			if rank[a.Verdict] < last[a.Device] {
				t.Errorf("%s is %s at %g", a.Device, a.Verdict, wan)
			}

			last[a.Device] = rank[a.Verdict]
		}
	}
}

// TestQueueOfTheStudy: of one clock and direction the study's own choice, fq_codel, has the best rate.
func TestQueueOfTheStudy(t *testing.T) {
	for _, clock := range []string{"auto", "1400"} {
		best := catalogue.Result{GoodputBps: new(float64)}
		for _, r := range published(t).Results {
			if r.Source == "rb5009" && r.Clock == clock && r.Direction == "up" &&
				*r.GoodputBps > *best.GoodputBps {
				best = r
			}
		}

		if best.Queue != "fq-codel" {
			t.Errorf("clock %s: best with %s", clock, best.Queue)
		}
	}
}

// TestSharedCoresHaveNoScaling: in a lab of one machine more streams leave the router less.
func TestSharedCoresHaveNoScaling(t *testing.T) {
	var rows []catalogue.Result
	for i, bps := range []float64{1e9, 1.8e9, 3e9, 4.2e9} {
		rows = append(rows, catalogue.Result{
			Device:     "run",
			Tunnel:     "none",
			Protocol:   "tcp",
			Streams:    1 << i,
			GoodputBps: &bps,
		})
	}

	q := catalogue.Result{Device: "run", Tunnel: "none", Protocol: "tcp", Streams: 3}
	if e, err := (world{&catalogue.Catalogue{}, rows}).byStreams(q); err != nil || e.GoodputBps < 2e9 {
		t.Errorf("cores of its own: got %v, %v, want an estimate", e.GoodputBps, err)
	}

	rows[1].Lab = "local"
	if e, err := (world{&catalogue.Catalogue{}, rows}).byStreams(q); err == nil {
		t.Errorf("shared cores: got %v, want it refused", e.GoodputBps)
	}
}

// TestTwiceTheSameIsPossible: two results of one size tell nothing of what no device can produce.
func TestTwiceTheSameIsPossible(t *testing.T) {
	r := catalogue.Result{
		Source:     "own",
		Device:     "Box",
		Tunnel:     "none",
		Protocol:   "tcp",
		MTU:        1500,
		Runs:       6,
		GoodputBps: new(1e9),
	}
	twice := []catalogue.Result{r, r}
	said := Impossible(&catalogue.Catalogue{}, twice, twice)
	if len(said) > 0 {
		t.Errorf("said to be impossible: %q", said)
	}
}

// TestLeaveOneOutIsQuick: predict and advise score the models each time. Most results are of other devices,
// and their comparison ends there.
func TestLeaveOneOutIsQuick(t *testing.T) {
	c := published(t)
	n := testing.AllocsPerRun(1, func() { LeaveOneOut(c, c.Results, OfPublished) })
	if n > 100_000 {
		t.Errorf("%v allocations, want at most 100000", n)
	}
}
