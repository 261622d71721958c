package main

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
)

// TestWatchMetrics: while watch goes on, Prometheus gets the last sample from an address of this machine, and
// none when it is old.
func TestWatchMetrics(t *testing.T) {
	var notes strings.Builder
	p := &program{streams: streams{Out: io.Discard, Err: &notes}}
	s := &glances{p: p, of: "local", fresh: time.Hour}
	address := ""
	scrape := func() string {
		answer, err := http.Get(address)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		kind := answer.Header.Get("Content-Type")
		if err != nil || !strings.HasPrefix(kind, "application/openmetrics-text") {
			t.Errorf("got %s, %s, %v", answer.Status, kind, err)
		}

		return string(body)
	}
	clock := 1.5e9
	err := s.exposed(t.Context(), "127.0.0.1:0", func(context.Context) error {
		address = regexp.MustCompile(`http://127.0.0.1:[0-9]+/metrics`).FindString(notes.String())
		empty := scrape()
		if strings.Contains(empty, "chokepoint_core") || !strings.HasSuffix(empty, "# EOF\n") {
			t.Errorf("before a sample: got\n%s", empty)
		}

		g := &analysis.Glance{
			Node:      "router",
			Cores:     []analysis.CoreGlance{{Name: "cpu0", Busy: .5, Softirq: .25}},
			Devices:   []analysis.DeviceGlance{{Name: "eth0\"\n", RxBps: 1e9, TxBps: 2e9, DropPs: 3}},
			ClockHz:   &clock,
			Candidate: &analysis.GlanceCause{Class: "core", Text: "cpu0 is full", Confidence: .8},
		}
		if err := s.show(g); err != nil {
			return err
		}

		body := scrape()
		for _, want := range []string{
			`chokepoint_core_busy_ratio{node="router",core="cpu0"} 0.5`,
			`chokepoint_port_bits_per_second{node="router",port="eth0\"`, `,direction="out"} 2e+09`,
			`chokepoint_clock_hertz{node="router"} 1.5e+09`,
			`chokepoint_limit_confidence_ratio{node="router",class="core",text="cpu0 is full"} 0.8`,
		} {
			if !strings.Contains(body, want) {
				t.Errorf("got no %s in\n%s", want, body)
			}
		}

		if strings.Contains(body, "temperature") ||
			strings.Count(body, "# TYPE chokepoint_port_bits_per_second ") != 1 {
			t.Errorf("got a value that the node does not report, or a family twice:\n%s", body)
		}

		s.fresh = 0
		if body := scrape(); strings.Contains(body, "chokepoint_core") {
			t.Errorf("an old sample: got\n%s", body)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}

	if _, err := http.Get(address); err == nil {
		t.Error("it answers after watch has ended")
	}
}
