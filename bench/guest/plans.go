package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// tables are the built-in plans after published tables, with what else makes them short.
var tables = [...]struct {
	plan string
	sets []string
}{
	{"wireguard", nil},
	// A queue that drops holds a slow router's streams up for longer than a short window.
	{"queues", []string{"method.duration=2s"}},
	{"firewall", nil}, {"forwarding", nil},
	{"openvpn", []string{"matrix.direction=up", "matrix.rate=2M"}},
}

// brief makes a plan short: one window per cell, and no other measurements.
var brief = [...]string{"method.duration=700ms", "method.warmup=200ms", "method.cooldown=0", "method.runs=1",
	"measure.verify=false", "measure.latency_idle=off"}

// mayLack are the reasons for which a cell of these plans may have no number on a distribution's kernel.
// There are none.
var mayLack []string

// plans runs each of them, and wants a number or an allowed reason of each cell.
func plans(ctx context.Context, b bench) error {
	var errs []error
	for _, t := range tables {
		name, began := t.plan, time.Now()
		c, err := b.table(ctx, name, t.sets)
		if err == nil {
			err = errors.Join(judgeTable(c)...)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("plan %s: %w", name, err))
			continue
		}
		fmt.Fprintf(b.out, "note: plan %s: %d cells, %d skipped, in %s\n", name, len(c.Doc.Cells),
			len(c.Doc.Skipped), time.Since(began).Round(time.Second))
	}
	return errors.Join(errs...)
}

func (b bench) table(ctx context.Context, name string, sets []string) (campaign, error) {
	dir, err := os.MkdirTemp("", "chokepoint-guest-")
	if err != nil {
		return campaign{}, err
	}
	defer os.RemoveAll(dir)
	args := []string{name, "--seed", "1"}
	for _, set := range slices.Concat(brief[:], sets) {
		args = append(args, "--set", set)
	}
	c, err := b.start(ctx, 8*time.Minute, dir, args...)
	if slices.ContainsFunc(c.Trials, func(t record.Trial) bool { return t.Failure != nil }) {
		b.quoteConsoles(dir)
	}
	return c, err
}

// quoteConsoles tells the end of what the guests' kernels said.
func (b bench) quoteConsoles(dir string) {
	files, _ := filepath.Glob(filepath.Join(dir, "chokepoint", "runs", "*", "*.console"))
	for _, file := range files {
		said, err := os.ReadFile(file)
		fmt.Fprintf(b.log, "%s: %s %v\n", filepath.Base(file), said[max(0, len(said)-4000):], err)
	}
}

// judgeTable lists what a table lacks.
func judgeTable(c campaign) []error {
	var errs []error
	if len(c.Doc.Cells) == 0 {
		errs = append(errs, errors.New("there is no cell"))
	}
	for i := range c.Trials {
		if t := &c.Trials[i]; t.Failure != nil {
			errs = append(errs, fmt.Errorf("trial %s of %s failed in %s: %s", t.ID, t.Row.Factors.Key(),
				t.Failure.Phase, t.Failure.Error))
		}
	}
	for i := range c.Doc.Cells {
		errs = append(errs, lacks(&c.Doc.Cells[i])...)
	}
	for _, s := range c.Doc.Skipped {
		if !slices.Contains(mayLack, s.Reason) {
			errs = append(errs, fmt.Errorf("skipped: %s: %s", s.Factors.Key(), s.Reason))
		}
	}
	return errs
}

// lacks lists what a cell must have and has not: a rate; and of the other columns of the published tables a
// number or the reason why there is none, such as that no latency probe got through a flood of packets.
func lacks(c *analysis.Cell) []error {
	rate, others := "goodput_bps", []string{"rtt_loaded_p50_ns"}
	if c.Factors["protocol"] == "udp" {
		rate, others = "packet_rate_pps", append(others, "loss_ratio")
	} else {
		others = append(others, "retransmits")
	}
	if c.Factors["topology"] != "direct" { // which has no router
		others = append(others, "router_cpu_ratio", "router_busiest_core_ratio")
	}
	var errs []error
	if v := c.Metrics[rate]; !(v.Median > 0) {
		errs = append(errs, fmt.Errorf("cell %s has no %s: %s", c.Label, rate, c.Missing[rate]))
	}
	for _, metric := range others {
		if v, ok := c.Metrics[metric]; !(ok && v.Median >= 0) && c.Missing[metric] == "" {
			errs = append(errs, fmt.Errorf("cell %s has no %s, and no reason", c.Label, metric))
		}
	}
	return errs
}
