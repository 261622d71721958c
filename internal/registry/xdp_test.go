package registry_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/steady"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/frames"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/stream"
)

// engine is the one that sends frames.
var engine = frames.XDP{Fallback: stream.Native{}}

// frameLoad is a load of the xdp engine: the smallest frames there are.
func frameLoad(ip int, direction string, streams int, pps float64) record.Load {
	load := record.Load{
		Protocol:   "udp",
		Direction:  direction,
		Streams:    streams,
		IP:         ip,
		PacketSize: 46,
		Opener:     "near",
		Port:       20000,
		Duration:   600 * time.Millisecond,
		Interval:   50 * time.Millisecond,
		Tag: fmt.Sprint("frames ", ip,
			direction, streams),
	}
	if ip == 6 {
		load.PacketSize = 66
	}

	load.RateBps = pps * 18 * 8
	return load
}

// framesLab is a lab on which the engine does what it is for, or the test is skipped.
func framesLab(t *testing.T) *lab.Lab { return framesLabOf(t, 1) }

// framesLabOf is framesLab with virtual links of several queues.
func framesLabOf(t *testing.T, queues int) *lab.Lab {
	t.Helper()
	l, _ := labtest.UpLocal(t, lab.Local{Dir: t.TempDir(), Queues: queues, Parts: registry.LabParts()},
		"forward")
	why := lesserWay(t, l)
	if why != "" {
		t.Skip("skip: the engine offers no such load here: " + why)
	}

	return l
}

// lesserWay is why frames are not made by the kernel here: "" where they are.
func lesserWay(t *testing.T, l *lab.Lab) string {
	t.Helper()
	near, far := labtest.Ends(t, l, 0, 4)
	a := engine.Check(labtest.Context(t), near, far, frameLoad(4, record.Up, 1,
		1000))
	if a.State != check.Yes || a.Reason != "" && os.Geteuid() == 0 {
		t.Fatalf("check: got %v (%s), want a yes, for root a plain one", a.State, a.Reason)
	}

	return a.Reason
}

// offerFrames has frames sent, and tells what the router's devices counted of them. The path loses one of
// so many, 0 = none.
func offerFrames(t *testing.T, l *lab.Lab, load record.Load, one int64) (got *record.Traffic,
	passed map[string]passes) {
	t.Helper()
	near, far := labtest.Ends(t, l, 0, load.IP)
	steady.Run(t, func(t *steady.Trial) {
		before := routerPackets(t, l)
		var err error
		got, err = engine.Offer(labtest.Context(t), near, far, load,
			&labtest.Conductor{Length: load.Duration, Drain: 500 * time.Millisecond})
		must(t, err)
		if err := traffic.Measured(got); err != nil { // a campaign tries such a trial again
			for _, side := range []string{"near", "far"} {
				t.Stalled(detailOf(got, side+".waited_ns"))
			}

			t.Timedf("%v", err)
			return
		}

		passed = routerPackets(t, l)
		for dev, n := range before {
			passed[dev] = passes{passed[dev].in - n.in, passed[dev].out - n.out}
		}

		// Who is answered late says hello again, and who begins late misses frames of the warm-up; such a
		// trial is tried again.
		for _, counts := range countedAs(passed) {
			for frames, counted := range counts {
				if n, err := framesOf(got, frames); err == nil && n > 0 && counted > n+fewMore {
					side, _, _ := strings.Cut(frames, ".")
					t.Stalled(detailOf(got, side+".waited_ns"))
					t.Timedf("%s: %d, and the router counted %d", frames, n, counted)
				}
			}
		}

		for _, f := range got.Flows {
			p := f.Packets
			lost := int64(0)
			if one > 0 {
				lost = p.Sent / one
			}

			if p.Sent == 0 || p.Lost != lost {
				t.Timedf("stream %d %s: sent %d, unsent %d, lost %d, want %d lost", f.Stream, f.Direction,
					p.Sent, p.Unsent, p.Lost, lost)
			}
		}

		// Both ends are in the kernel before either has to send; the warm-up is for the rest.
		for _, side := range []string{"near", "far"} {
			late := detailOf(got, side+".began_late_ns")
			if late < 0 || late > load.Duration/5 {
				// A spell on the run queue holds the sender up, and not who only wakes now and then.
				waited := detailOf(got, side+".waited_ns")
				if late > 0 && waited > late-load.Duration/5 {
					t.Stalled(waited)
				}

				t.Timedf("%s end: began %v late, want it within the warm-up", side, late)
			}
		}
	})
	return got, passed
}

// detailOf is a time of the load's details, 0 where they have none, -1 where it is no time.
func detailOf(got *record.Traffic, name string) time.Duration {
	d, err := time.ParseDuration(cmp.Or(got.Details[name], "0") + "ns")
	if err != nil {
		return -1
	}
	return d
}

// TestXDPCountsToThePacket: what was sent, what the router's devices counted, and what arrived are the
// same, in every direction and through translation of addresses, from one thread and from one for each
// queue of the link.
func TestXDPCountsToThePacket(t *testing.T) {
	for _, queues := range []int{1, 2} {
		t.Run(fmt.Sprintf("queues=%d", queues), func(t *testing.T) {
			if queues == 1 { // less than what two do
				apart.Long(t, "takes longer than a package has")
			}

			countsToThePacket(t, queues)
		})
	}
}

func countsToThePacket(t *testing.T, queues int) {
	l := framesLabOf(t, queues)
	tests := []struct {
		name string
		nat  string
		load record.Load
	}{
		{"IPv4 up", "off", frameLoad(4, record.Up, 1, 20_000)},
		{"IPv6 up", "off", frameLoad(6, record.Up, 1, 20_000)},
		{"IPv6 up, 5 flows", "off", frameLoad(6, record.Up, 5, 20_000)},
		{"IPv4 down, 7 flows", "off", frameLoad(4, record.Down, 7, 20_000)},
		{"IPv6 both, 3 flows", "off", frameLoad(6, record.Both, 3, 20_000)},
		{"IPv4 both, masquerade", "masquerade", frameLoad(4, record.Both, 2, 10_000)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			must(t, l.Reconcile(labtest.Context(t), []record.Setting{{
				Knob:  "nat",
				Node:  "router",
				Value: tt.nat,
			}}))
			got, passed := offerFrames(t, l, tt.load, 0)
			for _, side := range []string{"near", "far"} {
				if tt.load.Direction == map[string]string{"near": record.Down, "far": record.Up}[side] {
					continue
				}

				cores := runtime.NumCPU() // an end's; of both where both send
				if tt.load.Direction == record.Both {
					cores = max(cores/2, 1)
				}

				on, want := strings.Fields(got.Details[side+".core"]), min(queues, tt.load.Streams,
					cores)
				if len(on) != want || len(slices.Compact(on)) != want {
					t.Errorf("%s sent from the cores %v, want %d of them", side, on, want)
				}
			}

			for _, f := range got.Flows {
				p := f.Packets
				if p.Sent == 0 || p.Received != p.Sent || p.Lost != 0 || p.Duplicates == nil ||
					*p.Duplicates != 0 || p.Reordered == nil || *p.Reordered != 0 {
					t.Errorf("%s flow %d: got %+v, want all received, in order", f.Direction, f.Stream, *p)
				}

				// What was due in the window, but for a burst of 8 at either edge.
				pps := tt.load.RateBps / 8 / 18 / float64(len(got.Flows))
				want := pps * tt.load.Duration.Seconds()
				if math.Abs(float64(p.Sent+p.Unsent)-want) > 12 {
					t.Errorf("%s flow %d: sent %d, unsent %d, want %.0f in all", f.Direction, f.Stream,
						p.Sent, p.Unsent, want)
				}
			}

			agree(t, got, passed)
			for _, way := range got.OneWay {
				if slices.ContainsFunc(way.Counts, func(c record.DelayCounts) bool {
					return c.Packets <= 0 ||
						c.FromNs > int64(time.Second)
				}) {
					t.Errorf("%s: delays %v, want counts of less than a second", way.Direction, way.Counts)
				}
			}

			if want := map[bool]int{false: 1,
				true: 2}[tt.load.Direction == record.Both]; len(got.OneWay) != want {
				t.Errorf("got delays of %d directions, want %d", len(got.OneWay), want)
			}

			detached(t, l)
		})
	}
}

// passes are packets that a device of the router took in and gave out.
type passes struct{ in, out uint64 }

func routerPackets(t testing.TB, l *lab.Lab) map[string]passes {
	t.Helper()
	c, err := l.Counters(labtest.Context(t), "router", "lan", "wan")
	must(t, err)
	out := map[string]passes{}
	for dev, n := range c {
		out[dev] = passes{n.RxPackets, n.TxPackets}
	}

	return out
}

// fewMore are the packets that a load may have besides its frames.
const fewMore = 60

// framesOf returns one of the load's own counts, such as near.frames_sent. What came to an end is what it
// read and what its sockets had no room for.
func framesOf(got *record.Traffic, frames string) (uint64, error) {
	n, err := strconv.ParseUint(got.Details[frames], 10, 64)
	if side, ok := strings.CutSuffix(frames, ".frames_arrived"); ok {
		dropped, _ := strconv.ParseUint(got.Details[side+".frames_dropped"], 10, 64)
		n += dropped
	}
	return n, err
}

// countedAs names the load's own count of what the router's devices count, by direction.
func countedAs(passed map[string]passes) map[string]map[string]uint64 {
	return map[string]map[string]uint64{
		record.Up:   {"near.frames_sent": passed["lan"].in, "far.frames_arrived": passed["wan"].out},
		record.Down: {"far.frames_sent": passed["wan"].in, "near.frames_arrived": passed["lan"].out},
	}
}

// agree: the router's devices count the load's frames and a few more packets, such as handshakes.
func agree(t *testing.T, got *record.Traffic, passed map[string]passes) {
	t.Helper()
	for direction, counts := range countedAs(passed) {
		for frames, counted := range counts {
			if got.Load.Direction != direction && got.Load.Direction != record.Both {
				continue
			}

			n, err := framesOf(got, frames)
			if err != nil || n == 0 || counted < n || counted > n+fewMore {
				t.Errorf("%s: the router counted %d packets, want the load's %d and a few more (%v)", frames,
					counted, n, err)
			}
		}
	}
}

// attached lists the devices that have an XDP program.
func attached(t *testing.T, l *lab.Lab) []string {
	t.Helper()
	var out []string
	for _, node := range []string{"client", "router", "server"} {
		for line := range strings.Lines(labtest.Exec(t, l, node, "ip", "-o", "link", "show")) {
			f := strings.Fields(line)
			if strings.Contains(line, "xdp") {
				out = append(out, node+"."+strings.TrimRight(strings.Split(f[1], "@")[0], ":"))
			}
		}
	}

	return out
}

func detached(t *testing.T, l *lab.Lab) {
	t.Helper()
	expect.Soon(t, 2*time.Second, "devices with an XDP program after the load", nil,
		func() []string { return attached(t, l) })
}

// TestXDPFindsPlantedLoss: the router drops the frames whose number is 7 modulo 8; exactly those are found
// lost.
func TestXDPFindsPlantedLoss(t *testing.T) {
	apart.Long(t, "takes longer than a package has")
	l := framesLab(t)
	// Behind UDP's header stand the tag, and the number: its last bits are those of the datagram's 16th
	// byte.
	labtest.Exec(t, l, "router", "nft", "add table inet planted")
	labtest.Exec(t, l, "router", "nft",
		"add chain inet planted forward { type filter hook forward priority 0; }")
	labtest.Exec(t, l, "router", "nft", "add rule inet planted forward udp dport 20000 @th,125,3 7 drop")
	for _, ip := range []int{4, 6} {
		for _, way := range []string{record.FramesLive, record.FramesPacket} {
			for _, sink := range []string{record.SinkDriver, record.SinkSockets} {
				load := frameLoad(ip, record.Up, 2, 20_000)
				load.Frames = way
				load.Sink = sink
				load.Duration = 200 * time.Millisecond
				got, _ := offerFrames(t, l, load, 8)
				for _, f := range got.Flows {
					p := f.Packets
					want := p.Sent / 8
					if p.Lost != want || p.Received != p.Sent-want || want == 0 {
						t.Errorf("IPv%d, %s, %s, flow %d: sent %d, received %d, lost %d; want %d lost", ip,
							way, sink, f.Stream, p.Sent, p.Received, p.Lost, want)
					}

					runs := slices.ContainsFunc(p.Gaps, func(g record.Gap) bool { return g.Length == 1 })
					if runs != (sink == record.SinkSockets) {
						t.Errorf("IPv%d, %s, %s, flow %d: runs of lost packets %v, want them of sockets only",
							ip, way, sink, f.Stream, p.Gaps)
					}
				}
			}
		}
	}
}

// TestXDPWaitsForTheRoutersQueue: the router holds back half of a load for as long as the load took. That
// is late, not lost.
func TestXDPWaitsForTheRoutersQueue(t *testing.T) {
	l := labtest.Up(t, "forward", registry.LabParts())
	ways := []string{record.FramesLive, record.FramesPacket}
	sinks := []string{record.SinkDriver, record.SinkSockets}
	if lesserWay(t, l) != "" {
		ways = ways[1:]
		sinks = sinks[1:]
	}

	// 60 bytes each: 10,000 a second
	queue := []record.Setting{{
		Knob:  "queue",
		Node:  "router",
		Port:  "wan",
		Value: "tbf rate 4800k burst 16k limit 8M",
	}}
	must(t, l.Reconcile(labtest.Context(t), queue))
	for _, way := range ways {
		for _, sink := range sinks {
			t.Run(way+", "+sink, func(t *testing.T) {
				load := frameLoad(4, record.Up, 2, 20_000)
				load.Frames = way
				load.Sink = sink
				load.Duration = 200 * time.Millisecond
				got, _ := offerFrames(t, l, load, 0)
				for _, f := range got.Flows {
					p := f.Packets
					if p.Received != p.Sent || p.Lost != 0 || p.Sent == 0 {
						t.Errorf("flow %d: got %+v, want all received", f.Stream, *p)
					}

					// A receiver that begins late sees the queue drain for a shorter time.
					takes := time.Duration(p.Sent) * 200 * time.Microsecond // of both flows there are as many
					took := time.Duration(f.ReceiverNs)
					if apart.Wanted() && took < takes*3/4 {
						t.Errorf("flow %d: received within %v, want %v", f.Stream, took, takes)
					}
				}
			})
		}
	}
}

// TestXDPSendsBySockets: where the kernel makes no frames, the same go by sockets, are counted in the
// driver or by sockets, and to the packet. Root asks for each way; an ordinary user gets the best that is
// allowed.
func TestXDPSendsBySockets(t *testing.T) {
	apart.Long(t, "takes longer than a package has")
	l := labtest.Up(t, "forward", registry.LabParts())
	type ways struct{ frames, sink string }
	forced := []ways{{record.FramesPacket, record.SinkDriver}, {record.FramesPacket, record.SinkSockets},
		{record.FramesLive, record.SinkSockets}}
	why := lesserWay(t, l)
	if why != "" {
		forced = []ways{{}, {record.FramesPacket, record.SinkSockets}}
	}

	for _, w := range forced {
		for _, load := range []record.Load{frameLoad(4, record.Up, 1, 20_000), frameLoad(6, record.Both, 3,
			10_000),
			frameLoad(4, record.Down, 20, 5000)} {
			load.Frames = w.frames
			load.Sink = w.sink
			want := w
			if w.frames == "" {
				want = ways{record.FramesPacket, record.SinkSockets}
			}

			t.Run(fmt.Sprintf("%s, %s, IPv%d %s", want.frames, want.sink, load.IP, load.Direction),
				func(t *testing.T) {
					if load.Direction == record.Down {
						load.PacketSize = 1500 // 1518-byte frames
						load.RateBps = 5000 * 8 * 1472
					}

					got, passed := offerFrames(t, l, load, 0)
					for _, f := range got.Flows {
						p := f.Packets
						if p.Sent == 0 || p.Received != p.Sent || p.Lost != 0 || p.Duplicates == nil ||
							*p.Duplicates != 0 {
							t.Errorf("%s flow %d: got %+v, want all received, once", f.Direction,
								f.Stream, *p)
						}

						pps := load.RateBps / 8 / float64(load.PacketSize-map[int]int{4: 28,
							6: 48}[load.IP]) / float64(len(got.Flows))
						seconds := float64(f.SenderNs) / 1e9
						if w.frames == record.FramesLive { // what was due in the window, however late it left
							seconds = load.Duration.Seconds()
						}

						asked := pps * seconds
						if float64(p.Sent+p.Unsent) < asked-12 ||
							float64(p.Sent) > asked+pps/100+12 {
							t.Errorf("%s flow %d: sent %d, unsent %d, want %.0f in all", f.Direction,
								f.Stream, p.Sent, p.Unsent, asked)
						}
					}

					agree(t, got, passed)
					sender, receiver := "near", "far"
					if load.Direction == record.Down {
						sender, receiver = receiver, sender
					}

					by := (ways{got.Details[sender+".sent_by"],
						got.Details[receiver+".counted_by"]})
					if by != want {
						t.Errorf("sent and counted by %v, want %v", by, want)
					}

					told := slices.ContainsFunc(fellBack(got),
						func(text string) bool {
							return strings.Contains(text,
								"it may not load BPF programs")
						})
					if told != (w.frames == "") {
						t.Errorf("caveats %v (check: %q), want the reason where the way was not asked for, "+
							"and only there", got.Caveats, why)
					}

					detached(t, l)
					unsocketed(t, l)
				})
		}
	}
}

func fellBack(t *record.Traffic) (texts []string) {
	for _, c := range t.Caveats {
		if c.Kind == "engine-fell-back" {
			texts = append(texts, c.Text)
		}
	}
	return texts
}

// unsocketed: no socket of AF_PACKET remains in the ends' namespaces.
func unsocketed(t *testing.T, l *lab.Lab) {
	t.Helper()
	expect.Soon(t, 2*time.Second, "sockets after the load", nil, func() (left []string) {
		for _, node := range []string{"client", "server"} {
			for line := range strings.Lines(labtest.Exec(t, l, node, "cat", "/proc/net/protocols")) {
				f := strings.Fields(line)
				if len(f) > 2 && f[0] == "PACKET" && f[2] != "0" {
					left = append(left, node+": "+f[2])
				}
			}
		}
		return left
	})
}

// TestXDPLeavesNothingWhenKilled kills what serves both ends, and the router's device, in the middle of a
// load.
func TestXDPLeavesNothingWhenKilled(t *testing.T) {
	l := framesLab(t)
	near, far := labtest.Ends(t, l, 0, 4)
	resident := labtest.Descendants(os.Getpid())
	load := frameLoad(4, record.Up, 1, 1000)
	load.Duration = time.Minute
	begun := make(chan struct{})
	failed := make(chan error, 1)
	ctx, cancel := context.WithTimeout(context.Background(), labtest.Time)
	defer cancel()
	go func() {
		_, err := engine.Offer(ctx, near, far, load,
			&labtest.Conductor{
				Length: load.Duration,
				Start:  func() { close(begun) },
			})
		failed <- err
	}()
	select {
	case <-begun:
	case err := <-failed:
		t.Fatal(err)
	}

	got, want := attached(t, l), []string{"client.lan", "router.lan", "server.wan"}
	if !slices.Equal(got,
		want) {
		t.Errorf("devices with an XDP program during the load: %v, want %v", got, want)
	}

	killed := 0
	for _, pid := range labtest.Descendants(os.Getpid()) {
		if !slices.Contains(resident, pid) && syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}

	if killed < 3 {
		t.Errorf("killed %d processes, want those of three nodes", killed)
	}

	if err := <-failed; err == nil || ctx.Err() != nil {
		t.Errorf("offer: got %v (%v), want an error soon", err, ctx.Err())
	}

	detached(t, l)
}

// TestXDPFallsBack: where the way to the other end carries no Ethernet frames, the load is offered all the
// same, and the result says how; one that was asked for and does not work is an error with the reason.
func TestXDPFallsBack(t *testing.T) {
	l := framesLab(t)
	path, err := l.Path(labtest.Context(t), lab.TunnelSpec{Kind: "wireguard-userspace"})
	must(t, err)
	near, far := labtest.Ends(t, l, path.Slot, 4)
	load := frameLoad(4, record.Up, 1, 1000)
	got, err := engine.Offer(labtest.Context(t), near, far, load,
		&labtest.Conductor{Length: load.Duration})
	must(t, err)
	p := got.Flows[0].Packets
	if p.Sent == 0 || p.Sent != p.Received+p.Lost {
		t.Errorf("got %+v, want sent = received + lost", *p)
	}

	if got.Engine != "xdp" || !strings.HasPrefix(got.Details["near.mode"], "no frames") ||
		!slices.ContainsFunc(fellBack(got), func(text string) bool {
			return strings.Contains(text, "carries no Ethernet frames")
		}) {
		t.Errorf("got engine %s, mode %q and caveats %v, want it to say that it fell back", got.Engine,
			got.Details["near.mode"], got.Caveats)
	}

	load.Frames = record.FramesPacket
	_, err = engine.Offer(labtest.Context(t), near, far, load, &labtest.Conductor{Length: load.Duration})
	expect.Error(t, "asked for frames", err, "not AF_PACKET past the queueing discipline: device")
}

// TestXDPSendsIMIX: frames of several sizes cross the router whole, each with the size of its number, and
// their bytes are those that its device counts. Whether that counts the Ethernet header (veth does not where
// its other end runs a program, drivers/net/veth.c) is told by frames of one size.
func TestXDPSendsIMIX(t *testing.T) {
	apart.Long(t, "takes longer than a package has")
	l := framesLab(t)
	for _, ip := range []int{4, 6} {
		for _, mode := range []string{record.FramesLive, record.FramesPacket} {
			load := frameLoad(ip, record.Up, 3, 20_000)
			load.Frames = mode
			load.Sink = record.SinkDriver
			_, one := countedFrames(t, l, load)
			header := math.Round(one - float64(load.PacketSize)) // but for what neighbours ask
			if header != 0 && header != 14 {
				t.Fatalf("IPv%d by %s: frames of %d bytes are counted with %g", ip, mode,
					load.PacketSize, one)
			}

			load.Sizes = factor.IMIXSizes(strconv.Itoa(ip))
			load.PacketSize = 0
			headers := map[int]float64{4: 28, 6: 48}[ip]
			mean := record.MeanSize(load.Sizes)
			load.RateBps = 20_000 * 8 * (mean - headers)
			got, frame := countedFrames(t, l, load)
			for _, f := range got.Flows {
				want := float64(f.Packets.Received) * (mean - headers)
				if f.ReceivedBytes != f.SentBytes || math.Abs(float64(f.ReceivedBytes)-want) > 2*1500 {
					t.Errorf("IPv%d by %s, flow %d: sent %d bytes, received %d, want %.0f", ip, mode,
						f.Stream, f.SentBytes, f.ReceivedBytes, want)
				}
			}

			if math.Abs(frame-mean-header) > 4 {
				t.Errorf("IPv%d by %s: frames of %.1f bytes in the mean, want %.1f", ip, mode, frame,
					mean+header)
			}
		}
	}
}

// countedFrames offers a load and returns with it the mean frame that the router's device counted.
func countedFrames(t *testing.T, l *lab.Lab, load record.Load) (*record.Traffic, float64) {
	t.Helper()
	before, err := l.Counters(labtest.Context(t), "router", "wan")
	must(t, err)
	got, _ := offerFrames(t, l, load, 0)
	after, err := l.Counters(labtest.Context(t), "router", "wan")
	must(t, err)
	return got, float64(after["wan"].TxBytes-before["wan"].TxBytes) /
		float64(after["wan"].TxPackets-before["wan"].TxPackets)
}
