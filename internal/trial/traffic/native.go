package traffic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Native is the built-in load generator: TCP and UDP with exact accounting. Its node half needs Linux.
type Native struct{}

// Name is "native".
func (Native) Name() string { return "native" }

const (
	maxTCPFlows     = 2048
	maxUDPFlows     = 20480                  // each takes a port of its own at the opener
	maxDSCP         = 63                     // RFC 2474: six bits
	defaultInterval = 100 * time.Millisecond // of the series
)

// congestions are the controls that a load names, in the order in which its streams take them.
func congestions(load record.Load) []string {
	if load.Congestion == "" {
		return nil
	}
	return strings.Split(load.Congestion, "+")
}

// congestionOf is the control of one stream, "" for the system's default.
func congestionOf(load record.Load, k flowKey) string {
	all := congestions(load)
	if len(all) == 0 {
		return ""
	}
	return all[(k.Stream-1)%len(all)]
}

// Check asks both nodes; a load that is impossible anywhere is answered without them.
func (n Native) Check(ctx context.Context, near, far End, load record.Load) check.Answer {
	if a := checkLoad(load); a.State != check.Yes {
		return a
	}
	return checkNodes(ctx, host.Verb(host.FamilyTraffic, n.Name()), near, far, load)
}

// checkLoad judges what depends on no machine.
func checkLoad(load record.Load) check.Answer {
	if load.Protocol != "tcp" && load.Protocol != "udp" {
		return check.Not("protocol %q: want tcp or udp", load.Protocol)
	}
	most := maxTCPFlows
	if load.Protocol == "udp" {
		most = maxUDPFlows
	}
	if n := len(flowsOf(load)); n < 1 || n > most {
		return check.Not("%d flows: want 1 to %d", n, most)
	}
	if load.DSCP < 0 || load.DSCP > maxDSCP {
		return check.Not("DSCP %d: want 0 to %d", load.DSCP, maxDSCP)
	}
	if load.IP != 4 && load.IP != 6 {
		return check.Not("IP version %d: want 4 or 6", load.IP)
	}
	if load.Protocol == "tcp" {
		return check.OK()
	}
	return checkPacketSize(load)
}

func checkPacketSize(load record.Load) check.Answer {
	smallest := packetOverhead(load.IP) + datagramHeader
	sizes := load.PacketSizes()
	if least := slices.Min(sizes); least < smallest {
		return check.Not("%d-byte IPv%d packets have no room for the %d-byte header that counts them: the "+
			"smallest are %d bytes",
			least, load.IP, datagramHeader, smallest)
	}
	if load.UDPMode != "" && load.UDPMode != record.UDPExact && load.UDPMode != record.UDPCount {
		return check.Not("UDP mode %q: want exact or count", load.UDPMode)
	}
	if largest := slices.Max(sizes); largest > 65535 {
		return check.Not("%d-byte packets: IP allows 65535", largest)
	}
	if len(load.Sizes) > 0 && counts(load) {
		return check.Not("packets of several sizes are told apart one by one, which count mode does not do")
	}
	return check.OK()
}

// checkNodes puts a check request to both ends; the worse answer counts.
func checkNodes(ctx context.Context, verb string, near, far End, load record.Load) check.Answer {
	best := check.OK()
	for side, end := range map[string]End{"near": near, "far": far} {
		var a check.Answer
		err := end.Agent.Invoke(ctx, verb, request{Check: true, Side: side, Addr: end.Addr, Load: load}, &a)
		switch {
		case errors.Is(err, host.ErrUnsupported), errors.Is(err, host.ErrUnknownVerb):
			a = check.Not("%s: %v", end.Node, err)
		case err != nil:
			a = check.CouldNotTell("%s: %v", end.Node, err)
		case a.State != check.Yes:
			a.Reason = end.Node + ": " + a.Reason
		}
		if a.State == check.No || a.State == check.Unknown && best.State == check.Yes ||
			best.State == check.Yes && best.Reason == "" {
			best = a
		}
		if best.State == check.No {
			return best
		}
	}
	return best
}

// Offer runs the load and joins what both ends counted.
func (n Native) Offer(ctx context.Context, near, far End, load record.Load, c Conductor) (*record.Traffic,
	error) {
	if a := checkLoad(load); a.State != check.Yes {
		return nil, fmt.Errorf("offer %s load: %s", load.Protocol, a.Reason)
	}
	raw, err := runConducted(ctx, host.Verb(host.FamilyTraffic, n.Name()), near, far, load, c)
	if err != nil {
		return nil, err
	}
	var reports [2]endReport
	for i, end := range []End{near, far} {
		if reports[i], err = readEndReport(raw[i]); err != nil {
			return nil, fmt.Errorf("read the result of %s: %w", end.Node, err)
		}
		reports[i].shift(-end.Offset)
		reports[i].Usage.Node = end.Node
	}
	return joinNative(load, reports)
}

// readEndReport joins the parts: the end's own, then one per flow.
func readEndReport(parts []json.RawMessage) (endReport, error) {
	var r endReport
	if err := json.Unmarshal(parts[0], &r); err != nil {
		return endReport{}, err
	}
	r.Flows = make([]flowReport, len(parts)-1)
	for i, part := range parts[1:] {
		if err := json.Unmarshal(part, &r.Flows[i]); err != nil {
			return endReport{}, err
		}
	}
	return r, nil
}

// endReport is what one end saw, in its own clock.
type endReport struct {
	Flows   []flowReport      `json:"-"` // sent as parts of their own
	Usage   record.EndUsage   `json:"usage"`
	Details map[string]string `json:"details"`

	Responsiveness *record.Responsiveness `json:"responsiveness,omitempty"` // of the engine of that name
	// of the engines flows and requests
	ShortFlows *record.ShortFlows `json:"short_flows,omitempty"`

	// XDP: how long sampled packets took, if this end's clock told both times, and which boot of which
	// machine the clock is of.
	Delays []record.DelayCounts `json:"delays,omitempty"`
	Boot   string               `json:"boot,omitempty"`
}

// flowReport is one end's half of a flow. Bytes and Ns are of the window.
type flowReport struct {
	Sends    bool          `json:"sends"`
	Addr     string        `json:"addr"` // this end's address and port
	Bytes    int64         `json:"bytes"`
	Ns       int64         `json:"ns"`
	Table    *record.Table `json:"table"`
	TCP      *record.TCP   `json:"tcp,omitempty"`
	Verified int64         `json:"verified,omitempty"`
	Corrupt  int64         `json:"corrupt,omitempty"`

	// UDP: what the sender sent, or what the receiver made of it.
	Sent       int64 `json:"sent,omitempty"`
	Unsent     int64 `json:"unsent,omitempty"`
	Received   int64 `json:"received,omitempty"`
	Lost       int64 `json:"lost,omitempty"` // from gaps, and the tail if Announced
	Highest    int64 `json:"highest,omitempty"`
	Announced  int64 `json:"announced,omitempty"` // what the cool-down said was sent; -1 if none arrived
	Duplicates int64 `json:"duplicates,omitempty"`
	Reordered  int64 `json:"reordered,omitempty"`

	Gaps  []record.Gap           `json:"gaps,omitempty"`
	Delay *record.DelayVariation `json:"delay_variation,omitempty"`
}

func (r *endReport) shift(d int64) {
	for i := range r.Flows {
		f := &r.Flows[i]
		f.Table.Shift(d)
		if f.TCP != nil {
			f.TCP.Series.Shift(d)
		}
	}
}

func joinNative(load record.Load, reports [2]endReport) (*record.Traffic, error) {
	keys := flowsOf(load)
	t := &record.Traffic{
		Engine: "native", Load: load, Details: map[string]string{},
		Ends: map[string]record.EndUsage{"near": reports[0].Usage, "far": reports[1].Usage},
	}
	for i, side := range []string{"near", "far"} {
		if len(reports[i].Flows) != len(keys) {
			return nil, fmt.Errorf("join %s load: %s end reported %d flows of %d", load.Protocol, side,
				len(reports[i].Flows), len(keys))
		}
		for k, v := range reports[i].Details {
			t.Details[side+"."+k] = v
		}
	}
	for i, k := range keys {
		s, r := &reports[0].Flows[i], &reports[1].Flows[i]
		if !k.sends("near") {
			s, r = r, s
		}
		f := record.Flow{
			Stream: k.Stream, Direction: k.Direction, Local: s.Addr, Remote: r.Addr,
			SentBytes: s.Bytes, ReceivedBytes: r.Bytes, SenderNs: s.Ns, ReceiverNs: r.Ns,
			TCP: s.TCP, Sent: s.Table, Received: r.Table, Verified: r.Verified, Corrupt: r.Corrupt,
		}
		if load.Protocol == "udp" {
			if err := joinPackets(&f, s, r, load); err != nil {
				return nil, err
			}
		}
		t.Flows = append(t.Flows, f)
	}
	t.RateError = rateError(load, t.Flows)
	if load.Protocol == "udp" {
		t.Details["udp_mode"] = udpMode(load)
	}
	t.Caveats = append(socketDropCaveats(t.Details), lateEdgeCaveats(load, t.Ends)...)
	t.Caveats = append(t.Caveats, trainCaveats(load, t.Details)...)
	return t, nil
}

// socketDropCaveats: what a receiver's own socket buffer had no room for was carried by the path, and is
// the tester's loss.
func socketDropCaveats(details map[string]string) []record.Caveat {
	var caveats []record.Caveat
	for _, side := range []string{"near", "far"} {
		if n := details[side+".socket_drops"]; n != "" && n != "0" {
			caveats = append(caveats, record.Caveat{Kind: "receiver-drops",
				Text: fmt.Sprintf("%s packets were lost in the %s receiver's own socket buffer: the tester, "+
					"not the path", n, side)})
		}
	}
	return caveats
}

// sendersMargin is how much longer than the window the senders go on, so that a receiver that is late to
// read its count at the window's end has not seen silence in between.
const sendersMargin = 20 * time.Millisecond

// lateEdgeCaveats: datagrams are counted by those that send and receive them, at whatever time the
// processor time of an end is read.
func lateEdgeCaveats(load record.Load, ends map[string]record.EndUsage) []record.Caveat {
	var caveats []record.Caveat
	for _, side := range []string{"near", "far"} {
		if late := time.Duration(ends[side].EdgeLateNs); load.Protocol == "udp" && late > sendersMargin {
			caveats = append(caveats, record.Caveat{Kind: "late-edge",
				Text: fmt.Sprintf("the %s end read its processor time %v late at an edge of the window", side,
					late.Round(time.Millisecond))})
		}
	}
	return caveats
}

// Measured says why a load is no measurement although it ended well: an end of TCP read half a window late
// or more what it had carried, so that most of what it counted was not in the window, or most of the window
// not in it; or a sender of datagrams had its first turn that late, and offered next to nothing.
func Measured(t *record.Traffic) error {
	for _, side := range []string{"near", "far"} {
		late := time.Duration(t.Ends[side].EdgeLateNs)
		if t.Load.Protocol == "tcp" && late > 0 && 2*late >= t.Load.Duration {
			return &lateEdge{side, "read its counts", late, t.Load.Duration, 0}
		}
	}
	for i := range t.Flows {
		f := &t.Flows[i]
		if late := t.Load.Duration - time.Duration(f.SenderNs); f.Packets != nil && late > 0 &&
			2*late >= t.Load.Duration {
			side := "near"
			if f.Direction == record.Down {
				side = "far"
			}
			waited, _ := time.ParseDuration(t.Details[side+".waited_ns"] + "ns") // known of live frames
			return &lateEdge{side, fmt.Sprintf("began to send stream %d", f.Stream), late, t.Load.Duration,
				waited}
		}
	}
	return nil
}

type lateEdge struct {
	side, did    string
	late, window time.Duration
	waited       time.Duration // for its processor, 0 = not known
}

func (e *lateEdge) Error() string {
	why := "its machine had no time for it"
	if e.waited > 0 {
		why = fmt.Sprintf("it waited %v for its processor", e.waited.Round(time.Millisecond))
	}
	return fmt.Sprintf("the %s end %s %v late at an edge of the window of %v: %s", e.side, e.did,
		e.late.Round(time.Millisecond), e.window, why)
}

// Hint is the next step.
func (e *lateEdge) Hint() string {
	return "keep other work off that machine, or measure for longer (--set method.duration=5s)"
}

// joinPackets closes the accounts of a UDP flow: the receiver counted arrivals and gaps, the sender what it
// sent. If no packet of the cool-down arrived, the receiver could not see the missing tail, and the
// sender's count gives it.
//
// In count mode nothing but their number is known of the packets.
func joinPackets(f *record.Flow, s, r *flowReport, load record.Load) error {
	lost, gaps := r.Lost, r.Gaps
	if tail := s.Sent - r.Highest; r.Announced < 0 {
		lost += tail
		gaps = joinGaps(gaps, tail)
	}
	if s.Sent != r.Received+lost || lost < 0 {
		return fmt.Errorf("accounts of udp stream %d %s do not add up: sent %d, received %d, lost %d",
			f.Stream, f.Direction, s.Sent, r.Received, lost)
	}
	// The packets of the window may arrive spread over more time than they were sent in (a queue that
	// drains), never over less: silence at an edge is loss and not a shorter window.
	f.ReceiverNs = max(r.Ns, s.Ns)
	f.Packets = &record.Packets{
		Sent: s.Sent, Unsent: s.Unsent, Received: r.Received, Lost: lost, Size: load.PacketSize,
	}
	if !counts(load) {
		f.Packets.Duplicates, f.Packets.Reordered = &r.Duplicates, &r.Reordered
		f.Packets.Gaps, f.Packets.Delay = gaps, r.Delay
	}
	return nil
}

// joinGaps adds the tail that the receiver did not know of.
func joinGaps(list []record.Gap, tail int64) []record.Gap {
	if tail <= 0 {
		return list
	}
	g := gaps{}
	for _, b := range list {
		g[b.Length] = b
	}
	g.add(tail)
	return g.list()
}

// udpMode is the mode of a load: what is verified is looked at one by one.
func udpMode(load record.Load) string {
	if load.UDPMode == record.UDPCount && !load.Verify {
		return record.UDPCount
	}
	return record.UDPExact
}

// counts says whether datagrams are counted by their length only.
func counts(load record.Load) bool { return udpMode(load) == record.UDPCount }

// rateError is by how much what was offered differs from what was asked for; nil flat out.
func rateError(load record.Load, flows []record.Flow) *float64 {
	if load.RateBps <= 0 {
		return nil
	}
	rate := 0.0
	for i := range flows {
		if flows[i].SenderNs > 0 {
			rate += 8e9 * float64(flows[i].SentBytes) / float64(flows[i].SenderNs)
		}
	}
	e := rate/load.RateBps - 1
	return &e
}

// trainCaveats: what crosses a virtual network as one large packet is no packet of a wire.
func trainCaveats(load record.Load, details map[string]string) []record.Caveat {
	var caveats []record.Caveat
	if load.Protocol == "udp" && counts(load) {
		caveats = append(caveats, record.Caveat{Kind: "count-mode",
			Text: "datagrams were counted by length: their order, duplicates and delays are unknown"})
	}
	for _, side := range []string{"near", "far"} {
		if details[side+".uncut_trains"] == "true" {
			caveats = append(caveats, record.Caveat{Kind: "super-packets", Text: fmt.Sprintf(
				"the %s end's device took trains of datagrams uncut: across virtual links they are large "+
					"packets, not those of a wire", side)})
		}
	}
	return caveats
}
