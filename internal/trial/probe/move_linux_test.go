package probe

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// The tests of this file are the probes' conformance on a real kernel: each
// makes counters move by the work they count.

// moves samples, does the work, and samples again until every column has
// grown, doing the work again meanwhile.
func moves(t *testing.T, s Sampler, work func(), columns ...string) {
	t.Helper()
	before := sample(t, s)
	for _, c := range columns {
		if _, ok := before[c]; !ok {
			t.Fatalf("no column %s in %v", c, s.Columns())
		}
	}
	left := columns
	for end := time.Now().Add(5 * time.Second); len(left) > 0; {
		if time.Now().After(end) {
			for _, c := range left {
				t.Errorf("%s did not move: got %v after %v", c, sample(t, s)[c], before[c])
			}
			t.FailNow()
		}
		work()
		now := sample(t, s)
		var still []string
		for _, c := range left {
			if !(now[c] > before[c]) {
				still = append(still, c)
			}
		}
		left = still
	}
}

// datagrams sends n datagrams of size bytes over the loopback to a port where
// somebody listens.
func datagrams(t *testing.T, to string, n, size int) func() {
	t.Helper()
	in, err := net.ListenPacket("udp", net.JoinHostPort(to, "0"))
	must(t, err)
	t.Cleanup(func() { in.Close() })
	out, err := net.Dial("udp", in.LocalAddr().String())
	must(t, err)
	t.Cleanup(func() { out.Close() })
	b := make([]byte, size)
	return func() {
		for range n {
			if _, err := out.Write(b); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func spin(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
	}
}

func TestCPUMoves(t *testing.T) {
	s := open(t, cpu(Root{}))
	send := datagrams(t, "127.0.0.1", 2000, 100)
	moves(t, s, func() { spin(10 * time.Millisecond); send(); time.Sleep(time.Millisecond) },
		"cpu/user_ns", "cpu/system_ns", "interrupts", "context_switches")
}

// Nobody can make a shared machine idle, but all time that passes must be in
// some state.
func TestCPUAccountsForAllTime(t *testing.T) {
	s := open(t, cpu(Root{}))
	before, start := sample(t, s), time.Now()
	time.Sleep(500 * time.Millisecond)
	now, passed := sample(t, s), float64(time.Since(start))
	all, cores := 0.0, 0.0
	for c := range now {
		label, stem, _ := strings.Cut(c, "/")
		if label == "cpu" || stem == "" || strings.HasPrefix(stem, "guest") {
			continue
		}
		all += now[c] - before[c]
		if stem == "idle_ns" {
			cores++
		}
	}
	if share := all / (passed * cores); share < 0.8 || share > 1.2 {
		t.Errorf("time in all states: got %.2f of the time that passed on %v cores, want 1", share, cores)
	}
}

func TestCPUCountsNiceTimeApart(t *testing.T) {
	s := open(t, cpu(Root{}))
	var done sync.WaitGroup
	moves(t, s, func() {
		done.Go(func() {
			lockThread() // never released: the nice thread ends with the goroutine
			must(t, unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 5))
			spin(30 * time.Millisecond)
		})
		done.Wait()
	}, "cpu/nice_ns")
}

func TestCoresTellBusyFromIdle(t *testing.T) {
	s := open(t, cpu(Root{})).(*cpuSampler)
	sample(t, s)
	s.Cores(nil)
	spin(300 * time.Millisecond)
	sample(t, s)
	busiest := 0.0
	for _, share := range s.Cores(nil) {
		if share < 0 || share > 1 {
			t.Errorf("busy share: got %v, want 0…1", share)
		}
		busiest = max(busiest, share)
	}
	if busiest < 0.3 {
		t.Errorf("busiest core while spinning: got %.2f, want nearly 1", busiest)
	}
}

func TestSoftirqMoves(t *testing.T) {
	s := open(t, softirq(Root{}))
	moves(t, s, datagrams(t, "127.0.0.1", 500, 100), "cpu/net_rx", "cpu/timer", "cpu/sched", "cpu/rcu")
}

func TestSoftnetMoves(t *testing.T) {
	s := open(t, softnet(Root{}))
	moves(t, s, datagrams(t, "127.0.0.1", 500, 100), "cpu/processed")
}

func TestSoftnetCountsPacketSteering(t *testing.T) {
	a, b := pair(t)
	if before := sample(t, open(t, softnet(Root{}))); before["cpu1/processed"] != before["cpu1/processed"] {
		t.Skip("skip: packet steering needs two cores")
	}
	addresses(t, a, b)
	// All cores may take packets, so that some go to another core.
	must(t, kernel.SetRPS(b, []string{"3"}))
	moves(t, open(t, softnet(Root{})), func() { flood(t, a, 500) }, "cpu/received_rps")
}

func TestNetdevMoves(t *testing.T) {
	s := open(t, netdev(Root{}))
	moves(t, s, datagrams(t, "127.0.0.1", 10, 100), "lo/rx_bytes", "lo/rx_packets", "lo/tx_bytes", "lo/tx_packets")
}

func TestNetdevSeesTheCarrierComeAndGo(t *testing.T) {
	a, b := pair(t)
	s := open(t, netdev(Root{}))
	wait := func(want float64) {
		t.Helper()
		got := -1.0
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if got = sample(t, s)[a+"/oper_up"]; got == want {
				return
			}
		}
		t.Fatalf("oper_up: got %v, want %v", got, want)
	}
	wait(1)
	before := sample(t, s)[a+"/carrier_changes"]
	must(t, kernel.Down(b))
	wait(0)
	must(t, kernel.Up(b))
	wait(1)
	if got := sample(t, s)[a+"/carrier_changes"]; got < before+2 {
		t.Errorf("carrier_changes: got %v after %v, want two more", got, before)
	}
}

func TestNetdevNoticesANewDevice(t *testing.T) {
	needIsolation(t)
	s := open(t, netdev(Root{}))
	a, _ := pair(t)
	if _, ok := sample(t, s)[a+"/rx_packets"]; !ok {
		t.Errorf("columns after a new device: got %v, want some of %s", s.Columns(), a)
	}
}

// addresses gives both ends an address, and the far one to a neighbour that
// needs no answer, so that packets leave a for b.
func addresses(t *testing.T, a, b string) {
	t.Helper()
	must(t, kernel.AddAddress(a, netip.MustParsePrefix("198.18.250.1/24")))
	mac, err := kernel.HardwareAddr(b)
	must(t, err)
	must(t, kernel.AddNeighbor(a, netip.MustParseAddr("198.18.250.2"), mac))
}

// flood sends n datagrams of 1000 bytes out of a.
func flood(t *testing.T, a string, n int) {
	t.Helper()
	out, err := net.Dial("udp", "198.18.250.2:9")
	must(t, err)
	defer out.Close()
	for range n {
		out.Write(make([]byte, 1000)) // a full queue may refuse
	}
}

func TestQdiscMoves(t *testing.T) {
	a, b := pair(t)
	addresses(t, a, b)
	s := open(t, qdisc(Root{}))
	if got := len(s.Columns()); got != 0 {
		t.Errorf("noqueue: got columns %v, want none", s.Columns())
	}
	err := kernel.SetRootQueue(a, kernel.Queue{Kind: "tbf", Values: map[string]uint64{
		"rate": 1_000_000, "burst": 2000, "limit": 8000}})
	must(t, err)
	moves(t, s2(t, s), func() { flood(t, a, 50) },
		a+"/bytes", a+"/packets", a+"/drops", a+"/overlimits", a+"/backlog_bytes", a+"/qlen_packets")
}

// s2 samples once, so that the columns are those of now.
func s2(t *testing.T, s Sampler) Sampler {
	t.Helper()
	sample(t, s)
	return s
}

func TestEthtoolMoves(t *testing.T) {
	a, b := pair(t)
	addresses(t, a, b)
	// A veth counts what its NAPI takes: it has one when GRO is on, and uses
	// it when the other end does not segment (drivers/net/veth.c).
	must(t, kernel.SetFeatures(b, map[string]bool{"rx-gro": true}))
	must(t, kernel.SetFeatures(a, segmentation(t, a)))
	s := open(t, ethtool(Root{}))
	var columns []string
	for _, c := range s.Columns() {
		if strings.HasPrefix(c, b+"/rx_queue_0") && strings.HasSuffix(c, "packets") {
			columns = append(columns, c)
		}
	}
	if len(columns) == 0 {
		t.Fatalf("no packet counter of %s in %v", b, s.Columns())
	}
	moves(t, s, func() { flood(t, a, 20) }, columns...)
}

// segmentation names what a device can segment, to be switched off.
func segmentation(t *testing.T, device string) map[string]bool {
	t.Helper()
	features, err := kernel.Features(device)
	must(t, err)
	off := map[string]bool{}
	for name := range features {
		if strings.HasPrefix(name, "tx-tcp") {
			off[name] = false
		}
	}
	return off
}

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
	}, "UdpNoPorts", "IcmpOutDestUnreachs", "IcmpInDestUnreachs", "TcpActiveOpens", "TcpAttemptFails", "TcpOutRsts")
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
	moves(t, s, datagrams(t, "127.0.0.1", 5, 8000), "IpFragOKs", "IpFragCreates", "IpReasmReqds", "IpReasmOKs")
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
	a, b := pair(t)
	addresses(t, a, b)
	if err := kernel.SetFirewall(kernel.Firewall{On: true, Rules: 1, Stateful: true}); err != nil {
		t.Logf("%v", err)
		t.Skip("skip: the kernel has no connection tracking")
	}
	t.Cleanup(func() { must(t, kernel.SetFirewall(kernel.Firewall{})) })
	s := open(t, conntrack(Root{}))
	moves(t, s, func() { flood(t, a, 1) }, "entries")
	if got := sample(t, s); !(got["max"] > got["entries"]) {
		t.Errorf("max: got %v with %v entries", got["max"], got["entries"])
	}
}

func TestMemoryMoves(t *testing.T) {
	s := open(t, memory(Root{}))
	before := sample(t, s)
	const size = 256 << 20
	b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	must(t, err)
	defer syscall.Munmap(b)
	for i := 0; i < size; i += 4096 {
		b[i] = 1
	}
	// Others work on this machine too: half is enough to be sure.
	if now := sample(t, s); before["available_bytes"]-now["available_bytes"] < size/2 {
		t.Errorf("available_bytes: got %v after %v, want %v less", now["available_bytes"], before["available_bytes"], size)
	}
}

func TestPressureMoves(t *testing.T) {
	p := pressure(Root{})
	if a := p.Check(context.Background(), host.Local()); a.Reason != "" {
		t.Skip("skip: the kernel has no pressure stall information")
	}
	moves(t, open(t, p), func() {
		var busy sync.WaitGroup
		for range 16 {
			busy.Go(func() { defer lockThread()(); spin(20 * time.Millisecond) })
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
	s, err := p.Open(context.Background(), nil)
	if err != nil {
		t.Logf("%v", err)
		t.Skip("skip: the machine's processes cannot be seen")
	}
	ours := s.(*foreignSampler)
	moves(t, ours, func() { spin(20 * time.Millisecond) }, "lab_cpu_ns")

	// Seen by a sampler that does not know this process, all it and its
	// children do is foreign, also the work of those that live only briefly.
	theirs := *ours
	theirs.own, theirs.known, theirs.round = map[int]bool{}, map[int]*process{}, 0
	theirs.foreign, theirs.lab = processTime{}, processTime{}
	before := sample(t, &theirs)
	for range 5 {
		run(t, "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done")
	}
	now := sample(t, &theirs)
	if got := now["foreign_cpu_ns"] - before["foreign_cpu_ns"]; got < 20e6 {
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

// The machines of CI have none of these three; where there is one, it must
// have values.

func TestCPUFreqMoves(t *testing.T) {
	hardware(t, cpufreq(Root{}), "skip: no CPU frequency scaling on this machine")
}
func TestThermalMoves(t *testing.T) {
	hardware(t, thermal(Root{}), "skip: no thermal source on this machine")
}
func TestPowerMoves(t *testing.T) {
	hardware(t, power(Root{}), "skip: no power source on this machine")
}

func hardware(t *testing.T, p Probe, reason string) {
	t.Helper()
	s, err := p.Open(context.Background(), nil)
	if err != nil {
		t.Logf("%v", err)
		t.Skip(reason)
	}
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
	t.Errorf("%s: nothing moved in %v", p.Name(), before)
}
