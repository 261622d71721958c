package main

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
)

// What watching may cost, as a share of one core: the five fast sources at 10 Hz, and everything together
// as the kernel charged it, interrupts included.
const (
	fastLimit = .005
	allLimit  = .008
)

func observingCommand(args []string, _ io.Reader, out io.Writer) error {
	doc, err := readDocument(flag.NewFlagSet("observing", flag.ContinueOnError), args)
	if err != nil {
		return err
	}
	o := doc.Observing
	fmt.Fprintf(out, "note: observing cost %.3f %% of one core (%.3f %% charged), the fast sources %.3f %%\n",
		o.CoreRatio*100, o.ChargedRatio*100, o.FastRatio*100)
	for _, name := range slices.Sorted(maps.Keys(o.Probes)) {
		fmt.Fprintf(out, "note:   %-10s %.4f %%\n", name, o.Probes[name]*100)
	}
	return checkObserving(doc).err()
}

func checkObserving(doc document) (f faults) {
	o := doc.Observing
	switch {
	case len(o.Probes) == 0 || o.FastRatio <= 0 || o.CoreRatio <= 0 || o.ChargedRatio < o.CoreRatio:
		f.add("observing has no figures: %+v", o)
	case o.FastRatio > fastLimit:
		f.add("the fast sources cost %.2f %% of one core, %.1f %% are allowed", o.FastRatio*100,
			fastLimit*100)
	case o.ChargedRatio > allLimit:
		f.add("observing costs %.2f %% of one core, %.1f %% are allowed", o.ChargedRatio*100, allLimit*100)
	}
	return f
}
