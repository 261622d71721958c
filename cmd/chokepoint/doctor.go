package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/check"
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
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := p.Examine(cmd.Context())
			if cmd.Context().Err() != nil {
				return err
			}

			return errors.Join(p.findings(f), err)
		},
	}, "print the findings as a JSON object")
}

// findings prints what a machine can do.
func (p *program) findings(f *app.Findings) error { return p.line(f, findingsText(f, p.width())) }

// findingsText formats the capabilities of a machine for a width in columns; 0 means unlimited.
func findingsText(f *app.Findings, width int) string {
	var b builder
	b.printf("%s, Linux %s\n", f.Version, f.Kernel)
	all := append([]trial.Capability{f.Lab}, f.Capabilities...)
	wide := 0
	for _, c := range all {
		wide = max(wide, len(c.Name))
	}

	var above trial.Capability // last capability whose own reason was printed
	for i, c := range all {
		if i == 0 || c.Area != all[i-1].Area {
			b.printf("\n%s\n", c.Area)
		}

		reason, hint := c.Answer.Reason, c.Answer.Hint
		if c.Area == above.Area && reason != "" && alike(c.Answer, above.Answer) {
			reason, hint = "as "+above.Name, ""
		} else {
			above = c
		}

		indent := b.beside(fmt.Sprintf("  %-*s  %-14s  ", wide, c.Name, c.Answer.State), reason, width)
		if hint != "" {
			b.WriteString(hang(indent, "hint: "+hint, width))
		}
	}

	if f.Note != "" {
		b.WriteString("\n" + hang("", f.Note, width))
	}

	if len(f.Ceilings) > 0 {
		b.WriteString("\nthe tester alone, without a router\n")
	}

	for _, c := range f.Ceilings {
		wide = max(wide, len(c.Kind))
	}

	for _, c := range f.Ceilings {
		value := unit.ScaleOf(c.Unit, c.Value).Text(c.Value)
		b.beside(fmt.Sprintf("  %-*s  %s  ", wide, c.Kind, value), "("+c.Note+")", width)
	}

	t := f.Timer
	if t != nil && t.Probes > 0 {
		b.printf("\ntimer of the latency probe, %d probes at 1 ms\n", t.Probes)
		late := fmt.Sprintf("sent late by %s (median), %s (p99), scheduled as %s; round trip over loopback "+
			"%s (%s time stamps)", unit.Nanoseconds(float64(t.LateP50Ns)),
			unit.Nanoseconds(float64(t.LateP99Ns)), cmp.Or(t.Scheduling, "unknown"),
			unit.Nanoseconds(float64(t.RTTP50Ns)), t.Stamps)
		clock := fmt.Sprintf("clock source %s; a reading takes %s, the smallest step seen is %s",
			cmp.Or(t.ClockSource, "unknown"), unit.Nanoseconds(float64(t.ClockReadNs)),
			unit.Nanoseconds(float64(t.ClockStepNs)))
		b.WriteString(hang("  ", late, width) + hang("  ", clock, width))
	}

	return b.String()
}

// beside writes text beside head or, if the width does not suffice, below it. It returns the indentation of
// further text.
func (b *builder) beside(head, text string, width int) (indent string) {
	indent = strings.Repeat(" ", utf8.RuneCountInString(head))
	if width > 0 && text != "" && utf8.RuneCountInString(head+text) > width {
		b.WriteString(strings.TrimRight(head, " ") + "\n")
		indent = "      "
		head = indent
	}

	b.WriteString(hang(head, text, width))
	return indent
}

// alike reports whether two answers differ only in numbers, such as the numbers in names of devices.
func alike(a, b check.Answer) bool {
	words := func(x check.Answer) string {
		return strings.Map(func(r rune) rune {
			if unicode.IsDigit(r) {
				return -1
			}
			return r
		}, x.State.String()+x.Reason+x.Hint)
	}
	return words(a) == words(b)
}
