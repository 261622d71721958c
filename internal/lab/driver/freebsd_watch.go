package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// bsdClock prints the time of day and the boot time. Setting the clock changes both by the same amount
// (time(9)), so their difference is always the time since boot. The time of day is the modification time of a
// file, with the resolution of vfs.timestamp_precision, because date(1) in FreeBSD 14.0 prints only seconds.
const bsdClock = ownPath + `clock() { echo >"$d/now"; stat -f '@ %Fm' "$d/now"; sysctl -n kern.boottime; }
`

// bsdSampler defines a shell function that takes a sample: the clock, the CPU time of the process (times),
// and the outputs of commands, each after its name. It reads temperatures only in every fifth sample, because
// sensors are slow. If the processor controls the frequency, there is a single level, and the kernel measures
// the frequency for 1 ms with interrupts disabled (cpu_est_clockrate). In this case, the function also reads
// the frequency only in every fifth sample. If a device driver sets the frequency, reading it is cheap.
const bsdSampler = bsdClock + `case $(sysctl -n dev.cpu.0.freq_levels 2>/dev/null) in
*' '*) freq="dev.cpu.0.freq dev.cpu.0.freq_levels";; *) freq=;; esac
sample() { clock
if [ -z "$once" ]; then times; else echo -; echo -; fi; echo "==> sysctl <=="
sysctl -i kern.clockrate kern.cp_times hw.physmem hw.pagesize vm.stats.vm.v_free_count $freq
[ $((n%5)) -ne 0 ] || sysctl -i dev.cpu hw.acpi.thermal | grep -e 'cpu\.0\.freq' -e temperature
echo "==> netstat <=="; ` + netstatDevices + `
echo "==> netisr <=="; netstat -Q
echo "==> pf <=="; pfctl -si; pfctl -sm
echo "==> threads <=="; ps -H -o tdname= -o time= -p 0 | grep tqg_; } 2>/dev/null
`

// bsdPlace creates a private directory. FreeBSD may have no directory in memory, so bsdPlace mounts a tmpfs
// on the directory if possible. Otherwise, the directory is on disk.
const bsdPlace = `umask 077; leave() { umount -f "$d" 2>/dev/null; rm -rf "$d"; }
for t in /var/run /tmp /var/tmp; do
d=$(mktemp -d "$t/chokepoint-watch-XXXXXXXXXX" 2>/dev/null) && break; d=; done
[ -n "$d" ] || { echo "no folder can be written" >&2; exit 69; }
mount -t tmpfs -o size=64m,mode=700 tmpfs "$d" 2>/dev/null
`

const bsdLoop = `take() { sample >>"$d/samples"; true; }; nap="sleep $1"
loop "$@" </dev/null >/dev/null 2>&1 &
`

// Watch implements Sampling.
func (FreeBSD) Watch(ctx context.Context, h host.Host, every time.Duration) (Watch, error) {
	return sampled{
		start:  bsdSampler + bsdPlace + loopScript + bsdLoop + sessionScript,
		fetch:  bsdSampler + "d=$1; once=-; take() { sample; }\n" + fetchScript,
		finish: `kill "$2" 2>/dev/null; umount -f "$1" 2>/dev/null; rm -rf "$1"`,
		clock:  readBSDClock,
		parse:  parseBSDSamples,
		replay: bsdSeries,
	}.watch(ctx, h, every)
}

func readBSDClock(ctx context.Context, h host.Host, dir string) (up, step int64, err error) {
	out, err := shell(ctx, h, bsdClock+"d=$1; clock; sysctl -n vfs.timestamp_precision", dir)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if err == nil && len(lines) != 3 {
		err = fmt.Errorf("it printed %q, want the time, the boot time and a precision", told(out))
	}

	if err != nil {
		return 0, 0, err
	}

	// These are the resolutions in ns by vfs.timestamp_precision; see vfs_timestamp(9).
	step = map[string]int64{"0": 1e9, "1": 10e6}[strings.TrimSpace(lines[2])]
	up, err = parseBSDClock(strings.TrimPrefix(lines[0], "@ "), lines[1])
	return up, max(step, 1e3), err
}

// parseBSDClock returns the time since boot in ns, given a time such as "1785657600.123456789" and
// kern.boottime such as "{ sec = 1785650000, usec = 654321 } Sun …".
func parseBSDClock(now, boot string) (up int64, err error) {
	var s, us uint32
	if _, err := fmt.Sscanf(boot, "{ sec = %d, usec = %d }", &s, &us); err != nil {
		return 0, fmt.Errorf("kern.boottime is %q", told(boot))
	}

	since := int64(s)*1e9 + int64(us)*1e3
	at, err := bsdSeconds(strings.TrimSpace(now))
	if err == nil && at < since {
		err = errors.New("the clock is behind the time of booting")
	}

	return at - since, err
}

// bsdSeconds parses a decimal number of seconds and returns nanoseconds.
func bsdSeconds(text string) (int64, error) {
	whole, fraction, _ := strings.Cut(text, ".")
	s, err := strconv.ParseUint(whole, 10, 33)
	ns, err2 := strconv.ParseUint((fraction + "000000000")[:9], 10, 32)
	if err != nil || err2 != nil {
		return 0, fmt.Errorf("%q is no time", told(text))
	}

	return int64(s)*1e9 + int64(ns), nil
}

// parseBSDSamples parses the output of several samples. It skips incomplete samples. It also skips the first
// sample after the clock was set, in which the boot time differs from that in the previous sample.
func parseBSDSamples(text string) (out []snapshot) {
	before := ""
	for part := range strings.SplitSeq("\n"+text, "\n@") {
		lines := strings.SplitN(part, "\n", 5)
		if len(lines) < 5 {
			continue
		}

		at, err := parseBSDClock(lines[0], lines[1])
		set := before != "" && before != lines[1]
		before = lines[1]
		if err != nil || set || len(out) > 0 && at <= out[len(out)-1].at {
			continue
		}

		s := snapshot{at: at, cpu: parseTimes(lines[2]) + parseTimes(lines[3]), files: map[string]string{}}
		if lines[2] == "-" { // a process that fetches samples took this sample
			s.cpu = -1
		}

		for section := range strings.SplitSeq("\n"+lines[4], "\n==> ") {
			if name, content, ok := strings.Cut(section, " <==\n"); ok {
				s.files[name] = content
			}
		}

		out = append(out, s)
	}
	return out
}

// parseTimes returns the sum in ns of the times in a line that the shell command times prints, such as
// "0m1.23s 0m0.45s".
func parseTimes(line string) (sum int64) {
	for _, word := range strings.Fields(line) {
		minutes, rest, _ := strings.Cut(word, "m")
		m, err := strconv.ParseUint(minutes, 10, 32)
		s, err2 := bsdSeconds(strings.TrimSuffix(rest, "s"))
		if err == nil && err2 == nil {
			sum += int64(m)*60e9 + s
		}
	}
	return sum
}

// bsdSample is a snapshot with parsed outputs.
type bsdSample struct {
	snapshot
	sysctl  map[string]string
	threads map[string]int64 // CPU time of each kernel thread in ns, by thread name
}

// bsdSources lists the probes that FreeBSD supports. FreeBSD has no softirqs. The thread that serves a core's
// network queues does the work of a softirq, so its CPU time is reported as softirq time, apart from other
// work of the kernel.
var bsdSources = []source{
	{"cpu", "time of the core in this state, from kern.cp_times; softirq_ns is that of the thread " +
		"if_io_tqg_N, and system_ns that of the rest", "sysctl has no kern.cp_times", readCPTimes},
	{"softnet", "of the core's netisr queues, where a packet counts once for each protocol, from netstat -Q",
		"netstat -Q prints nothing", readNetisr},
	{"netdev", "of the device, from netstat -i", "netstat -i prints nothing", readBSDDevices},
	{"conntrack", "states of pf: those now, their limit, packets dropped because there was no room for one " +
		"(memory), and states that were there already (state-insert)",
		"pf is not in use, or not for this user", readPFInfo},
	{"memory", "from hw.physmem and vm.stats.vm.v_free_count", "sysctl reports no memory", readBSDMemory},
	{"cpufreq", "from dev.cpu.0.freq and freq_levels, as set, or measured where the processor chooses it",
		"sysctl has no dev.cpu.0.freq", readBSDFreq},
	{"thermal", "of a core or zone, from sysctl",
		"sysctl reports no temperature; coretemp or amdtemp is not loaded", readBSDThermal},
	{"kthreads", "CPU time of the threads wg_tqg_N, which encrypt for WireGuard", "no such threads run",
		readWGThreads},
}

// bsdSeries converts samples to series of the probes.
func bsdSeries(samples []snapshot, offset int64) (d record.NodeData, err error) {
	all := make([]taken, len(samples))
	for i, s := range samples {
		sample := bsdSample{s, parseSysctl(s.files["sysctl"]), parseThreads(s.files["threads"])}
		all[i] = taken{s.at, map[string]values{}}
		for _, x := range bsdSources {
			all[i].probes[x.probe] = x.read(sample)
		}
	}

	d.Samples = seriesOf(bsdSources, all, offset, "")
	d.Cost = costOf("driver freebsd", samples)
	return d, nil
}

// parseSysctl parses lines of the form "name: value".
func parseSysctl(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			out[name] = value
		}
	}
	return out
}

// parseThreads parses lines that contain a thread's name and its CPU time in minutes and seconds, as printed
// by ps(1), such as "if_io_tqg_0 12:34.56". It returns the CPU times in ns.
func parseThreads(text string) map[string]int64 {
	out := map[string]int64{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) != 2 {
			continue
		}

		minutes, rest, ok := strings.Cut(words[1], ":")
		m, err := strconv.ParseUint(minutes, 10, 32)
		s, err2 := bsdSeconds(rest)
		if ok && err == nil && err2 == nil {
			out[words[0]] = int64(m)*60e9 + s
		}
	}
	return out
}

// maxCores is the maximum number of cores for which a router's data is read.
const maxCores = 1024

// readCPTimes parses kern.cp_times, which contains five counters for each core: user, nice, sys, intr and
// idle, in ticks of the statistics clock (sys/sys/resource.h). It skips cores whose counters are all zero,
// because these cores do not exist.
func readCPTimes(s bsdSample) values {
	_, rest, _ := strings.Cut(s.sysctl["kern.clockrate"], "stathz = ")
	hz, err := strconv.ParseUint(strings.Trim(rest, " }"), 10, 32)
	words := strings.Fields(s.sysctl["kern.cp_times"])
	if err != nil || hz == 0 || len(words)%5 != 0 || len(words) > 5*maxCores {
		return nil
	}

	out := values{}
	all := true // whether all cores have an if_io_tqg thread
	for i := 0; i < len(words); i += 5 {
		if strings.Join(words[i:i+5], "") == "00000" {
			continue
		}

		core := map[string]float64{}
		for j, name := range []string{"user_ns", "nice_ns", "system_ns", "irq_ns", "idle_ns"} {
			n, err := strconv.ParseUint(words[i+j], 10, 64)
			if err != nil {
				return nil
			}

			core[name] = float64(n) * 1e9 / float64(hz)
		}

		moved, known := s.threads["if_io_tqg_"+strconv.Itoa(i/5)]
		if known {
			core["softirq_ns"] = float64(moved)
			core["system_ns"] = max(0, core["system_ns"]-float64(moved))
		}

		all = all && known
		for name, ns := range core {
			out["cpu"+strconv.Itoa(i/5)+"/"+name] = ns
			out["cpu/"+name] += ns
		}
	}

	if !all {
		delete(out, "cpu/softirq_ns")
	}

	return out
}

// readNetisr adds up the counters of all protocols in each core's workstream, as printed by netstat -Q. The
// columns are "WSID CPU Name Len WMark Disp'd HDisp'd QDrops Queued Handled". The first two are missing in
// lines where they would repeat those of the previous line.
func readNetisr(s bsdSample) values {
	_, rows, _ := strings.Cut(s.files["netisr"], "\nWorkstreams:")
	out := values{}
	cpu := ""
	for line := range strings.Lines(rows) {
		words := strings.Fields(line)
		if len(words) == 10 {
			n, err := strconv.ParseUint(words[1], 10, 16)
			if err != nil || n >= maxCores {
				continue // skip the heading
			}

			cpu = "cpu" + strconv.FormatUint(n, 10)
			words = words[2:]
		}

		if len(words) != 8 || cpu == "" {
			continue
		}

		for column, at := range map[string]int{"processed": 7, "dropped": 5, "backlog": 1} {
			if v, err := strconv.ParseUint(words[at], 10, 64); err == nil {
				out["cpu/"+column] += float64(v)
				out[cpu+"/"+column] += float64(v)
			}
		}
	}

	return out
}

// maxDevices is the maximum number of devices for which counters are recorded.
const maxDevices = 256

func readBSDDevices(s bsdSample) values {
	out := values{}
	all := parseNetstat(s.files["netstat"])
	for i, name := range slices.Sorted(maps.Keys(all)) {
		if i == maxDevices || strings.HasPrefix(name, "lo") {
			continue
		}

		for counter, n := range all[name] {
			out[name+"/"+counter] = float64(n)
		}
	}

	return out
}

// readPFInfo parses the output of pfctl -si and -sm. The counter "memory" is the number of packets dropped
// because there was no memory for a state (pf(4), PFRES_MEMORY).
func readPFInfo(s bsdSample) values {
	out := values{}
	for line := range strings.Lines(s.files["pf"]) {
		text := strings.Join(strings.Fields(line), " ")
		for begin, column := range map[string]string{"current entries ": "entries",
			"states hard limit ": "max", "memory ": "drop", "state-insert ": "insert_failed"} {
			_, twice := out[column]
			if rest, ok := strings.CutPrefix(text, begin); ok && !twice {
				n, _, _ := strings.Cut(rest, " ")
				out.put(column, n, 1)
			}
		}
	}
	return out
}

func readBSDMemory(s bsdSample) values {
	out := values{}
	out.put("total_bytes", s.sysctl["hw.physmem"], 1)
	size, err := strconv.ParseUint(s.sysctl["hw.pagesize"], 10, 64)
	if err == nil {
		out.put("free_bytes", s.sysctl["vm.stats.vm.v_free_count"], float64(size))
	}

	return out
}

func readBSDFreq(s bsdSample) values {
	out := values{}
	out.put("policy0/frequency_hz", s.sysctl["dev.cpu.0.freq"], 1e6)
	levels := parseBSDLevels(s.sysctl["dev.cpu.0.freq_levels"])
	if len(levels) > 0 {
		out["policy0/hardware_limit_hz"] = float64(levels[0]) * 1e6
	}

	return out
}

// bsdSensor returns a short name for a sensor whose sysctl is, for example, "dev.cpu.0",
// "hw.acpi.thermal.tz0" or "dev.amdtemp.0.core0.sensor0".
func bsdSensor(sysctl string) string {
	return strings.NewReplacer("dev.", "", "hw.acpi.thermal.", "", "hw.acpi.", "", "amdtemp", "amd",
		"sensor", "s", ".", "").Replace(sysctl)
}

// readBSDThermal parses temperatures such as "dev.cpu.0.temperature: 45.0C" and
// "hw.acpi.thermal.tz0.temperature: 27.9C".
func readBSDThermal(s bsdSample) values {
	out := values{}
	for name, value := range s.sysctl {
		rest, ok := strings.CutSuffix(name, ".temperature")
		label := bsdSensor(rest)
		c, err := strconv.ParseFloat(strings.TrimSuffix(value, "C"), 64)
		if ok && err == nil && c > 0 && c < 200 && deviceLike(label) && len(out) < maxCores {
			out[label+"/temperature_c"] = c
		}
	}
	return out
}

func readWGThreads(s bsdSample) values {
	out := values{}
	for name, ns := range s.threads {
		if strings.HasPrefix(name, "wg_tqg_") {
			out["wg-crypt/kthread_cpu_ns"] += float64(ns)
		}
	}
	return out
}
