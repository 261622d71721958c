// Package accounts holds the engines' counts of packets to what was planted on their way: packets that the
// router drops, sends twice or holds back until later ones have passed, each counted where it is planted.
package accounts

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

var (
	packets = flag.Int64("packets", 0, "packets in all, at least; 0 = send nothing")
	length  = flag.Duration("length", 10*time.Second, "of each load")
	kind    = flag.String("lab", "local", "local or vm")
)

// The argument of the process that holds packets back, and of the one that looks at those that arrive.
const (
	relayRole = "relay"
	tapRole   = "tap"
)

// TestMain lets the test program play the roles of a lab, and these two.
func TestMain(m *testing.M) {
	var err error
	switch args := os.Args[1:]; {
	case slices.Equal(args, []string{relayRole}):
		err = relay(os.Stdin, os.Stdout)
	case slices.Equal(args, []string{tapRole}):
		err = tap(os.Stdin, os.Stdout)
	default:
		os.Exit(rig.Tests(m))
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Where the load's packets say that they belong to the window: bits of UDP's payload (struct datagram of
// package traffic; mark of frames.c in probe/bpf).
const (
	port           = 20000
	frameSize      = 46 // IP length of the smallest Ethernet frame
	datagramSize   = 200
	datagramMark   = 48 // 8 bits
	datagramWindow = 4
	datagramEnd    = 5
	framesMark     = 128 // 2 bits
	framesWindow   = 1
)

// planted holds what is done to packets on their way.
type planted string

const (
	nothing    planted = "nothing"
	loss       planted = "loss"
	duplicates planted = "duplicates"
	reordering planted = "reordering"
)

type row struct {
	name  string
	mode  string // of UDP; "" = frames
	ip    int
	pps   float64 // 0 = flat out
	plant planted
	share float64 // of all packets
	netem *string // what plants on a virtual router; "" = it counts only
}

// localRows are flat out where the sender's own core carries a packet to its end, so that no queue can
// overflow, and else slow enough.
var localRows = []row{
	{"frames, IPv4", "", 4, 0, nothing, .35, nil},
	{"frames, IPv6", "", 6, 0, nothing, .2, nil},
	{"frames, 1 of 1000 dropped", "", 4, 0, loss, .2, nil},
	{"frames, 1 of 1000 doubled", "", 4, 0, duplicates, .1, nil},
	{"frames, 1 of 1000 held back", "", 4, 50e3, reordering, .01, nil},
	{"datagrams, exact", record.UDPExact, 4, 200e3, nothing, .04, nil},
	{"datagrams, exact, 1 of 1000 dropped", record.UDPExact, 4, 200e3, loss, .04, nil},
	{"datagrams, exact, 1 of 1000 doubled", record.UDPExact, 4, 200e3, duplicates, .02, nil},
	{"datagrams, exact, 1 of 1000 held back", record.UDPExact, 4, 50e3, reordering, .01, nil},
	{"datagrams, count, 1 of 1000 dropped", record.UDPCount, 4, 200e3, loss, .03, nil},
}

// guestRows are rates that an emulated router forwards.
var guestRows = []row{
	{"datagrams, exact", record.UDPExact, 4, 8e3, nothing, .3, new("")},
	{"datagrams, exact, netem loss 1 %", record.UDPExact, 4, 8e3, loss, .3, new("loss 1%")},
	{"datagrams, exact, netem duplicate 1 %", record.UDPExact, 4, 8e3, duplicates, .2, new("duplicate 1%")},
	// All but one of 1000 pass those that are delayed.
	{"datagrams, exact, netem holds 1 of 1000 back", record.UDPExact, 4, 4e3, reordering, .2,
		new("delay 50ms reorder 99.9%")},
}

// TestAccounts fails if one packet is missing in the account. On a virtual router netem plants and counts,
// the devices count, and a tap sees the order in which the far end is reached. It needs root.
func TestAccounts(t *testing.T) {
	if *packets < 1 {
		t.Skip("skip: -packets says how many to send, the nightly stage accounts does")
	}

	local := lab.Local{}
	rows := localRows
	_, guests := record.GuestArch(*kind)
	if guests {
		local.Guest = guest(t)
		rows = guestRows
	} else if !record.InNamespaces(*kind) {
		t.Fatalf("-lab %s: want local or vm", *kind)
	}

	var table strings.Builder
	defer func() { fmt.Fprint(t.Output(), table.String()) }()
	table.WriteString("| load | sent | lost: planted | by full queues, at most | found | duplicates: " +
		"planted | found | reordered: planted | found |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	total := int64(0)
	// A signal ends the loads, so that the lab is taken down.
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := rig.OnLab(ctx, "forward", local, func(l *lab.Lab) error {
		for _, r := range rows {
			if !t.Run(r.name, func(t *testing.T) {
				a := stand{t, ctx, l}.row(r, int64(float64(*packets)*r.share)+1)
				fmt.Fprintf(&table, "| %s | %d | %d | %d | %d | %d | %d | %d | %d |\n", r.name, a.sent,
					a.planted[0], a.full, a.found[0], a.planted[1], a.found[1], a.planted[2], a.found[2])
				total += a.sent
			}) {
				return nil // what was planted may still be there
			}
		}

		fmt.Fprintf(&table, "\n%d packets, none unaccounted for\n", total)
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// guest is a virtual router of this machine's architecture.
func guest(t *testing.T) *vm.Guest {
	// With two CPUs, netem may be given a second packet that passes others before the first is sent, and puts
	// it in front of that, too.
	g, err := rig.OwnApp(t.Logf).Guest(t.Context(), record.Run{
		RunHead:   record.RunHead{Lab: record.LabVM},
		GuestSize: &record.GuestSize{CPUs: 1},
	})
	must(t, err)
	return g
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type stand struct {
	*testing.T
	ctx context.Context
	lab *lab.Lab
}

// Context ends with a signal, too.
func (b stand) Context() context.Context { return b.ctx }

// account holds what was planted and what the engine found: packets lost, duplicated, reordered.
type account struct {
	sent           int64
	planted, found [3]int64
	full           int64 // dropped by full queues, also of packets after the window
}

// row sends loads until there were enough packets, and holds each to its account.
func (b stand) row(r row, packets int64) (all account) {
	for all.sent < packets {
		a := b.once(r)
		// What is dropped by a queue cannot come twice or late.
		odd := a.found[1] != a.planted[1] || a.found[2] != a.planted[2]
		if a.full > 0 {
			odd = a.found[1] > a.planted[1] || a.found[2] > a.planted[2]
		}

		if odd || a.found[0] < a.planted[0] || a.found[0] > a.planted[0]+a.full {
			b.Fatalf("of %d packets planted %v lost, duplicates, reordered, dropped by full queues %d; "+
				"found %v", a.sent, a.planted, a.full, a.found)
		}

		all.sent, all.full = all.sent+a.sent, all.full+a.full
		for i := range all.planted {
			all.planted[i] += a.planted[i]
			all.found[i] += a.found[i]
		}
	}
	return all
}

func (b stand) once(r row) account {
	load := record.Load{
		Protocol:   "udp",
		Direction:  record.Up,
		Streams:    1,
		IP:         r.ip,
		PacketSize: datagramSize,
		UDPMode:    r.mode,
		Opener:     "near",
		Port:       port,
		Duration:   *length,
		Interval:   100 * time.Millisecond,
		Tag:        fmt.Sprint("accounts ", host.Monotonic()),
	}
	engine := rig.Engine("native")
	headers := 28 + (r.ip-4)*10
	if r.mode == "" {
		engine = rig.Engine("xdp")
		load.PacketSize = frameSize + (r.ip-4)*10
	}

	load.RateBps = r.pps * 8 * float64(load.PacketSize-headers)
	ends, err := rig.Ends(b.Context(), b.lab, r.ip)
	must(b.T, err)
	c := engine.Check(b.Context(), ends[0], ends[1], load)
	if c.State != check.Yes || c.Reason != "" {
		b.Fatalf("%s: %v: %s", engine.Name(), c.State, c.Reason)
	}

	count := b.plant(r)
	before := b.full()
	tr, sums, err := rig.Packets(b.Context(), b.lab, engine, load)
	must(b.T, err)
	a := account{
		sent:  sums.Sent,
		full:  b.full() - before,
		found: [3]int64{sums.Lost, sums.Duplicates, sums.Reordered},
	}
	count(tr, &a)
	return a
}

// full returns how many packets the queues on the way have dropped: those of the devices, and the cores'
// backlogs.
func (b stand) full() (sum int64) {
	for node, ports := range map[string][]string{b.lab.Topology.Near: {"lan"}, "router": {"lan", "wan"},
		b.lab.Topology.Far: {"wan"}} {
		counters, err := b.lab.Counters(b.Context(), node, ports...)
		must(b.T, err)
		for _, c := range counters {
			sum += int64(c.RxDropped + c.TxDropped)
		}
	}

	text, err := os.ReadFile("/proc/net/softnet_stat")
	must(b.T, err)
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) > 1 {
			n, err := strconv.ParseInt(f[1], 16, 64)
			must(b.T, err)
			sum += n
		}
	}

	return sum
}
