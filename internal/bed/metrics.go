package bed

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

// serveMetrics answers requests for /metrics until ctx ends. What it answers is in memory, so a request costs
// a running measurement little.
func (b *Service) serveMetrics(ctx context.Context, ln net.Listener) error {
	server := &http.Server{
		Handler:        http.HandlerFunc(b.metrics),
		ReadTimeout:    10 * time.Second,
		WriteTimeout:   10 * time.Second,
		IdleTimeout:    time.Minute,
		MaxHeaderBytes: 16 << 10,
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	err := server.Serve(ln)
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serve %s: %v", ln.Addr(), check.Underlying(err))
}

// metrics answers a request. Other names of the server are refused, as DNS rebinding needs them.
func (b *Service) metrics(w http.ResponseWriter, r *http.Request) {
	name, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		name = strings.Trim(r.Host, "[]")
	}

	ip, notIP := netip.ParseAddr(name)
	switch {
	case name != "localhost" && (notIP != nil || !ip.IsLoopback()):
		http.Error(w, "this server has another name", http.StatusForbidden)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "this server only answers GET and HEAD", http.StatusMethodNotAllowed)
	case r.URL.Path != "/metrics":
		http.Error(w, "there is only /metrics", http.StatusNotFound)
	default:
		b.mu.Lock()
		last := b.last
		b.mu.Unlock()
		if last.Name == "" {
			http.Error(w, "the service is starting", http.StatusServiceUnavailable)
			return
		}

		w.Header().Set("Content-Type", "application/openmetrics-text; version=1.0.0; charset=utf-8")
		_, _ = w.Write([]byte(exposition(last, b.now()))) // the client may have left
	}
}

// exposition returns a report of a testbed in the format OpenMetrics.
func exposition(r store.Bed, now time.Time) string {
	var text strings.Builder
	family := func(name, help string, samples ...string) {
		fmt.Fprintf(&text, "# TYPE %s gauge\n# HELP %s %s\n%s", name, name, help, strings.Join(samples, ""))
	}
	bed := fmt.Sprintf(`testbed="%s"`, r.Name)
	one := func(name, labels string, value float64) string {
		return fmt.Sprintf("%s{%s} %g\n", name, bed+labels, value)
	}
	seconds := func(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
	const up, silent = "chokepoint_bed_report_timestamp_seconds", "chokepoint_bed_silent"
	const jobs = "chokepoint_bed_jobs"
	family(up, "time of the last look at jobs and requests", one(up, "", seconds(r.Seen)))
	family(silent, "1: a schedule's job has not ended in time", one(silent, "", boolean(r.Silent(now) != "")))
	family(jobs, "jobs that run and wait", one(jobs, `,status="running"`, boolean(r.Job != nil)),
		one(jobs, `,status="waiting"`, float64(len(r.Waiting))))
	const trials, total = "chokepoint_bed_run_trials", "chokepoint_bed_run_planned_trials"
	if r.Job != nil && r.Job.Total > 0 {
		family(trials, "trials of the current run that have ended", one(trials, "", float64(r.Job.Trials)))
		family(total, "trials that the current run has in all", one(total, "", float64(r.Job.Total)))
	}

	const next = "chokepoint_bed_schedule_next_timestamp_seconds"
	const by = "chokepoint_bed_schedule_due_timestamp_seconds"
	var nexts, bys []string
	for _, s := range r.Schedules {
		labels := fmt.Sprintf(`,schedule="%s"`, s.Name)
		nexts = append(nexts, one(next, labels, seconds(s.Next)))
		bys = append(bys, one(by, labels, seconds(s.By)))
	}

	if len(r.Schedules) > 0 {
		family(next, "when a schedule starts its next job", nexts...)
		family(by, "until when a job of a schedule has to have ended", bys...)
	}

	const ended, alarms = "chokepoint_bed_last_job_timestamp_seconds", "chokepoint_bed_undelivered_alarms"
	if len(r.Ended) > 0 {
		last := r.Ended[0]
		status := fmt.Sprintf(`,status="%s"`, last.Status)
		family(ended, "when the last job ended", one(ended, status, seconds(last.Ended)))
	}

	undelivered := 0.0
	for _, a := range r.Alarms {
		if a.Unsent != "" {
			undelivered++
		}
	}

	family(alarms, "alarms that could not be delivered yet", one(alarms, "", undelivered))
	return text.String() + "# EOF\n"
}

func boolean(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
