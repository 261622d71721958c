package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// The plan: queues before a bottleneck, a firewall that is walked rule by rule with and without a flow
// table, tunnels whose counters must account for what the receiver got, one of them with packets that do
// not fit, and more connections than may be tracked. One window each: what is asserted is several times its
// spread.
const (
	ratiosPlan = claimsPlan + countersCells
	// claimsPlan is the part of it whose rates and latencies are compared.
	claimsPlan = `name: guest
method: {duration: 3s, warmup: 700ms, cooldown: 100ms, runs: 1, seed: 1}
measure: {verify: false, latency_idle: "off"}
include:
  - {streams: 4, queue@router.wan: ["tbf rate 50M burst 32k limit 1000k", "cake bandwidth 50M"]}
  - {streams: 4, shape: 50M}
  - {firewall: "off"}
  - {firewall: 2000}
  - {firewall: 2000, flowtable: "on"}
`
	countersCells = `
  - {tunnel: wireguard}
  - {tunnel: wireguard, mtu: 1500}
  - {topology: site-to-site, tunnel: esp}
  - {topology: to-router, tunnel: openvpn, mtu: [1500, 6000]}
  - {protocol: udp, streams: 60, rate: 20M, packet_size: 200, nat: masquerade, conntrack_max: 20}
`
)

// The plan's cells, by what sets them apart.
var (
	fifo      = record.Factors{"queue@router.wan": "tbf rate 50M burst 32k limit 1000k"}
	cake      = record.Factors{"queue@router.wan": "cake bandwidth 50M rtt 100ms"}
	fqCodel   = record.Factors{"shape": "50M"}
	plain     = record.Factors{"firewall": "off", "flowtable": ""}
	rules     = record.Factors{"firewall": "2000", "flowtable": ""}
	offloaded = record.Factors{"firewall": "2000", "flowtable": "on"}
	wireGuard = record.Factors{"tunnel": "wireguard", "mtu": "1420"}
	tooLarge  = record.Factors{"tunnel": "wireguard", "mtu": "1500"}
	esp       = record.Factors{"tunnel": "esp"}
	openVPN   = record.Factors{"tunnel": "openvpn", "mtu": "1500"}
	openVPN6K = record.Factors{"tunnel": "openvpn", "mtu": "6000"}
	overfull  = record.Factors{"conntrack_max": "20"}
)

// claim bounds the ratio of a metric in two cells; most = 0 is no bound.
type claim struct {
	text        string
	over, under record.Factors
	metric      string
	least, most float64
}

var claims = []claim{
	{"latency under load at 50 Mbit/s, deep fifo ÷ fq_codel", fifo, fqCodel, "rtt_loaded_p50_ns", 2, 0},
	{"latency under load at 50 Mbit/s, deep fifo ÷ cake", fifo, cake, "rtt_loaded_p50_ns", 2, 0},
	{"goodput at 50 Mbit/s, fifo ÷ fq_codel", fifo, fqCodel, "goodput_bps", .4, 2.5},
	{"goodput at 50 Mbit/s, fifo ÷ cake", fifo, cake, "goodput_bps", .4, 2.5},
	{"goodput, no rules ÷ 2000 rules", plain, rules, "goodput_bps", 2, 0},
	{"goodput, 2000 rules behind a flow table ÷ 2000 rules", offloaded, rules, "goodput_bps", 2, 0},
}

// claimTrials is how often a claim is measured that the machine spoils.
const claimTrials = 3

// ratios runs the plan and judges it. A claim that does not hold is measured again if others used the
// machine meanwhile, a hypervisor or other processes: what they take decides how fast a virtual router is.
// If they never stop, the claim is not judged, and counts as skipped.
func ratios(ctx context.Context, b bench) error {
	c, err := b.measure(ctx, 6*time.Minute, ratiosPlan)
	if err != nil {
		return err
	}
	errs := faults(c)
	for _, judge := range []func(campaign, bench) error{judgeWireGuard, judgeESP, judgeTooLarge, judgeOpenVPN,
		judgeOverfull} {
		errs = append(errs, judge(c, b))
	}
	spoilt, wrong := b.judgeClaims(c, claims)
	errs = append(errs, wrong...)
	for n := 2; len(spoilt) > 0 && n <= claimTrials; n++ {
		fmt.Fprintf(b.out, "note: others used the machine: trial %d of %d claims\n", n, len(spoilt))
		if c, err = b.measure(ctx, 6*time.Minute, claimsPlan); err != nil {
			return errors.Join(append(errs, err)...)
		}
		errs = append(errs, faults(c)...)
		spoilt, wrong = b.judgeClaims(c, spoilt)
		errs = append(errs, wrong...)
	}
	for _, x := range spoilt {
		fmt.Fprintf(b.out, "note: skipped, because others used the machine in each of %d trials: %s\n",
			claimTrials, x.text)
	}
	b.skipped(len(spoilt))
	return errors.Join(errs...)
}

// faults are what no plan of this program may have.
func faults(c campaign) []error {
	var errs []error
	for _, s := range c.Doc.Skipped {
		errs = append(errs, fmt.Errorf("skipped: %s: %s", s.Factors.Key(), s.Reason))
	}
	for i := range c.Trials {
		// The load with too many connections may rightly fail; its counters are judged.
		if t := &c.Trials[i]; t.Failure != nil && !is(t.Row.Factors, overfull) {
			errs = append(errs, fmt.Errorf("trial %s failed in %s: %s", t.ID, t.Failure.Phase,
				t.Failure.Error))
		}
	}
	return errs
}

// judgeClaims holds a run to what is claimed of it. A claim that does not hold is spoilt if the analysis
// doubts one of its two trials for what others used of the machine, and wrong if it does not.
func (b bench) judgeClaims(c campaign, all []claim) (spoilt []claim, wrong []error) {
	for _, x := range all {
		over, err := c.metric(x.over, x.metric)
		under, err2 := c.metric(x.under, x.metric)
		if err = errors.Join(err, err2); err != nil {
			err = fmt.Errorf("%s: %w", x.text, err)
		} else {
			err = b.within(x.text, over/under, x.least, x.most)
		}
		switch {
		case err == nil:
		case c.shared(x.over) || c.shared(x.under):
			spoilt = append(spoilt, x)
		default:
			wrong = append(wrong, err)
		}
	}
	return spoilt, wrong
}

// within prints a number and holds it to its bounds; most = 0 is no bound.
func (b bench) within(text string, got, least, most float64) error {
	fmt.Fprintf(b.out, "note: %s: %.4g\n", text, got)
	if !(got >= least) || most > 0 && !(got <= most) {
		return fmt.Errorf("%s: %.4g is outside of its bounds, %.4g and %.4g", text, got, least, most)
	}
	return nil
}
