package analysis

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// table returns the samples of a probe, to plant a fault in.
func table(t *record.Trial, node, probe string) *record.Table {
	for _, s := range t.Nodes[node].Samples {
		if s.Probe == probe {
			return s.Table
		}
	}
	return nil
}

// after adds by to a column from the middle of the window on.
func after(t *record.Trial, tab *record.Table, column string, by float64) {
	middle := (t.Window.Start + t.Window.End) / 2
	values := tab.Column(column)
	for i, at := range tab.T {
		if at >= middle {
			values[i] += by
		}
	}
}

// cutAfter drops what a table has from a time on, without those of a time.
func cutAfter(t *record.Table, at int64) { without(t, at, 1<<62) }

func without(t *record.Table, from, to int64) {
	keep := func(i int) bool { return t.T[i] < from || t.T[i] > to }
	times := t.T
	for c := range t.V {
		var out []float64
		for i := range times {
			if keep(i) {
				out = append(out, t.V[c][i])
			}
		}

		t.V[c] = out
	}

	t.T = slices.DeleteFunc(slices.Clone(times), func(at int64) bool { return at >= from && at <= to })
}

// slower scales what arrives in a part of the window.
func slower(t *record.Trial, from, factor float64) {
	for k := range t.Traffic.Flows {
		series := t.Traffic.Flows[k].Received
		v := series.Column("bytes")
		start := t.Window.Start + int64(from*float64(t.Window.End-t.Window.Start))
		out := slices.Clone(v)
		for i := 1; i < len(v); i++ {
			step := v[i] - v[i-1]
			if series.T[i] > start {
				step *= factor
			}

			out[i] = out[i-1] + step
		}

		copy(v, out)
	}
}

// logged adds a kernel message.
func logged(t *record.Trial, at int64, severity int, text string) {
	n := t.Nodes["host"]
	n.Log = append(n.Log, record.LogLine{At: at, Severity: severity, Text: text})
	t.Nodes["host"] = n
}

// deepQueue has so many bytes wait on the way when the window begins, which the counters of the window do not
// see, and what passed them before be more by some.
func deepQueue(t *record.Trial, bytes, more float64) {
	f := &t.Traffic.Flows[0]
	at := slices.Index(f.Received.T, t.Window.Start)
	arrived := f.Received.V[0][at]
	f.Sent = record.NewTable("bytes")
	for i, when := range f.Received.T {
		f.Sent.Append(when, f.Received.V[0][i]+bytes)
	}

	t.Path.CountedFrom = t.Window.Start
	began := uint64(1000)
	entered := uint64(max(arrived+bytes+more, 0) * 1.05)
	inWindow := uint64(max(float64(f.ReceivedBytes)-max(bytes, 2e6), 0))
	t.Path.Counters = []record.CounterDelta{
		{
			Node:    "client",
			Device:  "cp0",
			Counter: record.TunnelSent,
			Before:  began,
			After:   began + entered + inWindow,
			When:    "load",
		},
		{
			Node:    "client",
			Device:  "cp0",
			Counter: record.TunnelSent,
			Before:  began + entered,
			After:   began + entered + inWindow,
			When:    "window",
		}}
}

// edgeLate has an end read its counts late, by a share of a time.
func edgeLate(t *record.Trial, of int64, share float64) {
	u := t.Traffic.Ends["far"]
	u.EdgeLateNs = int64(share * float64(of))
	t.Traffic.Ends["far"] = u
}

// Every reason fires on its planted fault, and on nothing but it.
func TestGateFires(t *testing.T) {
	tcp := quickFactors()
	udp := quickFactors("protocol", "udp")
	tunnel := quickFactors("tunnel", "wireguard")
	sideBySide := quickFactors("tunnel", "wireguard", "tunnels", "4", "streams", "8")
	shaped := quickFactors("queue@router.wan", "tbf rate 300M")
	shortTunnel := quickFactors("tunnel", "wireguard", "queue@router.wan", "tbf rate 20M limit 1m")
	tests := []struct {
		name    string
		factors record.Factors
		rate    float64
		want    string
		plant   func(t *record.Trial)
		lab     string
	}{
		{"unsent", udp, 1e8, evidence.ReasonTesterLimited,
			func(t *record.Trial) { p := t.Traffic.Flows[0].Packets; p.Unsent = p.Sent / 20 }, ""},
		{"receiver's own drops", udp, 1e8, evidence.ReasonTesterLimited, func(t *record.Trial) {
			lost := t.Traffic.Flows[0].Packets.Sent / 20
			t.Traffic.Details = map[string]string{"far.socket_drops": fmt.Sprint(lost)}
		}, ""},
		{"a burst of the sender's own", quickFactors("protocol", "udp", "policer", "300M"), 1e8,
			evidence.ReasonTesterLimited, func(t *record.Trial) {
				t.Traffic.Details = map[string]string{"near.burst_most_bytes": "200000"}
			}, ""},
		{"busy thread", tcp, 1e9, evidence.ReasonTesterLimited,
			func(t *record.Trial) { t.Traffic.Ends["near"].ThreadsNs[0] = 10 * second }, "ssh"},
		{"tunnel idle", tunnel, 1e9, evidence.ReasonNotInTunnel, func(t *record.Trial) {
			for i := range t.Path.Counters {
				t.Path.Counters[i].After = t.Path.Counters[i].Before
			}
		}, ""},
		{"tunnel bypassed", tunnel, 1e9, evidence.ReasonNotInTunnel,
			func(t *record.Trial) { t.Path.Counters[2].After = t.Path.Counters[2].Before + 2000 }, ""},
		{"one of several tunnels idle", sideBySide, 1e9, evidence.ReasonNotInTunnel, func(t *record.Trial) {
			for i := range t.Path.Counters {
				c := &t.Path.Counters[i]
				if c.Device == "tun2" && c.When == "window" {
					c.After = c.Before
				}
			}
		}, ""},
		{"one direction of both bypassed", quickFactors("tunnel", "wireguard", "direction", "both"), 1e9,
			evidence.ReasonNotInTunnel, func(t *record.Trial) {
				b := uint64(1e9 / 8 * 10)
				t.Path.Counters = []record.CounterDelta{
					{Node: "client", Device: "cp0", Counter: record.TunnelSent, After: b / 30, When: "window"},
					{Node: "client", Device: "cp0", Counter: record.TunnelReceived, After: b, When: "window"}}
			}, ""},
		{"one of several tunnels dead", sideBySide, 1e9, evidence.ReasonNothingArrived,
			func(t *record.Trial) {
				for i := range t.Traffic.Flows {
					f := &t.Traffic.Flows[i]
					if f.Stream%4 == 2 {
						f.ReceivedBytes = 0
					}
				}
			}, ""},
		{"bypassed with a short queue", shortTunnel, 10e6, evidence.ReasonNotInTunnel,
			func(t *record.Trial) { deepQueue(t, 20e3, 0) }, ""},
		{"bypassed all the time", shortTunnel, 10e6, evidence.ReasonNotInTunnel,
			func(t *record.Trial) { deepQueue(t, 2e6, -1e9) }, ""},
		{"no evidence", tunnel, 1e9, evidence.ReasonNotInTunnel, func(t *record.Trial) { t.Path = nil }, ""},
		{"mtu", tunnel, 1e9, evidence.ReasonWrongMTU, func(t *record.Trial) { t.Path.PathMTU = 1280 }, ""},
		{"above a policer", quickFactors("policer", "300M"), 310e6, evidence.ReasonAboveCeiling,
			func(*record.Trial) {}, ""},
		{"above a shaper", quickFactors("shape", "300M"), 310e6, evidence.ReasonAboveCeiling,
			func(*record.Trial) {}, ""},
		{"above ceiling", shaped, 290e6, evidence.ReasonAboveCeiling, func(*record.Trial) {}, ""},
		{"lost count", udp, 1e8, evidence.ReasonAccounting,
			func(t *record.Trial) { t.Traffic.Flows[0].Packets.Lost-- }, ""},
		{"lost flow", quickFactors("streams", "4"), 1e9, evidence.ReasonAccounting,
			func(t *record.Trial) { t.Traffic.Flows = t.Traffic.Flows[:3] }, ""},
		{"corrupt", tcp, 1e9, evidence.ReasonCorrupt,
			func(t *record.Trial) { t.Traffic.Flows[0].Corrupt = 1 }, ""},
		{"nothing checked", tcp, 1e9, evidence.ReasonCorrupt,
			func(t *record.Trial) { t.Traffic.Load.Verify = true },
			""},
		{"throttle counter", tcp, 1e9, evidence.ReasonThrottled,
			func(t *record.Trial) { after(t, table(t, "host", "thermal"), "cpu0/core_throttles", 1) }, ""},
		{"cooling", tcp, 1e9, evidence.ReasonThrottled, func(t *record.Trial) {
			after(t, table(t, "host", "thermal"),
				"cooling1.Processor/cooling_state", 2)
		}, ""},
		{"clock limit", tcp, 1e9, evidence.ReasonThrottled, func(t *record.Trial) {
			limits := record.NewTable("policy0/limit_hz")
			limits.Append(t.Window.Start, 3e9)
			limits.Append(t.Window.End, 2e9)
			n := t.Nodes["host"]
			n.Samples = append(n.Samples, record.Samples{Probe: "cpufreq", Table: limits})
			t.Nodes["host"] = n
		}, ""},
		{"foreign", tcp, 1e9, evidence.ReasonBackgroundLoad,
			func(t *record.Trial) { after(t, table(t, "host", "foreign"), "foreign_cpu_ns", 2e9) }, ""},
		{"steal", tcp, 1e9, evidence.ReasonBackgroundLoad, func(t *record.Trial) {
			after(t, table(t, "host", "cpu"), "cpu0/steal_ns", 1e9)
			after(t, table(t, "host", "cpu"), "cpu1/steal_ns", 1e9)
		}, ""},
		{"stall", tcp, 1e9, evidence.ReasonSamplerStalled, func(t *record.Trial) {
			n := t.Nodes["host"]
			n.Stalls = append(n.Stalls, record.Stall{At: t.Window.Start + second, LateNs: 3 * second / 2})
			t.Nodes["host"] = n
		}, ""},
		{"kernel error", tcp, 1e9, evidence.ReasonKernelLog, func(t *record.Trial) {
			logged(t, t.Window.Start+5, 3,
				"EXT4-fs error")
		}, ""},
		{"nic hang", tcp, 1e9, evidence.ReasonKernelLog, func(t *record.Trial) {
			logged(t, t.Window.Start+5, 4, "igb 0000:01:00.0 eth0: Detected Tx Unit Hang; NETDEV WATCHDOG: "+
				"eth0 (igb): transmit queue 0 timed out")
		}, ""},
		{"heat", tcp, 1e9, evidence.ReasonKernelLog, func(t *record.Trial) {
			logged(t, t.Window.Start+5, 4, "CPU0: Core temperature above threshold, cpu clock throttled")
		}, ""},
		{"link flap", tcp, 1e9, evidence.ReasonLinkFlap, func(t *record.Trial) {
			after(t, table(t, "router", "link"),
				"wan/carrier_changes", 2)
		}, ""},
		{"slows down", tcp, 1e9, evidence.ReasonDrift, func(t *record.Trial) { slower(t, .6, .8) }, ""},
		{"warms up", tcp, 1e9, evidence.ReasonDrift, func(t *record.Trial) { slower(t, .5, 1.3) }, ""},
		{"late probe", tcp, 1e9, evidence.ReasonLateProbe, func(t *record.Trial) {
			for i := range 20 {
				t.Loaded.Late[i*7] = 30e6
			}
		}, ""},
		{"user stamps", tcp, 1e9, evidence.ReasonLateProbe, func(t *record.Trial) {
			t.Loaded.Stamps = "user"
			for i := range 20 {
				t.Loaded.Late[i*7] = 6e6
			}
		}, ""},
		{"skipped slots", tcp, 1e9, evidence.ReasonLateProbe,
			func(t *record.Trial) { t.Loaded.SkippedSlots = 400 },
			""},
		{"late edge", tcp, 1e9, evidence.ReasonLateEdge,
			func(t *record.Trial) { edgeLate(t, t.Window.End-t.Window.Start, .02) }, ""},
		{"a sixth of the window past the tunnel", sideBySide, 1e9, evidence.ReasonNotInTunnel,
			func(t *record.Trial) {
				t.Path.CountedFrom = t.Window.Start - 40e6
				for i := range t.Path.Counters {
					c := &t.Path.Counters[i]
					if c.When == "window" {
						c.After = c.Before + (c.After-c.Before)*3/4 // with headers, 115 % of the payload
					}
				}
			}, ""},
		{"smaller segments at the end", tcp, 1e9, evidence.ReasonWrongMTU,
			func(t *record.Trial) { t.Traffic.Flows[0].TCP.MSS = 1348 }, ""},
		{"nothing arrived", udp, 1e8, evidence.ReasonNothingArrived, func(t *record.Trial) {
			f := &t.Traffic.Flows[0]
			f.ReceivedBytes, f.Packets.Received, f.Packets.Lost = 0, 0, f.Packets.Sent
			for i := range f.Received.V[0] {
				f.Received.V[0][i] = 0
			}

			for i := range t.Path.Counters { // nor did any counter move much
				c := &t.Path.Counters[i]
				c.After = c.Before + (c.After-c.Before)/1000
			}

			t.Path.BytesOffered = 0
		}, ""},
		{"sampler stopped over the window's end", tcp, 1e9, evidence.ReasonSamplerStalled,
			func(t *record.Trial) {
				n := t.Nodes["host"]
				for i := range n.Samples {
					tab := n.Samples[i].Table
					if tab != nil {
						cutAfter(tab, t.Window.End-4*second)
					}
				}
			}, ""},
		{"clock stopped", tcp, 1e9, evidence.ReasonSamplerStalled, func(t *record.Trial) {
			n := t.Nodes["router"]
			n.Clock = record.Clock{BoundBefore: 1e5, OffsetAfter: -5 * second, BoundAfter: 1e5}
			t.Nodes["router"] = n
		}, ""},
		{"engine stopped", udp, 1e8, evidence.ReasonEngineStalled, func(t *record.Trial) {
			tab := t.Traffic.Flows[0].Received
			without(tab, t.Window.Start+2*second, t.Window.Start+6*second)
		}, ""},
	}
	covered := map[string]bool{evidence.ReasonFailedTrials: true} // see TestFailedTrialHasNoNumber
	for i, test := range tests {
		covered[test.want] = true
		t.Run(test.name, func(t *testing.T) {
			run := syntheticRun(test.factors)
			if test.lab != "" {
				inLab(&run, test.lab)
			}

			trial := newSynthetic(uint64(i)).trial(test.factors, 1, 1, test.rate)
			test.plant(&trial)
			c := Derive(run, []record.Trial{trial}).Cells[0]
			if len(c.Reasons) != 1 || c.Reasons[0].Kind != test.want || c.Grade != evidence.GradeSuspect {
				t.Errorf("grade %s, reasons %v, want suspect with %s alone", c.Grade, c.Reasons, test.want)
			}

			if len(c.Reasons) > 0 && (c.Reasons[0].Trial != trial.ID || c.Reasons[0].Text == "") {
				t.Errorf("reason %+v lacks its trial or text", c.Reasons[0])
			}

			if len(c.Metrics) == 0 {
				t.Error("a suspect cell has lost its numbers")
			}
		})
	}

	for _, kind := range []string{
		evidence.ReasonTesterLimited, evidence.ReasonNotInTunnel, evidence.ReasonAboveCeiling,
		evidence.ReasonThrottled, evidence.ReasonBackgroundLoad,
		evidence.ReasonSamplerStalled, evidence.ReasonKernelLog, evidence.ReasonLinkFlap,
		evidence.ReasonWrongMTU, evidence.ReasonCorrupt,
		evidence.ReasonAccounting,
		evidence.ReasonDrift, evidence.ReasonFailedTrials, evidence.ReasonLateProbe, evidence.ReasonLateEdge,
		evidence.ReasonNothingArrived, evidence.ReasonEngineStalled,
	} {
		if !covered[kind] {
			t.Errorf("no planted fault for reason %s", kind)
		}
	}
}

// What looks like a fault but is none must not fire.
func TestGateStaysSilent(t *testing.T) {
	tests := []struct {
		name    string
		factors record.Factors
		rate    float64
		lab     string
		plant   func(t *record.Trial)
	}{
		{"clean tunnel", quickFactors("tunnel", "wireguard"), 1e9, "local", func(*record.Trial) {}},
		{"clean tunnels side by side", quickFactors("tunnel", "wireguard", "tunnels", "4", "streams", "8"),
			1e9, "local", func(*record.Trial) {}},
		{"shaped to its ceiling", quickFactors("queue@router.wan", "tbf rate 300M"), 286e6, "local",
			func(*record.Trial) {}},
		{"all cores busy on a shared machine", quickFactors(), 1e9, "local", func(t *record.Trial) {
			t.Traffic.Ends["near"].ThreadsNs[0] = 10 * second
			after(t, table(t, "host", "cpu"), "cpu0/softirq_ns", 4e9)
		}},
		{"kernel error before the load", quickFactors(), 1e9, "local",
			func(t *record.Trial) { logged(t, t.Window.Begin-5, 3, "EXT4-fs error") }},
		{"short stall", quickFactors(), 1e9, "local", func(t *record.Trial) {
			n := t.Nodes["host"]
			n.Stalls = append(n.Stalls, record.Stall{At: t.Window.Start + second, LateNs: 250e6})
			t.Nodes["host"] = n
		}},
		{"an edge a little late", quickFactors(), 1e9, "local",
			func(t *record.Trial) { edgeLate(t, t.Window.End-t.Window.Start, .009) }},
		{"edge of a load of datagrams", quickFactors("protocol", "udp"), 1e8, "local",
			func(t *record.Trial) { edgeLate(t, t.Window.End-t.Window.Start, .5) }},
		{"down", quickFactors("direction", "down"), 1e9, "local", func(*record.Trial) {}},
		{"both", quickFactors("direction", "both", "streams", "4"), 1e9, "local", func(*record.Trial) {}},
		{"both through the tunnel", quickFactors("tunnel", "wireguard", "direction", "both"), 1e9, "local",
			func(t *record.Trial) {
				b := uint64(1e9 / 8 * 10)
				t.Path.Counters = []record.CounterDelta{
					{
						Node:    "client",
						Device:  "cp0",
						Counter: record.TunnelSent,
						After:   b * 11 / 20,
						When:    "window",
					},
					{
						Node:    "client",
						Device:  "cp0",
						Counter: record.TunnelReceived,
						After:   b * 11 / 20,
						When:    "window",
					}}
			}},
		{"a deep queue that was filled before the window", quickFactors("tunnel", "wireguard"), 10e6, "local",
			func(t *record.Trial) { deepQueue(t, 4e6, 0) }},
		{"large bursts, but loss that is the rate's", quickFactors("protocol", "udp", "policer", "100M"),
			50e6, "local", func(t *record.Trial) {
				p := t.Traffic.Flows[0].Packets
				p.Lost += p.Received / 2
				p.Sent = p.Received + p.Lost
				t.Traffic.Details = map[string]string{"near.burst_most_bytes": "200000"}
			}},
		{"lossy UDP", quickFactors("protocol", "udp"), 1e8, "local", func(t *record.Trial) {
			p := t.Traffic.Flows[0].Packets
			p.Sent, p.Lost = p.Sent+50000, p.Lost+50000
		}},
		{"no telemetry", quickFactors(), 1e9, "local", func(t *record.Trial) { t.Nodes = nil }},
		{"a burst that the bucket holds", quickFactors("protocol", "udp", "policer", "300M"), 1e8, "local",
			func(t *record.Trial) {
				t.Traffic.Details = map[string]string{"near.burst_most_bytes": "100000"}
			}},
		{"the stall of the trial before", quickFactors(), 1e9, "local", func(t *record.Trial) {
			n := t.Nodes["host"]
			n.Stalls = append(n.Stalls, record.Stall{At: t.Window.Start - second/2, LateNs: 4 * second})
			t.Nodes["host"] = n
		}},
		{"counters of the window alone", quickFactors("tunnel", "wireguard"), 1e9, "local",
			func(t *record.Trial) { t.Path.CountedFrom = t.Window.Start - 40e6 }},
		{"a mean of one segment size asked for", quickFactors("mss", "1000"), 1e9, "local",
			func(t *record.Trial) { t.Traffic.Load.MSS, t.Traffic.Flows[0].TCP.MSS = 1000, 988 }},
		{"segments that small buffers allow", quickFactors("socket_buffer", "4608"), 1e9, "local",
			func(t *record.Trial) { t.Traffic.Load.Buffer, t.Traffic.Flows[0].TCP.MSS = 4608, 1152 }},
		{"segments that a router between two machines made smaller", quickFactors(), 1e9, "pair",
			func(t *record.Trial) { t.Traffic.Flows[0].TCP.MSS = 1348 }},
		{"sources read once a second", quickFactors(), 1e9, "local", func(t *record.Trial) {
			n := t.Nodes["router"]
			slow := record.NewTable("wan/carrier_changes")
			for at := t.Window.Begin; at < t.Window.Stop; at += 1100e6 {
				slow.Append(at, 3)
			}

			n.Samples = []record.Samples{{Probe: "link", Table: slow}}
			t.Nodes["router"] = n
		}},
		{"path without tunnel has no evidence", quickFactors(), 1e9, "local",
			func(t *record.Trial) { t.Path = nil }},
	}
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			run := syntheticRun(test.factors)
			inLab(&run, test.lab)
			trial := newSynthetic(uint64(100+i)).trial(test.factors, 1, 1, test.rate)
			test.plant(&trial)
			c := Derive(run, []record.Trial{trial}).Cells[0]
			if c.Grade != evidence.GradeValid {
				t.Errorf("grade %s, reasons %v, want valid", c.Grade, c.Reasons)
			}
		})
	}
}

// A soft reason in a few of many trials does not condemn the cell.
func TestSoftReasonsNeedAQuarter(t *testing.T) {
	f := quickFactors()
	run := syntheticRun(f)
	for _, test := range []struct {
		bad   int
		grade string
	}{{0, evidence.GradeValid}, {2, evidence.GradeValid}, {3, evidence.GradeSuspect}} {
		s := newSynthetic(5)
		var trials []record.Trial
		for i := range 10 {
			trial := s.trial(f, i+1, i+1, 1e9)
			if i < test.bad {
				slower(&trial, .6, .7)
			}

			trials = append(trials, trial)
		}

		c := Derive(run, trials).Cells[0]
		if c.Grade != test.grade {
			t.Errorf("%d of 10 drift: grade %s, want %s", test.bad, c.Grade, test.grade)
		}

		if test.bad == 2 && (len(c.Caveats) != 1 || c.Caveats[0].Kind != evidence.ReasonDrift) {
			t.Errorf("caveats %v, want the drift of two trials", c.Caveats)
		}
	}
}

// A reason that several trials share is named once.
func TestReasonsAreNamedOnce(t *testing.T) {
	f := quickFactors()
	s := newSynthetic(6)
	var trials []record.Trial
	for i := range 3 {
		trial := s.trial(f, i+1, i+1, 1e9)
		after(&trial, table(&trial, "host", "foreign"), "foreign_cpu_ns", 2e9)
		trials = append(trials, trial)
	}

	d := Derive(syntheticRun(f), trials)
	c := d.Cells[0]
	if len(c.Reasons) != 1 || !strings.HasSuffix(c.Reasons[0].Text,
		"; the same reason in 2 more of 3 trials") || c.Reasons[0].Trial != trials[0].ID {
		t.Errorf("reasons %v", c.Reasons)
	}

	got := d.Trials[2].Reasons
	if len(got) != 1 || strings.Contains(got[0].Text, "the same reason") {
		t.Errorf("the trial's own reasons %v", got)
	}
}

// A verifying trial that found wrong bytes casts doubt on all cells of its path, and on no other.
func TestVerifyReachesThePath(t *testing.T) {
	plain := quickFactors()
	tunnel := quickFactors("tunnel", "wireguard")
	four := quickFactors("streams", "4")
	s := newSynthetic(9)
	bad := s.trial(plain, 1, 1, 1e9)
	bad.Row.Kind = record.RowVerify
	bad.Traffic.Flows[0].Corrupt = 3
	bad.Traffic.Flows[0].Verified = 1000
	trials := []record.Trial{bad, s.trial(plain, 1, 2, 1e9), s.trial(four, 1, 3, 1e9),
		s.trial(tunnel, 1, 4, 1e9)}
	d := Derive(syntheticRun(plain, four, tunnel), trials)
	for i, want := range []string{evidence.GradeSuspect, evidence.GradeSuspect, evidence.GradeValid} {
		got := d.Cells[i].Grade
		if got != want {
			t.Errorf("%s: grade %s, want %s", d.Cells[i].Label, got, want)
		}
	}
}
