package probe

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/qdisc"
)

func TestSnmpMoves(t *testing.T) {
	needIsolation(t)
	s := open(t, snmp(Root{}))
	moves(t, s, func() { exchange(t, "127.0.0.1") }, "IpInReceives", "IpInDelivers", "IpOutRequests",
		"UdpInDatagrams", "UdpOutDatagrams", "IpExtInOctets")
	moves(t, s, func() { exchange(t, "::1") }, "Ip6InReceives", "Udp6InDatagrams")
	moves(t, s, func() {
		out, err := net.Dial("udp", "127.0.0.1:9")
		must(t, err)
		defer out.Close()
		out.Write([]byte("x"))
		refused, err := net.Dial("tcp", "127.0.0.1:9")
		if err == nil {
			refused.Close()
			t.Fatal("port 9 answers")
		}
	}, "UdpNoPorts", "IcmpOutDestUnreachs", "IcmpInDestUnreachs", "TcpActiveOpens", "TcpAttemptFails",
		"TcpOutRsts")
}

// exchange sends one datagram and takes it in; the kernel counts it then.
func exchange(t *testing.T, address string) {
	t.Helper()
	in, err := net.ListenPacket("udp", net.JoinHostPort(address, "0"))
	must(t, err)
	defer in.Close()
	_, err = in.WriteTo([]byte("x"), in.LocalAddr())
	must(t, err)
	must(t, in.SetDeadline(time.Now().Add(time.Second)))
	_, _, err = in.ReadFrom(make([]byte, 8))
	must(t, err)
}

func TestSnmpCountsOverflowsAndFragments(t *testing.T) {
	needIsolation(t)
	s := open(t, snmp(Root{}))
	moves(t, s, datagrams(t, "127.0.0.1", 500, 8000), "UdpRcvbufErrors", "UdpInErrors")
	must(t, kernel.SetMTU("lo", 1500))
	t.Cleanup(func() { must(t, kernel.SetMTU("lo", 65536)) })
	moves(t, s, datagrams(t, "127.0.0.1", 5, 8000), "IpFragOKs", "IpFragCreates", "IpReasmReqds",
		"IpReasmOKs")
	moves(t, s, datagrams(t, "::1", 5, 8000), "Ip6FragOKs", "Ip6FragCreates", "Ip6ReasmOKs")
	moves(t, s, func() { overflow(t) }, "TcpExtListenOverflows", "TcpExtListenDrops")
}

// overflow connects more often than a listener that takes nothing can queue.
func overflow(t *testing.T) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	must(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	must(t, unix.Listen(fd, 0))
	sa, err := unix.Getsockname(fd)
	must(t, err)
	for range 4 {
		c, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		must(t, err)
		defer unix.Close(c)
		unix.Connect(c, sa) // in progress, or already too many
	}

	time.Sleep(20 * time.Millisecond)
}

func TestConntrackMoves(t *testing.T) {
	a, _ := path(t)
	track(t)
	s := open(t, conntrack(Root{}))
	moves(t, s, func() { flood(t, a, 1) }, "entries")
	got := sample(t, s)
	if !(got["max"] > got["entries"]) {
		t.Errorf("max: got %v with %v entries", got["max"], got["entries"])
	}
}

// track has the kernel track connections.
func track(t *testing.T) {
	t.Helper()
	if err := kernel.FirewallRules.Set(kernel.Firewall{On: true, Rules: 1, Stateful: true}); err != nil {
		t.Logf("%v", err)
		t.Skip("skip: the kernel has no connection tracking")
	}

	t.Cleanup(func() { must(t, kernel.FirewallRules.Set(kernel.Firewall{})) })
}

func TestRoutecacheMoves(t *testing.T) {
	s := open(t, routecache(Root{}))
	to := net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9}
	moves(t, s, func() {
		// Without a connection each datagram's route is looked up.
		c, err := net.ListenUDP("udp4", nil)
		must(t, err)
		defer c.Close()
		_, err = c.WriteToUDP([]byte("x"), &to)
		must(t, err)
	}, "out_slow_tot")
}

func TestMemoryMoves(t *testing.T) {
	s := open(t, memory(Root{}))
	// Others work on this machine too: half is enough to be sure, and one that gives back as much at the
	// same moment will not do so each time.
	size := int(min(sample(t, s)["available_bytes"]/8, 1<<30))
	var fell float64
	for range 5 {
		if fell = fall(t, s, size); fell >= float64(size)/2 {
			return
		}
	}

	t.Errorf("available_bytes: fell by %v, want %v", fell, size)
}

// fall is by how much the available memory falls while size bytes are in use.
func fall(t *testing.T, s Sampler, size int) float64 {
	t.Helper()
	before := sample(t, s)["available_bytes"]
	b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	must(t, err)
	defer syscall.Munmap(b)
	for i := 0; i < size; i += 4096 {
		b[i] = 1
	}

	return before - sample(t, s)["available_bytes"]
}

func TestPressureMoves(t *testing.T) {
	p := pressure(Root{})
	a := p.Check()
	if a.Reason != "" {
		t.Skip("skip: the kernel has no pressure stall information")
	}

	moves(t, open(t, p), func() {
		var busy sync.WaitGroup
		for range 16 {
			busy.Go(func() { runtime.LockOSThread(); spin(20 * time.Millisecond) })
		}

		busy.Wait()
	}, "cpu/some_ns")
}

func TestKernelLogMoves(t *testing.T) {
	needIsolation(t)
	s := open(t, kernellog(Root{}))
	moves(t, s, func() { promiscuous(t, "lo") }, "lines")
	lines := s.(Liner).Lines()
	if len(lines) == 0 || !strings.Contains(lines[0].Text, "promiscuous") {
		t.Errorf("lines: got %v, want one about the promiscuous mode", lines)
	}
}

// promiscuous has the kernel log that a device listens to everything.
func promiscuous(t *testing.T, name string) {
	t.Helper()
	dev, err := net.InterfaceByName(name)
	must(t, err)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	must(t, unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP,
		&unix.PacketMreq{Ifindex: int32(dev.Index), Type: unix.PACKET_MR_PROMISC}))
}

func TestForeignMoves(t *testing.T) {
	p := foreign(Root{})
	s, err := p.Open(Options{})
	if err != nil {
		t.Logf("%v", err)
		t.Skip("skip: the machine's processes cannot be seen")
	}

	ours := s.(*foreignSampler)
	moves(t, ours, func() { spin(20 * time.Millisecond) }, "lab_cpu_ns")

	// Seen by a sampler that does not know this process, all it and its children do is foreign, also the
	// work of those that live only briefly.
	theirs := *ours
	theirs.own = map[int]bool{}
	theirs.known = map[int]*process{}
	theirs.round = 0
	theirs.foreign = 0
	theirs.lab = 0
	before := sample(t, &theirs)
	for range 5 {
		run(t, "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done")
	}

	now := sample(t, &theirs)
	got := now["foreign_cpu_ns"] - before["foreign_cpu_ns"]
	if got < 20e6 {
		t.Errorf("foreign_cpu_ns after five short shells: got %v more, want at least 20 ms", got)
	}

	if now["lab_cpu_ns"] != before["lab_cpu_ns"] {
		t.Errorf("lab_cpu_ns: got %v more, want none", now["lab_cpu_ns"]-before["lab_cpu_ns"])
	}
}

func run(t *testing.T, script string) {
	t.Helper()
	p, err := host.Local().Start(context.Background(), host.Command{Path: "sh", Args: []string{"-c", script}})
	must(t, err)
	if _, err := p.Wait(); err != nil {
		t.Fatal(err)
	}
}

// The machines of CI have none of these three; where there is one, it must have values.

func TestCPUFreqMoves(t *testing.T) { anyMoves(t, cpufreq(Root{})) }
func TestThermalMoves(t *testing.T) { anyMoves(t, thermal(Root{})) }
func TestPowerMoves(t *testing.T)   { anyMoves(t, power(Root{})) }

// anyMoves works until some column changes; it skips the test where the machine lacks the source.
func anyMoves(t *testing.T, p Probe) {
	t.Helper()
	s, err := p.Open(Options{})
	if errors.Is(err, host.ErrUnsupported) {
		t.Logf("%v", err)
		t.Skip("skip: no " + p.Name + " source on this machine")
	}

	must(t, err)
	defer s.Close()
	before := sample(t, s)
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		spin(100 * time.Millisecond)
		now := sample(t, s)
		for c, v := range now {
			if v != before[c] && v == v {
				return
			}
		}
	}

	t.Errorf("nothing moved in %v", before)
}

// The rate of a loop cannot be made to move here; it must be plausible, of every core, and what is taken
// away must not make it larger.
func TestClockMoves(t *testing.T) {
	s := open(t, clock(Root{})).(*clockSampler)
	best := map[int]float64{}
	for range 4 * len(s.cores) {
		row := make([]float64, len(s.Columns()))
		must(t, s.Sample(row))
		for i, core := range s.cores {
			rate := row[2*i]
			top := row[2*i+1]
			if rate == rate && !(rate > 1e6 && rate <= top && top < 1e11) {
				t.Errorf("core %d: got a rate of %v and a best one of %v, want both plausible and in "+
					"this order", core, rate, top)
			}

			if top == top {
				best[core] = max(best[core], top)
			}
		}
	}

	if len(best) != len(s.cores) {
		t.Errorf("cores: got rates of %v, want of %v", best, s.cores)
	}

	before, err := allowedCores()
	must(t, err)
	if len(before) != len(s.cores) {
		t.Errorf("cores that the thread may run on afterwards: got %v, want %v", before, s.cores)
	}
}

func TestFlowsMove(t *testing.T) {
	a, _ := path(t)
	track(t)
	s := open(t, flows(Root{}))
	moves(t, s, func() { flood(t, a, 1) }, "flows_tracked")
	got := sample(t, s)["flows_offloaded"]
	if got != 0 {
		t.Errorf("flows_offloaded without a flow table: got %v, want 0", got)
	}
}

func TestQueuesMove(t *testing.T) {
	a, _ := path(t)
	s := open(t, queues(Root{}))
	err := kernel.SetRootQueue(a, qdisc.Queue{
		Kind: "htb",
		Values: map[string]uint64{"rate": 1_000_000,
			"burst": 3000},
	})
	if errors.Is(err, kernel.ErrUnsupported) {
		t.Skip("skip: the kernel has no htb")
	}

	must(t, err)
	sample(t, s)
	class := ""
	for _, c := range s.Columns() {
		if l, ok := strings.CutSuffix(c, "/lends"); ok {
			class = l
		}
	}

	moves(t, s, func() { flood(t, a, 50) }, class+"/bytes", class+"/packets", class+"/overlimits", class+
		"/lends", class+"/qlen_packets")
	must(t, kernel.SetRootQueue(a, qdisc.Queue{Kind: "pfifo", Values: map[string]uint64{"limit": 10}}))
	now := sample(t, s)
	if len(now) != 0 {
		t.Errorf("columns after the queue has gone: got %v, want none", now)
	}
}
