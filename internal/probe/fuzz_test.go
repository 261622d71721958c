package probe

import (
	"bytes"
	"os"
	"testing"
)

// seed adds this machine's own text, if it has it, and some of its damage.
func seed(f *testing.F, path string, more ...string) {
	if b, err := os.ReadFile(path); err == nil {
		f.Add(b[:min(len(b), 4096)])
		f.Add(b[:len(b)/2])
	}
	for _, m := range more {
		f.Add([]byte(m))
	}
}

func FuzzParseStat(f *testing.F) {
	seed(f, "/proc/stat", "cpu 1 2 3 4\n")
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, err := parseStat(b, statText{}); (err != nil) != (got.cpus == nil) {
			t.Errorf("got %v with error %v", got, err)
		}
	})
}

func FuzzParseSoftirqs(f *testing.F) {
	seed(f, "/proc/softirqs", "CPU0\nNET_RX: 1\n")
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := parseSoftirqs(b, softirqText{})
		if (err != nil) != (got.cpus == nil) || len(got.counts) != len(got.cpus)*len(softirqRows) {
			t.Errorf("got %v with error %v", got, err)
		}
	})
}

func FuzzParseSoftnet(f *testing.F) {
	seed(f, "/proc/net/softnet_stat", "0 1 2 3 4 5 6 7 8\n")
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, err := parseSoftnet(b, nil); (err != nil) != (got == nil) {
			t.Errorf("got %v with error %v", got, err)
		}
	})
}

func FuzzParseNetdev(f *testing.F) {
	seed(f, "/proc/net/dev", "a:1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7\n")
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, err := parseNetdev(b, nil); err != nil && got != nil {
			t.Errorf("got %v with error %v", got, err)
		}
	})
}

// A parser into a map has nothing to show with an error; it must not write outside what is wanted.
func FuzzParseNamed(f *testing.F) {
	for _, path := range []string{"/proc/net/snmp", "/proc/net/netstat", "/proc/net/snmp6", "/proc/meminfo",
		"/proc/vmstat", "/proc/net/stat/nf_conntrack"} {
		seed(f, path)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		want := map[string]int{"TcpRetransSegs": 0, "MemTotal": 1, "drop": 2, "Ip6InReceives": 3,
			"entries": 4}
		for _, parse := range []func([]byte, map[string]int, []float64) error{parseSnmp, parsePairs,
			parsePerCPU, parseOne("entries")} {
			dst := []float64{nan, nan, nan, nan, nan, -7}
			if parse(b, want, dst); dst[5] != -7 {
				t.Errorf("wrote where nothing is wanted: %v", dst)
			}
		}
	})
}

func FuzzParsePressure(f *testing.F) {
	seed(f, "/proc/pressure/io", "some avg10=0.00 total=1\n")
	f.Fuzz(func(t *testing.T, b []byte) {
		if some, full, err := parsePressure(b); err != nil && (some != 0 || full != 0) || err == nil &&
			some != some {
			t.Errorf("got %v %v with error %v", some, full, err)
		}
	})
}

func FuzzParseTimeInState(f *testing.F) {
	seed(f, "/sys/devices/system/cpu/cpufreq/policy0/stats/time_in_state", "600000 12\n")
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, err := parseTimeInState(b, nil); err != nil && got != nil {
			t.Errorf("got %v with error %v", got, err)
		}
	})
}

func FuzzParseKmsg(f *testing.F) {
	f.Add([]byte("4,339,5140900,-;NET: Registered protocol\n SUBSYSTEM=net\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := parseKmsg(b)
		if err != nil && got != (kmsgRecord{}) || got.severity > 7 || got.at < 0 {
			t.Errorf("got %+v with error %v", got, err)
		}
	})
}

func FuzzParsePidStat(f *testing.F) {
	seed(f, "/proc/self/stat", "1 (a) S 0 1 1 0 -1 0 0 0 0 0 0 0 0 0 0 0 0 0 1\n")
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, err := parsePidStat(b); err != nil && got != (pidStat{}) {
			t.Errorf("got %+v with error %v", got, err)
		}
	})
}

func FuzzParseCPUInfo(f *testing.F) {
	seed(f, "/proc/cpuinfo", "processor: 0\nSerial: 1234\n")
	f.Fuzz(func(t *testing.T, b []byte) {
		if got := parseCPUInfo(string(b)); got.threads > bytes.Count(b, []byte("\n"))+1 {
			t.Errorf("got more CPUs than lines: %+v", got)
		}
	})
}

func FuzzParseDropFormat(f *testing.F) {
	f.Add([]byte(dropFormat))
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, err := parseDropFormat(b); (err != nil) != (got == nil) {
			t.Errorf("got %v with error %v", got, err)
		}
	})
}

func FuzzParseDropHist(f *testing.F) {
	f.Add([]byte(dropHist))
	f.Fuzz(func(t *testing.T, b []byte) {
		dst := []float64{0, 0, -7}
		if got, err := parseDropHist(b, map[uint64]int{2: 1, 9: 12}, dst); err != nil && got != 0 ||
			dst[2] != -7 {
			t.Errorf("got %v, %v with error %v", got, dst, err)
		}
	})
}
