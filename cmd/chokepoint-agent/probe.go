package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
	"github.com/chokepoint-lab/chokepoint/internal/trial/watch"
)

// observe lists the telemetry sources, or samples them.
func observe(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("probe", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	asJSON := flags.Bool("json", false, "")
	every := flags.Duration("interval", time.Second, "")
	count := flags.Int("count", 0, "")
	if err := flags.Parse(args); err != nil {
		return usageError("probe: " + err.Error())
	}

	if *every < time.Millisecond || *every > time.Hour || *count < 0 {
		return usageError(fmt.Sprintf(
			"probe: an interval of %s and a count of %d are not possible: 1ms to 1h, and 0 or more",
			*every, *count))
	}

	list, err := chosen(flags.Args())
	if err != nil {
		return err
	}

	if *asJSON {
		return watch.Print(ctx, out, list, *every, *count)
	}

	return sources(out, list)
}

// chosen returns the probes with the given names, or all probes if there are no names.
func chosen(names []string) ([]probe.Probe, error) {
	all := node.Probes()
	if len(names) == 0 {
		return all, nil
	}

	var list []probe.Probe
	for _, name := range names {
		i := slices.IndexFunc(all, func(p probe.Probe) bool { return p.Name == name })
		if i < 0 {
			return nil, usageError(fmt.Sprintf("probe: no source %q; there are %s", name,
				strings.Join(probe.Names(all), ", ")))
		}

		list = append(list, all[i])
	}

	return list, nil
}

// sources prints, for each source, whether this machine has it.
func sources(out io.Writer, list []probe.Probe) error {
	var b strings.Builder
	for _, p := range list {
		answer := p.Check()
		fmt.Fprintf(&b, "%-10s %-5s %s", p.Name, p.Scope, answer.State)
		if answer.Reason != "" {
			b.WriteString(": " + answer.Reason)
		}

		b.WriteString("\n")
	}
	return say(out, b.String())
}

func environment(args []string, out io.Writer) error {
	if len(args) > 0 {
		return usageError(fmt.Sprintf("environment takes no argument, got %q", args[0]))
	}

	text, err := json.MarshalIndent(probe.Fingerprint(probe.Root{}), "", "  ")
	if err != nil {
		return fmt.Errorf("encode environment: %v", err)
	}

	return say(out, string(text)+"\n")
}
