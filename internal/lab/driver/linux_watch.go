package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// sampledFiles lists the files in /proc to sample. sampledProbes lists the probes that parse them on the
// controller, so that the series equal those of a node with an agent.
var (
	sampledFiles = []string{"stat", "softirqs", "meminfo", "net/softnet_stat", "net/dev", "net/snmp",
		"net/snmp6",
		"sys/net/netfilter/nf_conntrack_count", "sys/net/netfilter/nf_conntrack_max", "net/stat/nf_conntrack"}
	sampledProbes = []string{"cpu", "softirq", "softnet", "netdev", "snmp", "memory", "conntrack"}
)

// sampler is an awk program that runs during the whole measurement, because starting a program for each
// sample would take most of the CPU time of a small router. Each line of its input lists files in /proc. For
// each line, it appends a sample to the file that its variable "to" names. A sample consists of "@", the name
// and content of each file, and "." if the sample is complete. The program changes RS in order to read whole
// files. mawk requires "-W interactive" to process each input line at once; otherwise, it would wait for 4
// KiB of input.
var sampler = `program='function sample() { print "\n@" >>to; RS = "\001"
for (i = 1; i <= NF; i++) { f = "/proc/" $i; head = "==> " $i " <==\n"
while ((getline s <f) > 0) { print head s >>to; head = "" }
close(f) }
print "." >>to; close(to); RS = "\n" }
{ sample() }'
files="` + strings.Join(sampledFiles, " ") + `"
`

// ownShell continues the script in the first shell that can pause without starting a program. Such a shell
// supports "read -t" from a pipe whose two ends the shell itself holds open. The shells of BusyBox and bash
// support it; dash does not. Without such a shell, the script starts the program sleep for each sample.
const ownShell = `nap="read -t $1 x"
for s in sh "busybox sh" bash ""; do echo | $s -c "exec <>/proc/self/fd/0; $nap" 2>/dev/null && break; done
[ -n "$s" ] || { s=sh; nap="sleep $1"; }
export nap; exec $s -c `

// placeScript creates a private directory, if possible in memory.
const placeScript = `command -v awk >/dev/null || { echo "there is no awk" >&2; exit 69; }
leave() { rm -rf "$d"; }
for t in /dev/shm /run /tmp /var/tmp; do
d=$t/chokepoint-watch-$$; mkdir -m 700 "$d" 2>/dev/null && break; d=; done
[ -n "$d" ] || { echo "no folder can be written" >&2; exit 69; }
`

// loopScript takes a sample after each pause, and stores the samples in two files of up to $2 samples each.
// At one sample per second, the files cover the last 5 to 10 minutes. The loop ends when the directory is
// removed. sessionScript counts the lines of its input, and removes the directory when its input ends, so
// nothing remains if the controller is killed. If the connection is lost unnoticed, the count stops changing,
// and the loop ends after $3 more samples.
const loopScript = `trap '' HUP PIPE; echo 0 >"$d/kept"
loop() { n=0; still=0; was=
while [ -d "$d" ] && [ $still -lt "$3" ]; do
[ -f "$d/samples" ] || n=0
take || break; n=$((n+1))
[ $n -lt "$2" ] || { mv -f "$d/samples" "$d/older"; n=0; }
is=; read is <"$d/kept"
if [ "$is" = "$was" ]; then still=$((still+1)); else still=0; was=$is; fi
$nap; done; leave; }
`

// sessionScript runs until its standard input ends.
const sessionScript = `echo "$d $!"; n=0
while read -r line && [ -d "$d" ]; do n=$((n+1)); echo $n >"$d/kept"; done; leave`

// watchScript starts the loop and the sampler, which the loop triggers through a pipe. If one of them ends,
// so does the other.
const watchScript = `lines="-W interactive"; echo | awk $lines 1 >/dev/null 2>&1 || lines=
take() { echo "uptime self/stat $me/stat $files"; }
: | { exec <>/proc/self/fd/0; read me rest </proc/self/stat; loop "$@"; } 2>/dev/null |
awk $lines "$program" to="$d/samples" >/dev/null 2>&1 &
`

// fetchScript prints all stored samples and then a current one, which lacks the CPU time of the sampling
// process. Because the loop may start a new file at any time, the script first renames each file to a name
// that the loop does not use. If the loop has just renamed the newer file, the script renames the older one.
const fetchScript = `[ -d "$1" ] || { echo "the sampling process has ended" >&2; exit 1; }
mv -f "$1/older" "$1/first" 2>/dev/null
mv -f "$1/samples" "$1/last" 2>/dev/null || mv -f "$1/older" "$1/last" 2>/dev/null
for f in "$1/first" "$1/last"; do [ ! -f "$f" ] || cat "$f"; rm -f "$f"; done; take; echo @`

const (
	beginTime    = 30 * time.Second // long because a saturated router starts programs slowly
	keptSamples  = 300
	maxColumns   = 8 << 10 // maximum number of columns per probe
	uptimeStepNs = 10e6    // resolution of /proc/uptime in ns
)

// Watch implements Sampling.
func (Linux) Watch(ctx context.Context, h host.Host, every time.Duration) (Watch, error) {
	return linuxSampling().watch(ctx, h, every)
}

func linuxSampling() sampled {
	session := sampler + placeScript + loopScript + watchScript + sessionScript
	const now = `take() { echo "uptime $files" | awk "$program" to=/dev/stdout; }` + "\n"
	return sampled{
		start:  ownShell + host.Quote(session) + ` sh "$@"`,
		fetch:  sampler + now + fetchScript,
		finish: `rm -rf "$1"; kill "$2" 2>/dev/null; true`,
		clock:  readUptime,
		parse:  parseSamples,
		replay: replay,
	}
}

// sampled describes how shell scripts sample a router. start starts the sampling process. fetch prints the
// samples that are stored in directory $1. finish removes the directory and kills process $2. clock returns
// the time since boot and its resolution in ns. parse and replay convert the samples.
type sampled struct {
	start, fetch, finish string
	clock                func(ctx context.Context, h host.Host, dir string) (up, step int64, err error)
	parse                func(text string) []snapshot
	replay               func(samples []snapshot, offset int64) (record.NodeData, error)
}

func (x sampled) watch(ctx context.Context, h host.Host, every time.Duration) (Watch, error) {
	w := &shellWatch{sampled: x, watching: watching{host: h}}
	seconds := max(1, int64(every/time.Second)) // because sleep(1) in POSIX accepts no fractions
	err := w.begin(ctx, x.start, strconv.FormatInt(seconds, 10), strconv.Itoa(keptSamples),
		strconv.FormatInt(max(2, int64((Silence-5*time.Second)/time.Second)/seconds), 10))
	if err == nil {
		if err = w.meet(ctx); err != nil {
			err = errors.Join(err, w.Close(context.WithoutCancel(ctx)))
		}
	}

	if err != nil {
		return nil, failed(h, "watch", err)
	}

	return w, nil
}

// watching is what the watches of all systems have in common.
type watching struct {
	host        host.Host
	process     host.Process    // samples, or keeps the sampling process running
	ended, said <-chan struct{} // closed when the outputs of process have ended
	once        sync.Once       // used to end process
	why         error           // error with which process ended

	mu      sync.Mutex
	related         // offset from our clock to the router's clock
	peers   []taken // WireGuard peers, read only before and after a trial
}

// wait waits until the process has ended.
func (w *watching) wait() {
	<-w.ended
	<-w.said
	_, w.why = w.process.Wait()
}

// met stores the result of a comparison of the clocks, and the WireGuard peers that were read after it.
func (w *watching) met(now related, peers values) {
	w.related = now
	w.peers = append(w.peers, taken{host.Monotonic() + now.offset, map[string]values{wireguardProbe: peers}})
	w.peers = w.peers[max(0, len(w.peers)-keptSamples):]
}

// shellWatch is the controller's side of a sampling process.
type shellWatch struct {
	sampled
	watching // its process runs until its input ends
	dir, pid string
	input    [2]*os.File // an OS pipe, because a write to it does not block even if nothing reads
	samples  []snapshot
}

// begin starts the session and waits for the line that contains the directory and process ID.
func (w *shellWatch) begin(ctx context.Context, script string, args ...string) error {
	in, out, err := os.Pipe()
	if err != nil {
		return err
	}

	w.input = [2]*os.File{in, out}
	w.process, err = w.host.Start(context.WithoutCancel(ctx), host.Command{
		Path:  "sh",
		Args:  append([]string{"-c", script, "sh"}, args...),
		Stdin: struct{ io.Reader }{in},
	})
	if err != nil {
		return errors.Join(err, in.Close(), out.Close())
	}

	first := make(chan struct{})
	place := ""
	said := ""
	w.ended = host.Lines(w.process.Stdout(), func(line string) {
		if place == "" && line != "" {
			place = line
			close(first)
		}
	})
	w.said = host.Lines(w.process.Stderr(), func(line string) { said = cmp.Or(said, line) })
	ctx, cancel := context.WithTimeoutCause(ctx, beginTime, fmt.Errorf("%w: no sampling process within %s",
		host.ErrUnreachable, beginTime))
	defer cancel()
	select {
	case <-first:
	case <-w.ended:
	case <-ctx.Done():
		_ = w.end(0)
		return context.Cause(ctx)
	}

	if w.dir, w.pid, _ = strings.Cut(place, " "); w.pid != "" {
		return nil
	}

	err = w.end(beginTime)
	if isUnavailable(err) {
		err = host.ErrUnsupported
	}

	return errors.Join(err, fmt.Errorf("it says %q, want a folder and a process", check.Plain(said)))
}

// Keep implements Watch.
func (w *shellWatch) Keep(context.Context) error {
	select {
	case <-w.ended:
		return failed(w.host, "keep sampling", errors.New("the session has ended"))
	default:
	}

	_, err := w.input[1].WriteString("\n")
	return err
}

// end closes the session's input and waits until the session ends. If this takes longer than patience, it
// kills the session. It returns the error with which the session ended.
func (w *shellWatch) end(patience time.Duration) error {
	w.once.Do(func() {
		w.input[1].Close()
		select {
		case <-w.ended:
		case <-time.After(patience):
			_ = w.process.Kill() // no effect on an ended session
		}

		w.wait()
		w.input[0].Close()
	})
	return w.why
}

// snapshot is an unparsed sample. It holds texts by name; on Linux, the names are those of files in /proc.
type snapshot struct {
	at    int64 // time since the router's boot in ns
	cpu   int64 // CPU time of the sampling process and its children in ns; -1 if another process took it
	files map[string]string
}

func (s snapshot) when() int64 { return s.at }

// peersScript prints, for each WireGuard peer, the device, the index of the peer, the seconds since the last
// handshake, and the bytes received and sent. It takes them from the lines with nine fields in the output of
// "wg show all dump". It does not print the lines of devices, which contain private keys.
const peersScript = `PATH=$PATH:/usr/bin:/usr/local/bin; now=$(date +%s)
wg show all dump 2>/dev/null | awk -F '\t' -v now="$now" 'NF == 9 {
print $1, n[$1]++, ($6 > 0 ? now - $6 : "-"), $7, $8 }'; true`

// meet measures the offset of the router's clock and reads the WireGuard peers.
func (w *shellWatch) meet(ctx context.Context) error {
	now, err := relate(func() (up, step int64, err error) { return w.clock(ctx, w.host, w.dir) })
	if err != nil {
		return err
	}

	peers, _ := shell(ctx, w.host, peersScript) // error ignored: values may be missing
	w.met(now, readPeers(peers))
	return nil
}

// readPeers parses the output of peersScript into columns of probe wireguard.
func readPeers(text string) values {
	out := values{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) != 5 || !deviceLike(words[0]) || len(out) >= 3*maxDevices {
			continue
		}

		number, err := strconv.ParseUint(words[1], 10, 16)
		if err != nil {
			continue
		}

		peer := fmt.Sprintf("%s.peer%d/", words[0], number)
		out.put(peer+"handshake_age_ns", words[2], 1e9)
		out.put(peer+"rx_bytes", words[3], 1)
		out.put(peer+"tx_bytes", words[4], 1)
	}
	return out
}

func readUptime(ctx context.Context, h host.Host, _ string) (up, step int64, err error) {
	b, err := h.ReadFile(ctx, "/proc/uptime")
	if err == nil {
		up, err = parseUptime(string(b))
	}
	return up, uptimeStepNs, err
}

func parseUptime(text string) (int64, error) {
	first, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	s, err := strconv.ParseFloat(first, 64)
	if err != nil || s < 0 || s > 1e10 {
		return 0, fmt.Errorf("/proc/uptime contains %q", text)
	}

	return int64(math.Round(s*100)) * uptimeStepNs, nil
}

// Collect implements Watch.
func (w *shellWatch) Collect(ctx context.Context, from, to int64) (record.NodeData, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.related
	out, err := shell(ctx, w.host, w.fetch, w.dir)
	if err == nil {
		err = w.meet(ctx)
	}

	if err != nil {
		return record.NodeData{}, failed(w.host, "collect samples", err)
	}

	clock, offset := before.until(w.related)
	w.samples = append(w.samples, w.parse(out)...)
	w.samples = between(w.samples, from+offset, math.MaxInt64) // drop samples that are too old
	d, err := w.replay(between(w.samples, from+offset, to+offset), offset)
	peers := between(w.peers, from+offset, to+offset)
	d.Samples = append(d.Samples, seriesOf([]source{ofPeers}, peers, offset, "")...)
	d.Clock = clock
	return d, err
}

// Close implements Watch.
func (w *shellWatch) Close(ctx context.Context) error {
	_, err := shell(ctx, w.host, w.finish, w.dir, w.pid)
	_ = w.end(0)
	return failed(w.host, "end the watch", err)
}

// parseSamples parses the output of sampler and skips incomplete samples.
func parseSamples(text string) []snapshot {
	var out []snapshot
	for part := range strings.SplitSeq("\n"+text, "\n@\n") {
		body, whole := strings.CutSuffix(strings.TrimRight(part, "\n"), "\n.")
		s := snapshot{cpu: -1, files: map[string]string{}}
		up := ""
		for file := range strings.SplitSeq("\n"+body, "\n==> ") {
			name, content, _ := strings.Cut(file, " <==\n")
			switch {
			case name == "uptime":
				up = content
			case slices.Contains(sampledFiles, name): // only known names, because replay uses them as paths
				s.files[name] = strings.TrimRight(content, "\n") + "\n"
			case strings.HasSuffix(name, "/stat"):
				s.cpu = max(0, s.cpu) + parseCPUTime(content)
			}
		}

		var err error
		if s.at, err = parseUptime(up); whole && err == nil && (len(out) == 0 || s.at > out[len(out)-1].at) {
			out = append(out, s)
		}
	}
	return out
}

// parseCPUTime returns the sum of utime, stime, cutime and cstime in /proc/PID/stat (proc(5)), in ns. It
// assumes ticks of 10 ms.
func parseCPUTime(stat string) int64 {
	_, rest, _ := strings.Cut(stat, ") ")
	words := strings.Fields(rest)
	sum := int64(0)
	for i := 11; i < 15 && i < len(words); i++ {
		n, _ := strconv.ParseInt(words[i], 10, 64) // 0 if it is not a number
		sum += n
	}

	return sum * 10e6
}

// replay writes the samples to a directory one after another, and runs the probes on this directory as they
// would run on the router.
func replay(samples []snapshot, offset int64) (d record.NodeData, err error) {
	dir, err := os.MkdirTemp("", "chokepoint-samples-")
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	root := probe.Root{Proc: dir, Sys: filepath.Join(dir, "none"), Dev: filepath.Join(dir, "none")}
	put := func(s snapshot) error {
		for name, content := range s.files {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				return err
			}

			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				return err
			}
		}
		return nil
	}
	if len(samples) > 0 {
		if err := put(samples[0]); err != nil {
			return d, err
		}
	}

	probes := slices.DeleteFunc(probe.All(root), func(p probe.Probe) bool {
		return !slices.Contains(sampledProbes, p.Name)
	})
	open := map[string]probe.Sampler{}
	why := map[string]string{}
	for _, p := range probes {
		sampler, err := p.Open(probe.Options{})
		if err != nil {
			why[p.Name] = strings.ReplaceAll(err.Error(), dir, "/proc")
			continue
		}
		defer sampler.Close()
		open[p.Name] = sampler
	}

	all := make([]taken, len(samples))
	for i, s := range samples {
		if err := put(s); err != nil {
			return d, err
		}

		all[i] = taken{s.at, map[string]values{}}
		for name, sampler := range open {
			v, err := take(sampler)
			if err != nil {
				why[name] = err.Error()
			}

			all[i].probes[name] = v
		}
	}

	for _, p := range probes {
		d.Samples = append(d.Samples, series(p, all, offset, why[p.Name]))
	}

	d.Cost = costOf("driver linux", samples)
	return d, nil
}

// take reads a sample from a probe. It gives up if the columns change in every attempt.
func take(sampler probe.Sampler) (values, error) {
	err := probe.ErrColumns
	for tries := 0; tries < 3 && errors.Is(err, probe.ErrColumns); tries++ {
		names := sampler.Columns()
		row := make([]float64, len(names))
		if err = sampler.Sample(row); err == nil {
			out := values{}
			for i, name := range names {
				out[name] = row[i]
			}
			return out, nil
		}
	}
	return nil, err
}
