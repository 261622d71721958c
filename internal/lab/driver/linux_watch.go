package driver

import (
	"bytes"
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

// The sampled files below /proc, and the probes that parse them here afterwards: the series are the same as
// on a node with an agent.
var (
	sampledFiles = []string{"stat", "softirqs", "meminfo", "net/softnet_stat", "net/dev", "net/snmp",
		"net/snmp6",
		"sys/net/netfilter/nf_conntrack_count", "sys/net/netfilter/nf_conntrack_max", "net/stat/nf_conntrack"}
	sampledProbes = []string{"cpu", "softirq", "softnet", "netdev", "snmp", "memory", "conntrack"}
)

// sampler is a single program that keeps running, since starting programs costs a small router most. For each
// line of its input, which lists files below /proc, it appends a sample to the file to: "@", each existing
// file after its name, and ".", which marks the sample as complete. It reads whole files by setting the
// separator RS; mawk reads line by line, since it must be interactive: otherwise it would wait for 4 KiB of
// input.
var sampler = `program='function sample() { print "\n@" >>to; RS = "\001"
for (i = 1; i <= NF; i++) { f = "/proc/" $i; head = "==> " $i " <==\n"
while ((getline s <f) > 0) { print head s >>to; head = "" }
close(f) }
print "." >>to; close(to); RS = "\n" }
{ sample() }'
files="` + strings.Join(sampledFiles, " ") + `"
`

// ownShell continues in the first shell that can wait by itself, by reading from a pipe both of whose
// ends it holds; BusyBox's shell and bash can, dash cannot. Without such a shell, each sample starts sleep.
const ownShell = `nap="read -t $1 x"
for s in sh "busybox sh" bash ""; do echo | $s -c "exec <>/proc/self/fd/0; $nap" 2>/dev/null && break; done
[ -n "$s" ] || { s=sh; nap="sleep $1"; }
export nap; exec $s -c `

// placeScript makes a directory in memory.
const placeScript = `command -v awk >/dev/null || { echo "there is no awk" >&2; exit 69; }
leave() { rm -rf "$d"; }
for t in /dev/shm /run /tmp /var/tmp; do
d=$t/chokepoint-watch-$$; mkdir -m 700 "$d" 2>/dev/null && break; d=; done
[ -n "$d" ] || { echo "no folder can be written" >&2; exit 69; }
`

// loopScript takes the samples. It keeps them in the directory, in two files of $2 samples, the last 5 to 10
// minutes at one a second, and ends when the directory vanishes. The session remains: it counts the lines of
// its input, and removes the directory when its input ends, so that a killed controller leaves nothing. If
// the connection is lost unnoticed, the loop ends when the count has not changed for $3 samples.
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

// sessionScript stays until its input ends.
const sessionScript = `echo "$d $!"; n=0
while read -r line && [ -d "$d" ]; do n=$((n+1)); echo $n >"$d/kept"; done; leave`

// watchScript starts the loop, and the sampler, which the loop triggers. Neither outlives the other.
const watchScript = `lines="-W interactive"; echo | awk $lines 1 >/dev/null 2>&1 || lines=
take() { echo "uptime self/stat $me/stat $files"; }
: | { exec <>/proc/self/fd/0; read me rest </proc/self/stat; loop "$@"; } 2>/dev/null |
awk $lines "$program" to="$d/samples" >/dev/null 2>&1 &
`

// fetchScript returns all samples, and a current one at the end without the process's CPU time. The loop may
// begin a new file between any two commands: each file is given a name that the loop does not use; if one has
// just become the older file, it is looked for under that name.
const fetchScript = `[ -d "$1" ] || { echo "the sampling process has ended" >&2; exit 1; }
mv -f "$1/older" "$1/first" 2>/dev/null
mv -f "$1/samples" "$1/last" 2>/dev/null || mv -f "$1/older" "$1/last" 2>/dev/null
for f in "$1/first" "$1/last"; do [ ! -f "$f" ] || cat "$f"; rm -f "$f"; done; take; echo @`

const (
	beginTime    = 30 * time.Second // a saturated router starts programs slowly
	keptSamples  = 300
	maxColumns   = 8 << 10 // of one probe
	uptimeStepNs = 10e6    // resolution of /proc/uptime
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

// sampled describes sampling by a system's shell: the scripts that start the sampling process, keep it, fetch
// its samples (from the directory $1) and end it (that, and the process $2), the time since boot with its
// resolution, and the conversion of the samples.
type sampled struct {
	start, fetch, finish string
	clock                func(ctx context.Context, h host.Host, dir string) (up, step int64, err error)
	parse                func(text string) []snapshot
	replay               func(ctx context.Context, samples []snapshot, offset int64) (record.NodeData, error)
}

func (x sampled) watch(ctx context.Context, h host.Host, every time.Duration) (Watch, error) {
	w := &shellWatch{sampled: x, host: h}
	seconds := max(1, int64(every/time.Second)) // POSIX has no fractional sleep
	err := w.begin(ctx, x.start, strconv.FormatInt(seconds, 10), strconv.Itoa(keptSamples),
		strconv.FormatInt(max(2, int64((Silence-5*time.Second)/time.Second)/seconds), 10))
	if err == nil {
		if err = w.meet(ctx); err != nil {
			err = errors.Join(err, w.Close(context.WithoutCancel(ctx)))
		}
	}

	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", h.Name(), err)
	}

	return w, nil
}

// shellWatch is the controller's side.
type shellWatch struct {
	sampled
	host     host.Host
	dir, pid string

	session     host.Process    // it stays until its input ends
	input       [2]*os.File     // a kernel pipe, which accepts writes even without a reader
	ended, said <-chan struct{} // its outputs have ended
	once        sync.Once       // ends it
	why         error           // see end

	mu      sync.Mutex
	related // to the router's time since boot
	samples []snapshot
	peers   []taken // from peersScript
}

// begin starts the session and reads where it keeps the samples.
func (w *shellWatch) begin(ctx context.Context, script string, args ...string) error {
	in, out, err := os.Pipe()
	if err != nil {
		return err
	}

	w.input = [2]*os.File{in, out}
	w.session, err = w.host.Start(context.WithoutCancel(ctx), host.Command{
		Path:  "sh",
		Args:  append([]string{"-c", script, "sh"}, args...),
		Stdin: struct{ io.Reader }{in},
	})
	if err != nil {
		return errors.Join(err, in.Close(), out.Close())
	}

	first := make(chan string, 1)
	said := ""
	w.ended = host.Lines(w.session.Stdout(), func(line string) {
		select {
		case first <- line:
		default:
		}
	})
	w.said = host.Lines(w.session.Stderr(), func(line string) { said = cmp.Or(said, line) })
	ctx, cancel := context.WithTimeoutCause(ctx, beginTime, fmt.Errorf("%w: no sampling process within %s",
		host.ErrUnreachable, beginTime))
	defer cancel()
	line := ""
	select {
	case line = <-first:
	case <-w.ended:
		select {
		case line = <-first:
		default:
		}
	case <-ctx.Done():
		_ = w.end(0)
		return context.Cause(ctx)
	}

	if w.dir, w.pid, _ = strings.Cut(line, " "); w.pid != "" {
		return nil
	}

	err = w.end(beginTime)
	code, known := host.ExitCode(err)
	if known && (code == unavailable || code == 127) {
		err = host.ErrUnsupported
	}

	return errors.Join(err, fmt.Errorf("it says %q, want a folder and a process", check.Plain(said)))
}

// Keep implements Watch.
func (w *shellWatch) Keep(context.Context) error {
	select {
	case <-w.ended:
		return fmt.Errorf("keep %s sampled: the session has ended", w.host.Name())
	default:
	}

	_, err := w.input[1].WriteString("\n")
	return err
}

// end gives the session time to end by itself, ends it otherwise, and returns how it ended.
func (w *shellWatch) end(patience time.Duration) error {
	w.once.Do(func() {
		w.input[1].Close()
		select {
		case <-w.ended:
		case <-time.After(patience):
			patience = 0
		}

		if patience == 0 {
			_ = w.session.Kill() // sending it to an ended one has no effect
		}

		<-w.ended
		<-w.said
		_, w.why = w.session.Wait()
		w.input[0].Close()
	})
	return w.why
}

// snapshot is one unparsed sample: texts by name, on Linux of files below /proc.
type snapshot struct {
	at    int64 // the router's time since boot
	cpu   int64 // CPU time of the process and its children, in ns; -1: taken outside the process
	files map[string][]byte
}

func (s snapshot) when() int64 { return s.at }

// peersScript prints, for each of WireGuard's peers, the device, the peer's index, the seconds since the last
// handshake, and bytes received and sent, from nine fields of wg(8)'s dump. The lines of devices, which
// contain their private keys, and all other fields stay on the router.
const peersScript = `PATH=$PATH:/usr/bin:/usr/local/bin; now=$(date +%s)
wg show all dump 2>/dev/null | awk -F '\t' -v now="$now" 'NF == 9 {
print $1, n[$1]++, ($6 > 0 ? now - $6 : "-"), $7, $8 }'; true`

// meet relates the router's clock to ours, and then reads WireGuard's peers.
func (w *shellWatch) meet(ctx context.Context) error {
	var err error
	w.related, err = relate(func() (up, step int64, err error) { return w.clock(ctx, w.host, w.dir) })
	if err != nil {
		return err
	}

	peers, _ := shell(ctx, w.host, peersScript) // what is missing has no value
	w.peers = append(w.peers, taken{host.Monotonic() + w.offset,
		map[string]values{wireguardProbe: readPeers(peers)}})
	w.peers = w.peers[max(0, len(w.peers)-keptSamples):]
	return nil
}

// readPeers parses the output of peersScript into the columns of probe wireguard.
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
		return record.NodeData{}, fmt.Errorf("collect samples of %s: %w", w.host.Name(), err)
	}

	clock, offset := before.until(w.related)
	w.samples = append(w.samples, w.parse(out)...)
	w.samples = between(w.samples, snapshot.when, from+offset, math.MaxInt64) // nobody requests older ones
	d, err := w.replay(ctx, between(w.samples, snapshot.when, from+offset, to+offset), offset)
	peers := between(w.peers, taken.when, from+offset, to+offset)
	d.Samples = append(d.Samples, seriesOf([]source{ofPeers}, peers, offset, "")...)
	d.Clock = clock
	return d, err
}

// Close implements Watch.
func (w *shellWatch) Close(ctx context.Context) error {
	_, err := shell(ctx, w.host, w.finish, w.dir, w.pid)
	_ = w.end(0)
	if err != nil {
		return fmt.Errorf("end the watch of %s: %w", w.host.Name(), err)
	}

	return nil
}

// parseSamples parses what sampler wrote. It leaves out a sample without an end, whose writer was
// interrupted.
func parseSamples(text string) []snapshot {
	var out []snapshot
	for part := range strings.SplitSeq("\n"+text, "\n@\n") {
		body, whole := strings.CutSuffix(strings.TrimRight(part, "\n"), "\n.")
		s := snapshot{cpu: -1, files: map[string][]byte{}}
		up := ""
		for file := range strings.SplitSeq("\n"+body, "\n==> ") {
			name, content, _ := strings.Cut(file, " <==\n")
			switch {
			case name == "uptime":
				up = content
			case slices.Contains(sampledFiles, name): // the names become paths here
				s.files[name] = append(bytes.TrimRight([]byte(content), "\n"), '\n')
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

// parseCPUTime adds up utime, stime, cutime and cstime of /proc/PID/stat, in ticks of 10 ms (proc(5)).
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

// replay lets the probes read the samples one by one, as if the probes ran on the router.
func replay(ctx context.Context, samples []snapshot, offset int64) (d record.NodeData, err error) {
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

			if err := os.WriteFile(path, content, 0o600); err != nil {
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

// take reads a probe once. It drops columns that change at every reading.
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
