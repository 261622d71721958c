// Program accounts holds the engines' counts of packets to what was planted on their way: packets that the
// router drops, sends twice or holds back until later ones have passed, each counted where it is planted.
// It fails if one packet is missing in the account. On a virtual router netem plants and counts, the
// devices count, and a tap sees the order in which the far end is reached. It needs root.
//
//	accounts [-packets N] [-length D] [-lab local|vm] [-only NAME]
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// The first argument of the process that holds packets back, and of the one that looks at those that
// arrive.
const (
	relayRole = "relay"
	tapRole   = "tap"
)

func main() { os.Exit(rig.Main("accounts", run)) }

func run(ctx context.Context, args []string, out, log io.Writer) error {
	switch {
	case len(args) > 0 && args[0] == relayRole:
		return relay(os.Stdin, out)
	case len(args) > 0 && args[0] == tapRole:
		return tap(os.Stdin, out)
	}
	flags := flag.NewFlagSet("accounts", flag.ContinueOnError)
	packets := flags.Int64("packets", 1e8, "packets in all, at least")
	length := flags.Duration("length", 10*time.Second, "of each load")
	kind := flags.String("lab", "local", "local or vm")
	only := flags.String("only", "", "rows whose name begins so")
	guests := func() bool { _, ok := record.GuestArch(*kind); return ok }
	err := rig.Parse(flags, args, log, func() bool {
		return *packets >= 1 && *length > 0 && (record.InNamespaces(*kind) || guests())
	})
	if err != nil {
		return err
	}
	local, rows := lab.Local{}, localRows()
	if guests() {
		rows = guestRows()
		if local.Guest, err = guest(ctx, log); err != nil {
			return err
		}
	}
	return rig.OnLab(ctx, "forward", local, func(l *lab.Lab) error {
		b := &stand{lab: l, length: *length, out: out, log: log}
		fmt.Fprintf(out, "| load | sent | lost: planted | by full queues, at most | found | duplicates: "+
			"planted "+
			"| found | reordered: planted | found |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|\n")
		total := int64(0)
		for _, r := range rows {
			if !strings.HasPrefix(r.name, *only) {
				continue
			}
			a, err := b.row(ctx, r, int64(float64(*packets)*r.share)+1)
			if err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			total += a.sent
		}
		fmt.Fprintf(out, "\n%d packets, none unaccounted for\n", total)
		return nil
	})
}

// guest is a virtual router of this machine's architecture.
func guest(ctx context.Context, log io.Writer) (*vm.Guest, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	r := vm.Recipe{Arch: vm.NativeArch(), Cache: filepath.Join(cache, "chokepoint", "vm"),
		Say: func(text string) { fmt.Fprintln(log, text) }}
	if r.Program, err = vm.GuestProgram(ctx, r.Arch, r.Cache, r.Say); err != nil {
		return nil, err
	}
	img, err := r.Image(ctx)
	if err != nil {
		return nil, err
	}
	g := vm.NewGuest(img)
	// With two, netem may be given a second packet that passes others before the first is sent, and puts it
	// in front of that, too.
	g.CPUs = 1
	return &g, nil
}
