package probe

import (
	"bytes"
	"os"
	"reflect"
	"testing"
)

// texts lists the parsers of the kernel's texts, each with a file of this machine, a text that it takes and
// some that it refuses.
var texts = []struct {
	name, path, good string
	bad              []string
	parse            func(b []byte) (any, error)
}{
	{"stat", "/proc/stat", "cpu 1 2 3 4\n", []string{"", "cpu a b c d\n", "cpux 1 2 3 4\n", "cpu 1 2 3\n"},
		func(b []byte) (any, error) { return parseStat(b, statText{}) }},
	{"softirqs", "/proc/softirqs", "CPU0\nNET_RX: 1\n", []string{"", "NET_RX: 1 2\n", "CPUx\n"},
		func(b []byte) (any, error) { return parseSoftirqs(b, softirqText{}) }},
	{"softnet", "/proc/net/softnet_stat", "0 1 2 3 4 5 6 7 8\n", []string{"", "0 1 2\n",
		"x 1 2 3 4 5 6 7 8\n", "00000000 1 2 3 4 5 6 7 8 9 a b fffffff1\n"},
		func(b []byte) (any, error) { return parseSoftnet(b, nil) }},
	{"netdev", "/proc/net/dev", "a:1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7\n", []string{"lo: 1 2 3\n",
		"lo: 99999999999999999999 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n"},
		func(b []byte) (any, error) { return parseNetdev(b, nil) }},
	{"snmp", "/proc/net/snmp", "Tcp: A\nTcp: 1\n", []string{"Tcp: A\n", "Tcp: A\nUdp: 1\n",
		"Tcp: A B\nTcp: 1\n", "Tcp: A\nTcp: 1 2\n", "Tcp: A\nTcp: x\n", "Tcp A\nTcp 1\n"},
		into(parseSnmp)},
	{"pairs", "/proc/meminfo", "MemTotal: 1 kB\nIp6InReceives 12\n", []string{"MemTotal: much\n"},
		into(parsePairs)},
	{"counts per CPU", "/proc/net/stat/nf_conntrack", "entries drop\n1 2\n", []string{"", "drop found\n1\n",
		"drop\nzz\n"}, into(parsePerCPU)},
	{"one count", "/proc/sys/net/netfilter/nf_conntrack_count", "7\n", []string{"x\n"},
		into(parseOne("entries"))},
	{"pressure", "/proc/pressure/io", "some avg10=0.00 total=1\n", []string{"", "full total=1\n",
		"some avg10=0\n", "some total=x\n"},
		func(b []byte) (any, error) {
			some, full, err := parsePressure(b)
			return [2]float64{some, full}, err
		}},
	{"time in state", "/sys/devices/system/cpu/cpufreq/policy0/stats/time_in_state", "600000 12\n",
		[]string{"600000\n"}, func(b []byte) (any, error) { return parseTimeInState(b, nil) }},
	{"kernel log", "", "4,339,5140900,-;NET: Registered protocol\n SUBSYSTEM=net\n", []string{"", "hello",
		"x,1,2,-;a", "1,2;a"}, func(b []byte) (any, error) { return parseKmsg(b) }},
	{"stat of a process", "/proc/self/stat", "1 (a) S 0 1 1 0 -1 0 0 0 0 0 0 0 0 0 0 0 0 0 1\n",
		[]string{"", "42 a", "x (a) S 1", "42 (a) S 7 1 1"},
		func(b []byte) (any, error) { return parsePidStat(b) }},
	{"CPUs", "/proc/cpuinfo", "processor: 0\nSerial: 1234\n", nil,
		func(b []byte) (any, error) { return parseCPUInfo(string(b)), nil }},
	{"reasons of drops", "", dropFormat, []string{"", `print fmt: "x", REC->skbaddr`,
		`__print_symbolic(REC->reason, {x, "A"})`, `__print_symbolic(REC->reason)`},
		func(b []byte) (any, error) { return parseDropFormat(b) }},
	{"histogram of drops", "", dropHist, []string{"{ reason: x } hitcount: 1\n"},
		func(b []byte) (any, error) {
			dst := []float64{nan, nan, 0}
			total, err := parseDropHist(b, map[uint64]int{2: 1, 9: 12}, dst)
			return filled{total, dst[2]}, err
		}},
}

// filled holds the total that a parser returned, and what it wrote to a place that it was not to fill.
type filled struct{ total, elsewhere float64 }

func into(parse func(b []byte, want map[string]int, dst []float64) error) func(b []byte) (any, error) {
	return func(b []byte) (any, error) {
		dst := []float64{nan, nan, nan, nan, nan, -7}
		err := parse(b, map[string]int{"TcpRetransSegs": 0, "MemTotal": 1, "drop": 2, "Ip6InReceives": 3,
			"entries": 4}, dst)
		return filled{elsewhere: dst[5] + 7}, err
	}
}

func TestTextsAreTakenOrRefused(t *testing.T) {
	for _, text := range texts {
		if _, err := text.parse([]byte(text.good)); err != nil {
			t.Errorf("%s: got %v of %q", text.name, err, text.good)
		}

		for _, bad := range text.bad {
			if got, err := text.parse([]byte(bad)); err == nil || !reflect.ValueOf(got).IsZero() {
				t.Errorf("%s: got %v and %v of %q, want an error alone", text.name, got, err, bad)
			}
		}
	}
}

// FuzzTexts gives a text, first this machine's own and some of its damage, to every parser.
func FuzzTexts(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text.good))
		for _, bad := range text.bad {
			f.Add([]byte(bad))
		}

		if b, err := os.ReadFile(text.path); err == nil {
			f.Add(b[:min(len(b), 4096)])
			f.Add(b[:len(b)/2])
		}
	}

	f.Fuzz(func(t *testing.T, b []byte) {
		for _, text := range texts {
			got, err := text.parse(b)
			sound := true
			switch got := got.(type) {
			case statText:
				sound = got.cpus != nil
			case softirqText:
				sound = got.cpus != nil && len(got.counts) == len(got.cpus)*len(softirqRows)
			case []softnetRow:
				sound = got != nil
			case []dropReason:
				sound = got != nil
			case [2]float64: // the pressure
				sound = got[0] == got[0]
			case kmsgRecord:
				sound = got.severity <= 7 && got.at >= 0
			case cpuInfo:
				sound = got.threads <= bytes.Count(b, []byte("\n"))+1
			case filled:
				sound = got.elsewhere == 0
			}

			if err == nil && !sound || err != nil && !reflect.ValueOf(got).IsZero() {
				t.Errorf("%s: got %+v with error %v", text.name, got, err)
			}
		}
	})
}
