// Program guest measures a virtual router and asserts on what an emulator
// cannot distort: ratios and counters, never rates. It runs a plan on lab vm
// with the chokepoint that it is given, and prints each ratio with its bound.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// plan: a bloated and two smart queues before a bottleneck, a firewall that is
// walked rule by rule, and a tunnel whose counters must account for what the
// receiver got.
const plan = `name: guest
method: {duration: 3s, warmup: 700ms, cooldown: 100ms, idle: 500ms, runs: 2, seed: 1}
measure: {verify: false}
matrix:
  streams: [4]
  queue@router.wan: ["tbf rate 50M burst 32k limit 1000k", "cake bandwidth 50M"]
include:
  - {streams: 1}
  - {streams: 1, firewall: 2000}
  - {streams: 1, tunnel: wireguard}
`

// window is the plan's duration in seconds.
const window = 3

// limit bounds the whole run: a guest that hangs must not hang the suite.
const limit = 6 * time.Minute

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, out, talk io.Writer) int {
	flags := flag.NewFlagSet("guest", flag.ContinueOnError)
	flags.SetOutput(talk)
	binary := flags.String("binary", "", "the chokepoint to run")
	kind := flags.String("lab", "vm", "kind of lab")
	if flags.Parse(args) != nil || flags.NArg() > 0 || *binary == "" {
		flags.Usage()
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	doc, err := measure(ctx, *binary, *kind, talk)
	if err == nil {
		err = judge(doc, out)
	}
	if err != nil {
		fmt.Fprintln(talk, "guest:", err)
		return 1
	}
	return 0
}

// measure runs the plan and returns the run's document.
func measure(ctx context.Context, binary, kind string, talk io.Writer) (document, error) {
	var doc document
	dir, err := os.MkdirTemp("", "chokepoint-guest-")
	if err != nil {
		return doc, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "guest.yaml")
	if err := os.WriteFile(file, []byte(plan), 0o600); err != nil {
		return doc, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "run", file, "--lab", kind, "--report", filepath.Join(dir, "report.html"), "--json")
	cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+filepath.Join(dir, "data"))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stderr = talk
	said, runErr := cmd.Output()
	for line := range bytes.Lines(said) {
		var d document
		if json.Unmarshal(line, &d) == nil && len(d.Cells) > 0 {
			doc = d
		}
	}
	if len(doc.Cells) == 0 {
		return doc, errors.Join(runErr, errors.New("chokepoint run: it printed no document"))
	}
	return doc, nil // failed trials are judged
}

// document is what is judged of show --json.
type document struct {
	Cells []struct {
		Label   string            `json:"label"`
		Factors map[string]string `json:"factors"`
		Metrics map[string]struct {
			Median float64 `json:"median"`
		} `json:"metrics"`
	} `json:"cells"`
	Trials []struct {
		ID      string             `json:"id"`
		Kind    string             `json:"kind"`
		Factors map[string]string  `json:"factors"`
		Metrics map[string]float64 `json:"metrics"`
		Failure *struct {
			Phase string `json:"phase"`
			Text  string `json:"error"`
		} `json:"failure"`
		Path *struct {
			Counters []counter `json:"counters"`
		} `json:"path"`
	} `json:"trials"`
	Skipped []struct {
		Reason string `json:"reason"`
	} `json:"skipped"`
}

type counter struct {
	Node, Counter, When string
	Before, After       float64
}

// cell names a cell by the factor that makes it special and the beginning of
// its level; of the plan's two plain cells it is the one with one stream.
type cell struct{ factor, level string }

var plain = cell{"streams", "1"}

func (c cell) is(f map[string]string) bool {
	if c == plain {
		return f["streams"] == "1" && f["tunnel"] == "none" && (f["firewall"] == "" || f["firewall"] == "off")
	}
	return strings.HasPrefix(f[c.factor], c.level)
}

// median of a metric in a cell.
func (d document) median(c cell, metric string) (float64, error) {
	for _, x := range d.Cells {
		if !c.is(x.Factors) {
			continue
		}
		if m, ok := x.Metrics[metric]; ok && m.Median > 0 {
			return m.Median, nil
		}
		return 0, fmt.Errorf("cell %s has no %s", x.Label, metric)
	}
	return 0, fmt.Errorf("there is no cell with %s=%s…", c.factor, c.level)
}

// claim bounds the ratio of a metric in two cells; most = 0 is no bound.
type claim struct {
	text        string
	over, under cell
	metric      string
	least, most float64
}

var (
	fifo  = cell{"queue@router.wan", "tbf"}
	cake  = cell{"queue@router.wan", "cake"}
	rules = cell{"firewall", "2000"}
)

var claims = []claim{
	{"latency under load at 50 Mbit/s, deep fifo ÷ cake", fifo, cake, "rtt_loaded_p50_ns", 2, 0},
	{"goodput at 50 Mbit/s, fifo ÷ cake", fifo, cake, "goodput_bps", .8, 1.25},
	{"goodput, no rules ÷ 2000 rules", plain, rules, "goodput_bps", 2, 0},
}

func judge(d document, out io.Writer) error {
	var errs []error
	for _, s := range d.Skipped {
		errs = append(errs, fmt.Errorf("skipped: %s", s.Reason))
	}
	for _, t := range d.Trials {
		if t.Failure != nil {
			errs = append(errs, fmt.Errorf("trial %s failed in %s: %s", t.ID, t.Failure.Phase, t.Failure.Text))
		}
	}
	for _, c := range claims {
		over, err := d.median(c.over, c.metric)
		under, err2 := d.median(c.under, c.metric)
		if err = errors.Join(err, err2); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, within(c.text, over/under, c.least, c.most, out))
	}
	return errors.Join(append(errs, judgeTunnel(d, out))...)
}

func within(text string, got, least, most float64, out io.Writer) error {
	fmt.Fprintf(out, "note: %s: %.2f\n", text, got)
	if !(got >= least) || most > 0 && !(got <= most) {
		return fmt.Errorf("%s: %.2f is outside of its bounds", text, got)
	}
	return nil
}

// judgeTunnel holds what the tunnel says it carried in a whole load against
// what the receiver counted in the window: at least that and the headers of
// IPv4 and TCP with time stamps in packets of 1420 bytes, at most as much more
// as the load is longer than its window, and a queue.
func judgeTunnel(d document, out io.Writer) error {
	seen := 0
	var errs []error
	for _, t := range d.Trials {
		if t.Kind != "load" || t.Factors["tunnel"] == "none" || t.Path == nil {
			continue
		}
		payload := t.Metrics["goodput_bps"] / 8 * window
		for _, c := range t.Path.Counters {
			if c.Counter != "tunnel_sent_bytes" || c.When != "window" || payload <= 0 {
				continue
			}
			seen++
			errs = append(errs, within("bytes through the tunnel ÷ payload in the window", (c.After-c.Before)/payload, 1420./1368, 2, out))
		}
	}
	if seen == 0 {
		errs = append(errs, errors.New("no trial has counters of its tunnel"))
	}
	return errors.Join(errs...)
}
