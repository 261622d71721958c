package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// plant arranges what is done to packets; count undoes it, and says how many it was done to.
func (b *stand) plant(ctx context.Context, r row) (count func(*record.Traffic, *account) error, err error) {
	switch {
	case r.netem != nil:
		return b.plantNetem(ctx, r)
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
	rules := fmt.Sprintf("table ip planted {\n chain forward {\n type filter hook forward priority 0\n udp "+
		"dport %d %s numgen inc mod 1000 0 counter %s\n }\n}\n", port, mark, deed)
	if _, err := b.onRouter(ctx, rules, "nft", "-f", "-"); err != nil {
		return nil, err
	}
	return func(_ *record.Traffic, a *account) error {
		text, err := b.onRouter(ctx, "", "nft", "list", "table", "ip", "planted")
		if err != nil {
			return err
		}
		m := regexp.MustCompile(`counter packets (\d+)`).FindStringSubmatch(text)
		if m == nil {
			return fmt.Errorf("no counter in %q", text)
		}
		a.planted[into], _ = strconv.ParseInt(m[1], 10, 64)
		_, err = b.onRouter(ctx, "", "nft", "delete", "table", "ip", "planted")
		return err
	}, nil
}

func (b *stand) plantRelay(ctx context.Context) (func(*record.Traffic, *account) error, error) {
	s, lines, err := b.start(ctx, "router", "/proc/self/exe", relayRole)
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

// onRouter runs a command on the router to its end.
func (b *stand) onRouter(ctx context.Context, input string, args ...string) (string, error) {
	return rig.Exec(ctx, b.lab, "router", input, args...)
}

// start runs a command on a node; lines gives one line of its output.
func (b *stand) start(ctx context.Context, node string, args ...string) (s host.Session,
	lines func() (string, error), err error) {
	if s, err = rig.Start(ctx, b.lab, node, args...); err != nil {
		return nil, nil, err
	}
	text := ""
	return s, func() (string, error) {
		for {
			if line, rest, ok := strings.Cut(text, "\n"); ok {
				text = rest
				return line, nil
			}
			var o agent.ExecOutput
			if err := s.Recv(&o); err != nil {
				return text, err
			}
			text += string(o.Out) + string(o.Err)
			if o.Exit != nil {
				return text, fmt.Errorf("%s ended with %d", args[0], *o.Exit)
			}
		}
	}, nil
}
