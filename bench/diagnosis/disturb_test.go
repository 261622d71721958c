package diagnosis_test

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
)

// disturbance is a cause that no rule knows: a command on a node of the lab, which lasts as long as it runs.
type disturbance struct {
	node, script string
	stage        string // lab and topology
	load         levels // what its load must have
	class        string // of the rule that knows it, "" = none
}

// every is a script that goes back and forth between two states.
func every(on, off, onFor, offFor string) string {
	return fmt.Sprintf("while :; do %s; sleep %s; %s; sleep %s; done", on, onFor, off, offFor)
}

// disturbances are by name. Route-flap and neighbour-flap lose all packets for some tens of milliseconds,
// again and again, which is a path that is not stable. The others leave the signature of no class:
//
//   - ack-loss drops acknowledgements, of which data knows nothing: no segment is sent again;
//   - ce-marks makes senders slow down without loss or queue;
//   - cwnd-lock is a route's metric that bounds the congestion window: neither the receiver's window nor the
//     sender's buffer is full.
func disturbances() map[string]disturbance {
	const to4, to6 = "198.18.2.0/25", "2001:2:0:2::/65"
	up, down := levels{"direction": "up"}, levels{"direction": "down"}
	mark := func(family, rule string) string {
		return "nft 'add table " + family + " d; add chain " + family +
			" d c { type filter hook output priority 0; }; add rule " + family + " d c " + rule + "'; "
	}
	const rest, some = "sleep 1d", "numgen random mod 100 < 25 "
	const ackLoss = "tcp flags & (syn|fin|rst) == 0 meta length { 52, 72 } numgen random mod 100 < 95 drop"
	marks := mark("ip", "ip protocol tcp ip ecn 1-2 "+some+"ip ecn set ce") +
		mark("ip6", "meta l4proto tcp ip6 ecn 1-2 "+some+"ip6 ecn set ce")
	// The kernel keeps what it knows of a destination: a connection before would decide.
	const locked = "ip tcp_metrics flush all; ip route change $(ip route show default) cwnd lock 3; " +
		"ip -6 route change $(ip -6 route show default) cwnd lock 3; " + rest
	const wrong = "02:00:00:00:00:99 nud permanent dev lan"
	return map[string]disturbance{
		"route-flap": {"client", every("ip route add blackhole "+to4+"; ip -6 route add blackhole "+to6,
			"ip route del blackhole "+to4+"; ip -6 route del blackhole "+to6, ".09", ".2"), vmForward, up,
			diagnosis.Unstable},
		"neighbour-flap": {"client", every(
			"ip neigh replace 198.18.1.2 lladdr "+wrong+"; ip neigh replace 2001:2:0:1::2 lladdr "+wrong,
			"ip neigh del 198.18.1.2 dev lan; ip neigh del 2001:2:0:1::2 dev lan", ".06", ".25"),
			localForward, up, diagnosis.Unstable},
		"ack-loss":      {"server", mark("inet", ackLoss) + rest, vmForward, up, ""},
		"ack-loss-down": {"client", mark("inet", ackLoss) + rest, vmForward, down, ""},
		"ce-marks":      {"client", marks + rest, vmForward, levels{"direction": "up", "ecn": "on"}, ""},
		"ce-marks-down": {"server", marks + rest, vmForward, levels{"direction": "down", "ecn": "on"}, ""},
		"cwnd-lock": {"client", locked, vmForward,
			levels{"direction": "up", "streams": "1"}, ""},
	}
}

// disturbed are instances of these, each at the place of its own, and some in the other lab, too.
func disturbed() []part {
	var out []part
	add := func(class, disturb, stage string, n int) {
		x := disturbances()[disturb]
		kind, planting := kindUnknown, []planted(nil)
		if x.class != "" {
			kind, planting = kindFault, []planted{{levels{}, truth{Class: x.class}}}
		}
		out = append(out, part{class, kind, n, []string{stage + " " + disturb},
			func(d draw, lab string) (levels, []planted) {
				l := d.plain()
				for factor, level := range x.load {
					l[factor] = level
				}
				if d.IntN(2) == 0 { // the cells of a run must differ
					l["mss"] = d.of("1200", "1300", "1350", "1400")
				}
				return l, planting
			}})
	}
	for name, n := range map[string]int{"route-flap": 12, "neighbour-flap": 8, "ack-loss": 14,
		"ack-loss-down": 10, "ce-marks": 14, "ce-marks-down": 10, "cwnd-lock": 8} {
		add(name, name, disturbances()[name].stage, n)
	}
	add("ack-loss-local", "ack-loss", localForward, 6)
	slices.SortFunc(out, func(a, b part) int { return strings.Compare(a.class, b.class) })
	return out
}

// begin starts what else goes on on the machine or a lab's node, until the function that it returns.
func begin(ctx context.Context, p rig.Program, labID, noise, disturb string) (end func(), err error) {
	var ends []func()
	end = func() {
		for _, f := range ends {
			f()
		}
	}
	start := func(node, script string) error {
		cmd := p.Command(ctx, "lab", "exec", node, "--lab", labID, "--", "sh", "-c", script)
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("disturb %s of lab %s: %w", node, labID, err)
		}
		ends = append(ends, func() { stop(cmd) })
		return nil
	}
	switch noise {
	case "busy":
		quit := make(chan struct{})
		go burn(quit)
		ends = append(ends, func() { close(quit) })
	case "traffic":
		err = start("client", "ping -q -i .005 -s 900 198.18.2.2 >/dev/null")
	}
	if err == nil && disturb != "" {
		x := disturbances()[disturb]
		err = start(x.node, x.script)
	}
	if err != nil {
		end()
	}
	return end, err
}

// burn takes an eighth of a core.
func burn(quit <-chan struct{}) {
	for {
		select {
		case <-quit:
			return
		case <-time.After(14 * time.Millisecond):
		}
		for began := time.Now(); time.Since(began) < 2*time.Millisecond; {
		}
	}
}

// stop ends a command and what it started, and waits for it.
func stop(cmd *exec.Cmd) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) // it may have ended
	_ = cmd.Wait()
}
