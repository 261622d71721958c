package lab_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/watch"
)

// TestProbesOfAGuest moves, on one guest, the counters of the sources that only a machine of its own or its
// host is sure to have.
func TestProbesOfAGuest(t *testing.T) {
	l, _ := upGuest(t, t.TempDir(), "forward", labtest.Guest(t))
	t.Run("guests", func(t *testing.T) {
		got := watched(t, l, lab.HostNode, "guests", func() {
			labtest.Exec(t, l, "router", "sh", "-c",
				"i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done")
		})
		ns := total(got, "/guest_cpu_ns")
		if !(ns >= 20e6) {
			t.Errorf("CPU time of QEMU's threads during work in the guest: got %v ns in %v, want 20 ms "+
				"at least", ns, got)
		}
	})
	router := func(script string) func() {
		return func() { labtest.Exec(t, l, "router", "sh", "-c", script) }
	}
	t.Run("drops", func(t *testing.T) {
		got := watched(t, l, "router", "drops", router("nc -w 1 127.0.0.1 9 </dev/null || true"))
		if got["NO_SOCKET/skb_drops"] < 1 || got["skb_drops"] < got["NO_SOCKET/skb_drops"] {
			t.Errorf("drops after a datagram to a closed port: got %v, want one for NO_SOCKET", got)
		}

		left := "?"
		// the guest learns of the end a moment later
		for end := time.Now().Add(10 * time.Second); left != "" && time.Now().Before(end); {
			// Not ls, which fails where one goes while it looks.
			left = labtest.Exec(t, l, "router", "sh", "-c",
				"cd /sys/kernel/tracing/instances; for i in *; do [ -e $i ] && echo $i; done; true")
		}

		if left != "" {
			t.Errorf("tracing instances after the watch: got %q, want none", left)
		}
	})
	t.Run("xfrm", func(t *testing.T) {
		const policy = "src 198.18.1.2/32 dst 198.18.1.1/32 dir out"
		got := watched(t, l, "router", "xfrm", router("ip xfrm policy add "+policy+
			" action block; ping -c 1 -W 1 198.18.1.1; ip xfrm policy delete "+policy))
		if got["XfrmOutPolBlock"] < 1 {
			t.Errorf("XfrmOutPolBlock after a packet that a policy blocks: got %v, want one", got)
		}
	})
	t.Run("queues", func(t *testing.T) {
		const queues = `set -e
for i in 0 1; do
  ip link add dm$i type dummy
  ip link set dm$i up
  ip addr add 198.18.8$i.1/24 dev dm$i
  ip neigh add 198.18.8$i.2 lladdr 02:00:00:00:00:01 dev dm$i nud permanent
done
tc qdisc add dev dm0 root cake bandwidth 1mbit besteffort
tc qdisc add dev dm1 root handle 1: htb default 1
tc class add dev dm1 parent 1: classid 1:1 htb rate 1mbit
tc qdisc add dev dm1 parent 1:1 fq_codel`
		router(queues)()
		got := watched(t, l, "router", "queues",
			router("for i in 0 1; do ping -c 2 -W 1 198.18.8$i.2; done; true"))
		for _, column := range []string{"dm0.tin1/packets", "dm0.tin1/bytes", "dm1@1:1/lends",
			"dm1@1:1/new_flows"} {
			if got[column] < 1 {
				t.Errorf("%s after some packets: got %v in %v, want more", column, got[column], got)
			}
		}
	})
	t.Run("wireguard", func(t *testing.T) {
		router(twoTunnels)()
		got := watched(t, l, "router", "wireguard",
			router("wg set wgt0 peer $(wg show wgt1 public-key) endpoint 127.0.0.1:51902 "+
				"persistent-keepalive 1; sleep 2"))
		for _, column := range []string{"wgt0.peer0/tx_bytes", "wgt0.peer0/rx_bytes", "wgt1.peer0/tx_bytes",
			"wgt1.peer0/rx_bytes"} {
			if got[column] < 92 { // the answer to a handshake
				t.Errorf("%s after a handshake: got %v in %v, want a message of it at least", column,
					got[column], got)
			}
		}
	})
}

// twoTunnels makes two devices of one guest that know each other.
const twoTunnels = `set -e
for i in 0 1; do ip link add wgt$i type wireguard; wg genkey >/tmp/key$i; wg set wgt$i private-key /tmp/key$i listen-port 5190$((i+1)); ip link set wgt$i up; done
wg set wgt0 peer $(wg show wgt1 public-key) allowed-ips 198.18.77.1/32
wg set wgt1 peer $(wg show wgt0 public-key) allowed-ips 198.18.77.0/32
rm /tmp/key0 /tmp/key1`

// watched is by how much each column of a source grew while work was done, a level's last value less its
// first.
func watched(t *testing.T, l *lab.Lab, node, source string, work func()) map[string]float64 {
	t.Helper()
	ctx := labtest.Context(t)
	n, err := l.Node(ctx, node)
	must(t, err)
	w, err := watch.Start(ctx, n.Agent, node, []string{source},
		watch.Options{Options: probe.Options{
			Own:   []int{os.Getpid(), l.Holder},
			Trace: n.Trace,
		}})
	must(t, err)
	defer w.Close()
	from := host.Monotonic()
	must(t, w.Schedule(from))
	time.Sleep(50 * time.Millisecond)
	work()
	to := host.Monotonic()
	must(t, w.Schedule(to))
	time.Sleep(200 * time.Millisecond)
	data, err := w.Collect(ctx, from, host.Monotonic())
	must(t, err)
	if len(data.Samples) != 1 || data.Samples[0].Table == nil {
		t.Fatalf("samples of %s: got %+v, want a table", source, data.Samples)
	}

	logCost(t, source, data)
	table := data.Samples[0].Table
	out := map[string]float64{}
	for i, name := range table.Names {
		out[name] = table.V[i][len(table.T)-1] - table.V[i][0]
	}

	return out
}

func logCost(t *testing.T, source string, data record.NodeData) {
	for _, c := range data.Cost {
		if c.Probe == source {
			t.Logf("%s: %d reads of %.0f µs", source, c.Reads, float64(c.CPUNs)/1e3/float64(max(c.Reads, 1)))
		}
	}
}

// total adds the columns that end so.
func total(growth map[string]float64, suffix string) float64 {
	sum := 0.0
	for name, v := range growth {
		if strings.HasSuffix(name, suffix) {
			sum += v
		}
	}
	return sum
}

// TestTrialShowsWhatAGuestDoes: with a flow table the connections of a trial are marked while they run,
// without one they are not; and what the guest's processors cost the host is known.
func TestTrialShowsWhatAGuestDoes(t *testing.T) {
	labs := &lab.Locals{Local: lab.Local{Guest: labtest.Guest(t)}}
	c := newCampaign(t, labs, 1, "streams: 2, flowtable@router: [off, on]",
		1500*time.Millisecond, 0)
	c.Slack = 20 * time.Second
	must(t, c.conclude(t))
	if len(c.trials) != 2 {
		t.Fatalf("trials: got %d, want 2", len(c.trials))
	}

	for i, on := range []bool{false, true} {
		tr := c.trials[i]
		if tr.Status != record.TrialOK {
			t.Fatalf("trial %s: got %s, %+v", tr.ID, tr.Status, tr.Failure)
		}

		if got := largest(tr.Nodes["router"], "flows", "flows_offloaded"); (got > 0) != on {
			t.Errorf("flow table %v: got %v offloaded connections at most", on, got)
		}

		if got := largest(tr.Nodes[lab.HostNode], "guests", "router/vcpu0/guest_cpu_ns"); !(got > 0) {
			t.Errorf("CPU time of the guest's first processor: got %v, want some", got)
		}
	}
}

// largest is the largest value of a column, 0 if it has none.
func largest(n record.NodeData, source, column string) float64 {
	top := 0.0
	for _, s := range n.Samples {
		if s.Probe != source {
			continue
		}

		for _, v := range s.Table.Column(column) {
			if v > top {
				top = v
			}
		}
	}
	return top
}
