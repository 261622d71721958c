package probe

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var sameNaN = cmp.Options{cmpopts.EquateNaNs(), cmp.AllowUnexported(statText{}, cpuLine{}, softirqText{},
	softnetRow{},
	netdevLine{}, pidStat{}, kmsgRecord{}, freqTime{}, cpuInfo{})}

func TestParseStat(t *testing.T) {
	tests := []struct {
		name, text string
		want       statText
	}{
		{"6.18, one core", "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 500 0 0\nctxt " +
			"70\nbtime 1\nprocesses 8\nprocs_running 2\nprocs_blocked 1\nsoftirq 9 0\n",
			statText{
				cpus: []cpuLine{{-1, 10, [10]uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}},
					{0, 10, [10]uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}}},
				totals: [5]float64{500, 70, 8, 2, 1},
			}},
		{"2.6.10 has no steal", "cpu  1 2 3 4 5 6 7\ncpu0 1 2 3 4 5 6 7\n",
			statText{
				cpus: []cpuLine{{-1, 7, [10]uint64{1, 2, 3, 4, 5, 6, 7}},
					{0, 7, [10]uint64{1, 2, 3, 4, 5, 6, 7}}},
				totals: [5]float64{nan, nan, nan, nan, nan},
			}},
		{"core 1 is offline", "cpu 1 2 3 4\ncpu0 1 2 3 4\ncpu2 1 2 3 4\n",
			statText{
				cpus: []cpuLine{{-1, 4, [10]uint64{1, 2, 3, 4}}, {0, 4, [10]uint64{1, 2, 3, 4}},
					{2, 4, [10]uint64{1, 2, 3, 4}}},
				totals: [5]float64{nan, nan, nan, nan, nan},
			}},
	}
	for _, tt := range tests {
		got, err := parseStat([]byte(tt.text), statText{})
		d := cmp.Diff(got, tt.want, sameNaN)
		if d != "" || err != nil {
			t.Errorf("%s: error %v (-got +want):\n%s", tt.name, err, d)
		}
	}
}

func TestParseSoftirqs(t *testing.T) {
	const text = `                    CPU0       CPU2
          HI:          1          2
       TIMER:       9131       8733
      NET_TX:          4          2
      NET_RX:       2568       4502
BLOCK_IOPOLL:          0          0
     TASKLET:        383         53
       SCHED:      18260      18476
`
	got, err := parseSoftirqs([]byte(text), softirqText{})
	want := softirqText{
		cpus: []int{0, 2},
		counts: []float64{9131, 4, 2568, 383, 18260, -1, -1, 8733, 2, 4502,
			53, 18476, -1, -1},
	}
	d := cmp.Diff(got, want, sameNaN)
	if d != "" || err != nil {
		t.Errorf("error %v (-got +want):\n%s", err, d)
	}
}

func TestParseSoftnet(t *testing.T) {
	column := func(n int, id string) string {
		row := strings.Repeat("0000000a ", n)
		if n > softnetCPU {
			row = strings.Repeat("0000000a ", softnetCPU) + id + strings.Repeat(" 0000000a", n-softnetCPU-1)
		}
		return row + "\n"
	}
	for _, n := range []int{9, 10, 11, 13, 15, 17} {
		got, err := parseSoftnet([]byte(column(n, "00000000")+column(n, "00000003")), nil)
		if err != nil || len(got) != 2 {
			t.Fatalf("%d columns: got %d rows, error %v", n, len(got), err)
		}

		want := 1
		if n > softnetCPU {
			want = 3
		}

		if got[1].id != want || got[1].n != min(n, softnetColumns) || got[1].values[2] != 10 {
			t.Errorf("%d columns: got %+v, want core %d", n, got[1], want)
		}
	}
}

func TestParseNetdev(t *testing.T) {
	const text = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:    3193      29    0    0    0     0          0         0     3193      29    0    0    0     0       0          0
eth0:18446744073709551615 8722 1 2 3 4 5 6 7 8 9 10 11 12 13 14
`
	got, err := parseNetdev([]byte(text), nil)
	want := []netdevLine{
		{[]byte("lo"), [16]uint64{0: 3193, 1: 29, 8: 3193, 9: 29}},
		{[]byte("eth0"), [16]uint64{18446744073709551615, 8722, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13,
			14}},
	}
	d := cmp.Diff(got, want, sameNaN)
	if d != "" || err != nil {
		t.Errorf("error %v (-got +want):\n%s", err, d)
	}
}

func TestParseSnmp(t *testing.T) {
	want := map[string]int{"TcpRetransSegs": 0, "TcpMaxConn": 1, "UdpRcvbufErrors": 2}
	dst := []float64{nan, nan, nan}
	err := parseSnmp([]byte("Tcp: RtoMin MaxConn RetransSegs\nTcp: 200 -1 17\nUdp: InDatagrams\nUdp: 5\n"),
		want, dst)
	d := cmp.Diff(dst, []float64{17, -1, nan}, sameNaN)
	if d != "" || err != nil {
		t.Errorf("error %v (-got +want):\n%s", err, d)
	}
}

func TestParsePairs(t *testing.T) {
	dst := []float64{nan, nan}
	err := parsePairs([]byte("MemTotal:       24684084 kB\nIp6InReceives 12\nHugePages_Total:       0\n"),
		map[string]int{"MemTotal": 0, "Ip6InReceives": 1}, dst)
	d := cmp.Diff(dst, []float64{24684084, 12})
	if d != "" || err != nil {
		t.Errorf("error %v (-got +want):\n%s", err, d)
	}
}

func TestParsePerCPU(t *testing.T) {
	want := map[string]int{"drop": 0, "clashres": 1, "chainlength": 2, "search_restart": 3}
	tests := []struct {
		name, text string
		want       []float64
	}{
		{"6.x", "entries  clashres found new invalid ignore delete chainlength insert insert_failed drop " +
			"early_drop icmp_error  expect_new expect_create expect_delete search_restart\n" +
			"0000000a  00000001 0 0 0 0 0 00000003 0 0 0000000f 0 0  0 0 0 00000002\n0000000a " +
			" 00000001 0 0 " +
			"0 0 0 00000000 0 0 00000001 0 0  0 0 0 00000002\n", []float64{16, 2, 3, 4}},
		{"3.x", "entries  searched found new invalid ignore delete delete_list insert insert_failed drop " +
			"early_drop icmp_error  expect_new expect_create expect_delete\n" +
			"1 1 1 1 1 1 1 1 1 1 2 1 1 1 1 1\n", []float64{2, nan, nan, nan}},
	}
	for _, tt := range tests {
		dst := []float64{nan, nan, nan, nan}
		err := parsePerCPU([]byte(tt.text), want, dst)
		d := cmp.Diff(dst, tt.want, sameNaN)
		if d != "" || err != nil {
			t.Errorf("%s: error %v (-got +want):\n%s", tt.name, err, d)
		}
	}
}

func TestParsePressure(t *testing.T) {
	some, full, err := parsePressure([]byte("some avg10=0.00 avg60=0.01 avg300=0.00 total=123\nfull " +
		"avg10=0.00 avg60=0.00 avg300=0.00 total=45\n"))
	if some != 123 || full != 45 || err != nil {
		t.Errorf("got %v %v %v, want 123 45", some, full, err)
	}

	some, full, err = parsePressure([]byte("some avg10=0.00 avg60=0.01 avg300=0.00 total=123\n"))
	if some != 123 || full == full || err != nil {
		t.Errorf("without full: got %v %v %v, want 123 NaN", some, full, err)
	}
}

func TestParseTimeInState(t *testing.T) {
	got, err := parseTimeInState([]byte("600000 12\n1800000 34\n"), nil)
	d := cmp.Diff(got, []freqTime{{600000, 12}, {1800000, 34}}, sameNaN)
	if d != "" || err != nil {
		t.Errorf("error %v (-got +want):\n%s", err, d)
	}
}

func TestParseKmsg(t *testing.T) {
	got, err := parseKmsg([]byte("4,339,5140900,-;NET: Registered; protocol\n SUBSYSTEM=net\n"))
	want := kmsgRecord{severity: 4, sequence: 339, at: 5140900000, text: "NET: Registered; protocol"}
	d := cmp.Diff(got, want, sameNaN)
	if d != "" || err != nil {
		t.Errorf("error %v (-got +want):\n%s", err, d)
	}

	if got, err := parseKmsg([]byte("30,1,2,c,caller=T1;daemon: hello")); err != nil || got.facility != 3 ||
		got.severity != 6 {
		t.Errorf("got %+v %v, want facility 3 severity 6", got, err)
	}
}

func TestParsePidStat(t *testing.T) {
	got, err := parsePidStat([]byte("42 (a) b (c)) S 7 42 42 0 -1 4194560 1 2 3 4 100 20 5 6 20 0 1 0 999 " +
		"1 2 3\n"))
	want := pidStat{pid: 42, parent: 7, ticks: 120, childTicks: 11, start: 999}
	d := cmp.Diff(got, want, sameNaN)
	if d != "" || err != nil {
		t.Errorf("error %v (-got +want):\n%s", err, d)
	}

	got, err = parsePidStat([]byte("2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 1 0 0 20 0 1 0 1 0 0 0\n"))
	if err != nil || !got.kernel {
		t.Errorf("kthreadd: got %+v %v, want a kernel thread", got, err)
	}
}

func TestParseCPUInfo(t *testing.T) {
	tests := []struct {
		name, text string
		want       cpuInfo
	}{
		{"x86 guest", "processor\t: 0\nmodel name\t: AMD EPYC\nmicrocode\t: 0x1\nphysical id\t: 0\ncore " +
			"id\t\t: 0\nflags\t\t: fpu aes hypervisor\n\nprocessor\t: 1\nmodel name\t: AMD EPYC\nphysical " +
			"id\t: 0\ncore id\t\t: 0\nflags\t\t: fpu aes hypervisor\n",
			cpuInfo{
				model:     "AMD EPYC",
				microcode: "0x1",
				threads:   2,
				cores:     1,
				flags:     []string{"aes"},
				virtual:   true,
			}},
		{"arm64", "processor\t: 0\nBogoMIPS\t: 48.00\nFeatures\t: fp asimd aes pmull sha2 crc32\n",
			cpuInfo{threads: 1, flags: []string{"asimd", "aes", "pmull", "sha2", "crc32"}}},
		{"arm32", "Processor\t: x\nprocessor\t: 0\nmodel name\t: ARMv7 Processor rev 1 (v7l)\nFeatures\t: " +
			"half neon\nHardware\t: Marvell\nSerial\t\t: 00001234\n",
			cpuInfo{model: "ARMv7 Processor rev 1 (v7l)", threads: 1, flags: []string{"neon"}}},
		{"mips", "system type\t\t: MediaTek MT7621\nprocessor\t\t: 0\ncpu model\t\t: MIPS 1004Kc " +
			"V2.15\nASEs implemented\t: mips16 dsp mt\n",
			cpuInfo{model: "MIPS 1004Kc V2.15", threads: 1, flags: []string{"mips16", "dsp"}}},
		{"riscv", "processor\t: 0\nhart\t\t: 1\nisa\t\t: rv64imafdc\nuarch\t\t: sifive,u74-mc\n",
			cpuInfo{model: "sifive,u74-mc", threads: 1, flags: []string{"rv64imafdc"}}},
		{"empty", "", cpuInfo{}},
	}
	for _, tt := range tests {
		d := cmp.Diff(parseCPUInfo(tt.text), tt.want, sameNaN)
		if d != "" {
			t.Errorf("%s (-got +want):\n%s", tt.name, d)
		}
	}
}
