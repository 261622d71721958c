package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// plant arranges what is done to packets; count undoes it, and says how many
// it was done to.
func (b *stand) plant(ctx context.Context, r row) (count func(*record.Traffic, *account) error, err error) {
	switch {
	case r.netem != "":
		return b.plantNetem(ctx, r.netem)
	case r.plant == reordering:
		return b.plantRelay(ctx)
	case r.plant == nothing:
		return func(*record.Traffic, *account) error { return nil }, nil
	}
	mark := fmt.Sprintf("@th,%d,8 %d", 64+datagramMark, datagramWindow)
	if r.mode == "" {
		mark = fmt.Sprintf("@th,%d,2 %d", 64+framesMark, framesWindow)
	}
	deed, into := "drop", 0
	if r.plant == duplicates {
		deed, into = fmt.Sprintf("dup to %v device \"wan\"", b.lab.Address(0, 1, 4)), 1
	}
	rules := fmt.Sprintf("table ip planted {\n chain forward {\n type filter hook forward priority 0\n udp dport %d %s numgen inc mod 1000 0 counter %s\n }\n}\n", port, mark, deed)
	if _, err := b.exec(ctx, rules, "nft", "-f", "-"); err != nil {
		return nil, err
	}
	return func(_ *record.Traffic, a *account) error {
		text, err := b.exec(ctx, "", "nft", "list", "table", "ip", "planted")
		if err != nil {
			return err
		}
		m := regexp.MustCompile(`counter packets (\d+)`).FindStringSubmatch(text)
		if m == nil {
			return fmt.Errorf("no counter in %q", text)
		}
		a.planted[into], _ = strconv.ParseInt(m[1], 10, 64)
		_, err = b.exec(ctx, "", "nft", "delete", "table", "ip", "planted")
		return err
	}, nil
}

func (b *stand) plantRelay(ctx context.Context) (func(*record.Traffic, *account) error, error) {
	s, lines, err := b.start(ctx, "/proc/self/exe", relayRole)
	if err != nil {
		return nil, err
	}
	if line, err := lines(); err != nil || line != "ready" {
		s.Close()
		return nil, fmt.Errorf("start the relay: %q (%v)", line, err)
	}
	return func(_ *record.Traffic, a *account) error {
		defer s.Close()
		if err := s.Send([]byte("\n")); err != nil {
			return err
		}
		line, err := lines()
		if err != nil {
			return fmt.Errorf("stop the relay: %w", err)
		}
		a.planted[2], err = strconv.ParseInt(line, 10, 64)
		return err
	}, nil
}

// plantNetem counts by the router's devices: what came in and did not leave was
// dropped, what left and had not come in was doubled. They count greetings and
// farewells too, which the engine's totals have.
func (b *stand) plantNetem(ctx context.Context, queue string) (func(*record.Traffic, *account) error, error) {
	if err := b.settle(ctx, record.Setting{Knob: "queue", Node: "router", Port: "wan", Value: queue}); err != nil {
		return nil, err
	}
	before, err := b.lab.Counters(ctx, "router", "lan", "wan")
	if err != nil {
		return nil, err
	}
	return func(t *record.Traffic, a *account) error {
		after, err := b.lab.Counters(ctx, "router", "lan", "wan")
		if err != nil || t == nil {
			return err
		}
		in, out := int64(after["lan"].RxPackets-before["lan"].RxPackets), int64(after["wan"].TxPackets-before["wan"].TxPackets)
		sent, arrived := int64(0), int64(0)
		for i := range t.Flows {
			s, r := t.Flows[i].Sent.Column("packets"), t.Flows[i].Received.Column("packets")
			sent, arrived = sent+int64(s[len(s)-1]), arrived+int64(r[len(r)-1])
		}
		const greetings = 10
		if in < sent || in > sent+greetings || out < arrived || out > arrived+greetings {
			return fmt.Errorf("the router's devices counted %d in and %d out, the engine %d sent and %d arrived", in, out, sent, arrived)
		}
		fmt.Fprintf(b.talk, "%s: router in %d, out %d; engine sent %d, arrived %d, in the window %d lost, %d duplicates\n", queue, in, out, sent, arrived, a.lost, a.duplicates)
		// A few greetings and farewells may be hit, which are not the window's,
		// and the router sends a few packets of its own.
		if whole := in - out; strings.Contains(queue, "loss") && (whole < a.lost-farewells || whole > a.lost+farewells || a.lost == 0) {
			return fmt.Errorf("the router dropped %d packets, %d were found lost in the window", whole, a.lost)
		}
		if whole := out - in; strings.Contains(queue, "duplicate") && (whole < a.duplicates-farewells || whole > a.duplicates+farewells || a.duplicates == 0) {
			return fmt.Errorf("the router doubled %d packets, %d were found twice in the window", whole, a.duplicates)
		}
		if !strings.Contains(queue, "loss") && a.lost != 0 || !strings.Contains(queue, "duplicate") && a.duplicates != 0 || a.reordered != 0 {
			return fmt.Errorf("found %d lost, %d duplicates, %d reordered", a.lost, a.duplicates, a.reordered)
		}
		a.planted = [3]int64{a.lost, a.duplicates, a.reordered}
		return nil
	}, nil
}

// farewells is how many of the packets outside of the window may be hit.
const farewells = 3
