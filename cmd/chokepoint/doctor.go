package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/trial"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

func newDoctorCommand(p *program) *cobra.Command {
	return addJSON(&cobra.Command{
		Use:   "doctor",
		Short: "Show what this machine can do, and how fast the tester itself is",
		Long: `Show what this machine can do (yes, no, or could not tell, with the reason): guests,
tunnels, settings, engines, telemetry. Also show how fast the tester is without a
router, and how precise its timer is. lab check --lab vm boots the guests. doctor makes
a lab for about ten seconds and changes nothing else.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDoctor(cmd.Context(), p) },
	}, "print the findings as a JSON object")
}

func runDoctor(ctx context.Context, p *program) error {
	f, err := p.Examine(ctx)
	if ctx.Err() != nil {
		return err
	}
	return errors.Join(p.line(f, findingsText(f)), err)
}

// findingsText lays out what a machine can do.
func findingsText(f *app.Findings) string {
	var b builder
	b.printf("%s, Linux %s\n", f.Version, f.Kernel)
	all := append([]trial.Capability{f.Lab}, f.Capabilities...)
	wide := 0
	for _, c := range all {
		wide = max(wide, len(c.Name))
	}

	area := ""
	for _, c := range all {
		if c.Area != area {
			area = c.Area
			b.printf("\n%s\n", area)
		}

		line := fmt.Sprintf("  %-*s  %-14s  %s", wide, c.Name, c.Answer.State, c.Answer.Reason)
		b.WriteString(strings.TrimRight(line, " ") + "\n")
		if c.Answer.Hint != "" {
			b.printf("  %-*s  %-14s  hint: %s\n", wide, "", "", c.Answer.Hint)
		}
	}

	if f.Note != "" {
		b.printf("\n%s\n", f.Note)
	}

	if len(f.Ceilings) > 0 {
		b.WriteString("\nthe tester alone, without a router\n")
	}

	for _, c := range f.Ceilings {
		wide = max(wide, len(c.Kind))
	}

	for _, c := range f.Ceilings {
		b.printf("  %-*s  %s  (%s)\n", wide, c.Kind, unit.ScaleOf(c.Unit, c.Value).Text(c.Value),
			c.Note)
	}

	t := f.Timer
	if t != nil && t.Probes > 0 {
		b.printf("\ntimer of the latency probe, %d probes at 1 ms\n", t.Probes)
		b.printf("  sent late by %s (median), %s (p99), scheduled as %s; round trip over loopback %s "+
			"(%s time stamps)\n",
			unit.Nanoseconds(float64(t.LateP50Ns)), unit.Nanoseconds(float64(t.LateP99Ns)),
			cmp.Or(t.Scheduling, "unknown"), unit.Nanoseconds(float64(t.RTTP50Ns)), t.Stamps)
		b.printf("  clock source %s; a reading takes %s, the smallest step seen is %s\n",
			cmp.Or(t.ClockSource, "unknown"),
			unit.Nanoseconds(float64(t.ClockReadNs)), unit.Nanoseconds(float64(t.ClockStepNs)))
	}

	return b.String()
}
