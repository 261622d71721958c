package probe

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// drops counts dropped packets by the kernel's reason. The tracepoint skb:kfree_skb feeds a histogram in the
// kernel (Documentation/trace/histogram.rst). A drop therefore costs one lookup, and a sample costs one read.
// The histogram affects the whole machine. It is created only if Options.Trace is set, in a tracing instance
// that Close removes.
func drops(root Root) Probe {
	return Probe{
		Name:  "drops",
		Scope: record.ScopeHost,
		Slow:  true,
		Stems: []record.Metric{
			counter("skb_drops", "count",
				"packets that the kernel dropped since observation began, in total or for one reason "+
					"(NO_SOCKET, NETFILTER_DROP, QDISC_DROP …, see include/net/dropreason.h)"),
		},
		Source: func(o Options) (Sampler, error) {
			if !o.Trace {
				return nil, absent("drop reasons are read by a tracepoint of the whole machine, which is " +
					"switched only in a lab's own guest, and not in an emulated one of several vCPUs, " +
					"which may hang at that; --lab vm --cpus 1 has them")
			}
			return openDrops(root.sys("kernel/tracing"))
		},
	}
}

// dropReason holds the number of a drop reason in the histogram, and its name.
type dropReason struct {
	number uint64
	name   string
}

var errDropFormat = errors.New("parse the format of tracepoint kfree_skb: want __print_symbolic of " +
	"its reason")

// parseDropFormat parses the names of the reasons in events/skb/kfree_skb/format:
// "…__print_symbolic(REC->reason, { 2, "NOT_SPECIFIED" }, …)".
func parseDropFormat(b []byte) ([]dropReason, error) {
	_, rest, ok := bytes.Cut(b, []byte("__print_symbolic(REC->reason"))
	if !ok {
		return nil, errDropFormat
	}

	var out []dropReason
	for {
		_, after, ok := bytes.Cut(rest, []byte("{"))
		pair, next, closed := bytes.Cut(after, []byte("}"))
		if !ok || !closed {
			break
		}

		value, name, _ := strings.Cut(string(pair), ",")
		n, err := strconv.ParseUint(strings.TrimSpace(value), 0, 64)
		name = strings.Trim(name, " \"")
		if err != nil || name == "" || strings.ContainsAny(name, "/ \t\n") {
			return nil, errDropFormat
		}

		out = append(out, dropReason{n, strings.TrimPrefix(name, "SKB_DROP_REASON_")})
		rest = next
	}

	if len(out) == 0 {
		return nil, errDropFormat
	}

	return out, nil
}

// parseDropHist parses histogram lines such as "{ reason: 2 } hitcount: 7". It stores the count of each
// reason in dst[at[reason]] and returns the total over all reasons.
func parseDropHist(b []byte, at map[uint64]int, dst []float64) (total float64, err error) {
	for l := range bytes.Lines(b) {
		open, rest := word(l)
		if string(open) != "{" {
			continue
		}

		key, rest := word(rest)
		value, rest := word(rest)
		end, rest := word(rest)
		stem, rest := word(rest)
		count, _ := word(rest)
		reason, ok1 := number(value)
		hits, ok2 := number(count)
		if string(key) != "reason:" || string(end) != "}" || string(stem) != "hitcount:" || !ok1 || !ok2 {
			return 0, errors.New("parse histogram of drops: want lines of a reason and its hitcount")
		}

		total += float64(hits)
		if i, ok := at[reason]; ok && i < len(dst) {
			dst[i] = float64(hits)
		}
	}
	return total, nil
}

// dropsSampler uses a separate tracing instance (Documentation/trace/ftrace.rst). Removing the instance
// removes all its settings and does not affect other tracing.
type dropsSampler struct {
	columns
	dir  string // directory of the instance, or ""
	hist *file
	at   map[uint64]int // indexes of the columns by reason
}

const dropEvent = "/events/skb/kfree_skb/"

func openDrops(tracing string) (Sampler, error) {
	path := tracing + dropEvent + "format"
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, absent("%s does not exist: the kernel has no tracepoint for drops, or tracefs is not "+
			"mounted", path)
	}

	if err != nil {
		return nil, err
	}

	reasons, err := parseDropFormat(text)
	if err != nil {
		return nil, absent("this kernel does not report why it drops packets (since Linux 5.17): %v", err)
	}

	s := &dropsSampler{at: map[uint64]int{}, columns: columns{"skb_drops"}}
	for _, r := range reasons {
		s.at[r.number] = len(s.columns)
		s.columns = append(s.columns, r.name+"/skb_drops")
	}

	if err := s.instantiate(tracing + "/instances"); err != nil {
		return s, err
	}

	s.hist, err = openFile(s.dir+dropEvent+"hist",
		"the kernel has no histograms of events (CONFIG_HIST_TRIGGERS)")
	if err == nil {
		err = s.write(dropEvent+"trigger", "hist:keys=reason:size=512")
	}

	return s, err
}

const instanceName = "chokepoint."

// instantiate creates an instance named after this process, and removes instances of processes that no
// longer exist.
func (s *dropsSampler) instantiate(all string) (err error) {
	for _, left := range matches(filepath.Join(all, instanceName+"*")) {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(left), instanceName), ".")
		if _, err := os.Stat("/proc/" + pid); errors.Is(err, fs.ErrNotExist) {
			os.Remove(left)
		}
	}

	s.dir, err = os.MkdirTemp(all, instanceName+strconv.Itoa(os.Getpid())+".*")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return absent("make tracing instance: %v", err)
	}

	if err != nil {
		return fmt.Errorf("make tracing instance: %w", err)
	}

	return s.write("/buffer_size_kb", "4") // minimum, because the ring buffer is not used
}

// write writes text to a file of the instance.
func (s *dropsSampler) write(name, text string) error {
	f, err := os.OpenFile(s.dir+name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}

	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// Sample reads the histogram. A reason that is not in the histogram has not occurred.
func (s *dropsSampler) Sample(dst []float64) error {
	b, err := s.hist.read()
	if err != nil {
		return err
	}

	fill(dst, 0)
	dst[0], err = parseDropHist(b, s.at, dst)
	return err
}

// Close removes the instance and its settings.
func (s *dropsSampler) Close() error {
	if s.dir == "" {
		return nil
	}

	err := errors.Join(s.hist.Close(), s.write(dropEvent+"trigger", "!hist:keys=reason:size=512"))
	removed := os.Remove(s.dir)
	if removed != nil {
		err = errors.Join(err, fmt.Errorf("remove tracing instance: %w", removed))
	}

	return err
}
