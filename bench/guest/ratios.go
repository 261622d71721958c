package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// ratiosPlan: queues before a bottleneck, a firewall that is walked rule by
// rule with and without a flow table, tunnels whose counters must account for
// what the receiver got, one of them with packets that do not fit, and more
// connections than may be tracked. One window each: what is asserted is
// several times its spread.
const ratiosPlan = `name: guest
method: {duration: 3s, warmup: 700ms, cooldown: 100ms, runs: 1, seed: 1}
measure: {verify: false, latency_idle: "off"}
include:
  - {streams: 4, queue@router.wan: ["tbf rate 50M burst 32k limit 1000k", "cake bandwidth 50M"]}
  - {streams: 4, shape: 50M}
  - {firewall: "off"}
  - {firewall: 2000}
  - {firewall: 2000, flowtable: "on"}
  - {tunnel: wireguard}
  - {tunnel: wireguard, mtu: 1500}
  - {topology: site-to-site, tunnel: esp}
  - {topology: to-router, tunnel: openvpn, mtu: [1500, 6000]}
  - {protocol: udp, streams: 60, rate: 20M, packet_size: 200, nat: masquerade, conntrack_max: 20}
`

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
	crowded   = record.Factors{"conntrack_max": "20"}
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

// ratios runs the plan and judges it.
func ratios(ctx context.Context, b bench) error {
	c, err := b.measure(ctx, 6*time.Minute, ratiosPlan)
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range c.doc.Skipped {
		errs = append(errs, fmt.Errorf("skipped: %s: %s", s.Factors.Key(), s.Reason))
	}
	for i := range c.trials {
		// The load with too many connections may rightly fail; its counters are judged.
		if t := &c.trials[i]; t.Failure != nil && !is(t.Row.Factors, crowded) {
			errs = append(errs, fmt.Errorf("trial %s failed in %s: %s", t.ID, t.Failure.Phase, t.Failure.Error))
		}
	}
	for _, x := range claims {
		over, err := c.metric(x.over, x.metric)
		under, err2 := c.metric(x.under, x.metric)
		if err = errors.Join(err, err2); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", x.text, err))
			continue
		}
		errs = append(errs, b.within(x.text, over/under, x.least, x.most))
	}
	for _, judge := range []func(campaign, bench) error{judgeWireGuard, judgeESP, judgeTooLarge, judgeOpenVPN, judgeCrowded} {
		errs = append(errs, judge(c, b))
	}
	return errors.Join(errs...)
}

// within prints a number and holds it to its bounds; most = 0 is no bound.
func (b bench) within(text string, got, least, most float64) error {
	fmt.Fprintf(b.out, "note: %s: %.4g\n", text, got)
	if !(got >= least) || most > 0 && !(got <= most) {
		return fmt.Errorf("%s: %.4g is outside of its bounds, %.4g and %.4g", text, got, least, most)
	}
	return nil
}
