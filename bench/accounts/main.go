// Program accounts holds the engines' counts of packets to what was planted on their way: packets that the
// router drops, sends twice or holds back until later ones have passed, each counted where it is planted.
// It fails if one packet is missing in the account. On a virtual router netem plants and counts, the
// devices count, and a tap sees the order in which the far end is reached. It needs root.
//
//	accounts [-packets N] [-length D] [-lab local|vm] [-only NAME]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
)

// The first argument of the process that holds packets back, and of the one that looks at those that
// arrive.
const (
	relayRole = "relay"
	tapRole   = "tap"
)

func main() { os.Exit(role(os.Args[1:])) }

// role is the program's own, or what it is started for on a node.
func role(args []string) int {
	handled, err := true, error(nil)
	switch {
	case len(args) > 0 && args[0] == relayRole:
		err = relay(os.Stdin, os.Stdout)
	case len(args) > 0 && args[0] == tapRole:
		err = tap(os.Stdin, os.Stdout)
	default:
		handled, err = registry.Serve(args)
	}
	switch {
	case err != nil:
		fmt.Fprintf(os.Stderr, "accounts %s: %v\n", args[0], err)
		return 1
	case handled:
		return 0
	}
	return run(args, os.Stdout, os.Stderr)
}

type options struct {
	packets int64
	length  time.Duration
	lab     string
	only    string
}

func run(args []string, out, talk io.Writer) int {
	o := options{}
	flags := flag.NewFlagSet("accounts", flag.ContinueOnError)
	flags.SetOutput(talk)
	flags.Int64Var(&o.packets, "packets", 1e8, "packets in all, at least")
	flags.DurationVar(&o.length, "length", 10*time.Second, "of each load")
	flags.StringVar(&o.lab, "lab", "local", "local or vm")
	flags.StringVar(&o.only, "only", "", "rows whose name begins so")
	if flags.Parse(args) != nil || flags.NArg() > 0 || o.packets < 1 || o.length <= 0 || o.lab != "local" &&
		o.lab != "vm" {
		fmt.Fprintln(talk, "usage: accounts [-packets N] [-length D] [-lab local|vm] [-only NAME]")
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := bench(ctx, o, out, talk); err != nil {
		fmt.Fprintln(talk, "accounts:", err)
		return 1
	}
	return 0
}

func bench(ctx context.Context, o options, out, talk io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "accounts-")
	if err != nil {
		return fmt.Errorf("create a folder for the lab: %w", err)
	}
	defer os.RemoveAll(dir)
	topology, err := lab.TopologyNamed("forward")
	if err != nil {
		return err
	}
	local := lab.Local{ID: "accounts", Topology: topology, Dir: filepath.Join(dir, "labs"),
		Parts: registry.LabParts()}
	if o.lab == "vm" {
		if local.Guest, err = guest(ctx, talk); err != nil {
			return err
		}
	}
	l, err := local.Up(ctx)
	if err != nil {
		return err
	}
	defer func() {
		down, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		err = errors.Join(err, l.Close(down))
	}()
	b := &stand{lab: l, length: o.length, out: out, talk: talk}
	if err := b.settle(ctx); err != nil {
		return err
	}
	rows := localRows()
	if o.lab == "vm" {
		rows = guestRows()
	}
	fmt.Fprintf(out, "| load | sent | lost: planted | by full queues, at most | found | duplicates: planted "+
		"| found | reordered: planted | found |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	total := int64(0)
	for _, r := range rows {
		if !strings.HasPrefix(r.name, o.only) {
			continue
		}
		a, err := b.row(ctx, r, int64(float64(o.packets)*r.share)+1)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		total += a.sent
	}
	fmt.Fprintf(out, "\n%d packets, none unaccounted for\n", total)
	return nil
}

// guest is a virtual router of this machine's architecture.
func guest(ctx context.Context, talk io.Writer) (*vm.Guest, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	r := vm.Recipe{Arch: vm.NativeArch(), Cache: filepath.Join(cache, "chokepoint", "vm"),
		Say: func(text string) { fmt.Fprintln(talk, text) }}
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

// settle makes every link carry real packets.
func (b *stand) settle(ctx context.Context) error {
	var all []record.Setting
	for _, link := range b.lab.Topology.Links {
		for _, end := range link.Ends {
			all = append(all, record.Setting{Knob: "offload", Node: end.Node, Port: end.Port, Value: "wire"})
		}
	}
	return b.lab.Settle(ctx, all)
}
