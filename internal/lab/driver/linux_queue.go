package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/qdisc"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// deviceQueues lists the default queues of devices. They have no parameters.
var deviceQueues = []string{"noqueue", "mq", "pfifo_fast"}

// spokenQueues lists the kinds of queues that can be restored from the output of tc. It includes neither htb,
// which has classes, nor netem.
var spokenQueues = []string{"pfifo", "bfifo", "tbf", "sfq", "codel", "fq_codel", "fq", "cake"}

// queueOf parses a queue in tc's output.
func queueOf(kind string, words []string) (qdisc.Queue, error) {
	if !spoken(kind) {
		return qdisc.Queue{}, fmt.Errorf("driver linux does not speak of queue %s", kind)
	}

	parameters, _ := qdisc.Parameters(kind)
	all, err := qdisc.Parse(kind + " " + strings.Join(queueWords(parameters, words), " "))
	if err != nil {
		return qdisc.Queue{}, err
	}

	return all[0], nil
}

// spoken reports whether a kind of queue can be restored from tc's output.
func spoken(kind string) bool {
	return slices.Contains(spokenQueues, kind) || slices.Contains(deviceQueues, kind)
}

// queueWords returns those parameters in the output of tc that package qdisc supports, in the units of
// package qdisc.
func queueWords(parameters []qdisc.Parameter, words []string) (out []string) {
	for word, value := range pairs(words) {
		for _, p := range parameters {
			switch {
			case p.Quantity == qdisc.Flag && (word == p.Name || word == "no"+p.Name),
				p.Quantity == qdisc.Word && slices.Contains(p.Words, word):
				out = append(out, word)
			case p.Quantity == qdisc.Flag, p.Quantity == qdisc.Word, word != p.Name, value == "":
			default:
				value, _, _ = strings.Cut(value, "/") // tc -d appends "/cells"
				if p.Quantity == qdisc.Packets || p.Quantity == qdisc.Count {
					value = strings.TrimSuffix(strings.TrimSuffix(value, "p"), "sec")
				}

				out = append(out, p.Name, value)
			}
		}
	}
	return out
}

// pairs yields each word with its successor, which is "" for the last word.
func pairs(words []string) iter.Seq2[string, string] {
	return func(yield func(word, next string) bool) {
		for i, w := range words {
			next := ""
			if i+1 < len(words) {
				next = words[i+1]
			}

			if !yield(w, next) {
				return
			}
		}
	}
}

func applyQueue(ctx context.Context, h host.Host, dev, value string) error {
	all, err := qdisc.Parse(value)
	if err != nil {
		return err
	}

	for _, q := range all {
		if err := applyOneQueue(ctx, h, dev, q); err != nil {
			return err
		}
	}

	return nil
}

// applyOneQueue sets the root queue of a device or the queue of a class, or restores the default. It changes
// a queue of the same kind in place if possible, and replaces the queue otherwise.
func applyOneQueue(ctx context.Context, h host.Host, dev string, q qdisc.Queue) error {
	where := "root"
	parent := ""
	handle := ""
	if q.Parent != 0 {
		where, parent = "parent", qdisc.HandleText(q.Parent)
	}

	if q.Handle != 0 {
		handle = qdisc.HandleText(q.Handle)
	}

	switch {
	case q.Kind == qdisc.DefaultLeaf:
		return lacking(change(ctx, h, `tc qdisc del dev "$1" parent "$2" 2>/dev/null || :`, dev, parent))
	case q.Parent == 0 && q.Handle == 0 && slices.Contains(deviceQueues, q.Kind):
		return lacking(change(ctx, h, `tc qdisc del dev "$1" root 2>/dev/null
case "$(tc qdisc show dev "$1")" in ""|"qdisc $2 "*) ;; *) tc qdisc replace dev "$1" root "$2";; esac`, dev,
			q.Kind))
	case !spoken(q.Kind):
		return lacks("driver linux does not speak of queue %s", q.Kind)
	}

	script := `dev=$1 where=$2 at=$3 handle=$4; shift 4
`
	if kernel.InPlace(q.Kind) {
		script += `now=$(tc qdisc show dev "$dev" | sed -n "s/^qdisc \([^ ]*\) [^ ]* $where${at:+ $at} .*/\1/p")
[ "$now" != "$1" ] || { tc qdisc change dev "$dev" $where $at "$@"; exit; }
`
	}

	script += `tc qdisc del dev "$dev" $where $at 2>/dev/null
tc qdisc replace dev "$dev" $where $at ${handle:+handle "$handle"} "$@"`
	args := append([]string{dev, where, parent, handle}, q.TCOptions()...)
	return lacking(change(ctx, h, script, args...))
}

// lacking wraps err in host.ErrUnsupported if it means that the kernel lacks something (the queueing
// discipline, the file, the sysctl or, on FreeBSD, pf) or that the device cannot support the setting, such as
// mq on a device with one queue.
func lacking(err error) error {
	const tunable = "; by hand: /boot/loader.conf, and a reboot, if it is a tunable"
	if errors.Is(err, fs.ErrNotExist) {
		return lacks("%w", err)
	}

	for words, advice := range map[string]string{"kind is unknown": "", "Operation not supported": "",
		"/dev/pf": "", "unknown oid": tunable, "read only": tunable} {
		if err != nil && strings.Contains(err.Error(), words) {
			return lacks("%w%s", err, advice)
		}
	}
	return err
}

// printQueues prints the queues, classes and filters of devices.
const printQueues = `for d in "$@"; do echo "device $d"; tc -r -d qdisc show dev "$d" || exit 69
tc -r -d class show dev "$d"; echo filters; tc filter show dev "$d"
for i in ingress egress; do echo "parent $i"; tc filter show dev "$d" $i 2>/dev/null; done; done`

// parseQueues parses the output of printQueues.
func parseQueues(text string) (devices []record.NetDevice) {
	for part := range strings.SplitSeq("\n"+text, "\ndevice ") {
		dev, rest, ok := strings.Cut(part, "\n")
		if !ok || dev == "" {
			continue
		}

		all, filters := parseTree(rest)
		devices = append(devices, probe.DeviceQueues(dev, all, filters))
	}
	return devices
}

// readQueue returns the queues that want would replace. If want is "", it returns the root queue without its
// handle.
func readQueue(ctx context.Context, h host.Host, dev, want string) (string, error) {
	out, err := shell(ctx, h, printQueues, dev)
	if err != nil {
		return "", err
	}

	_, tree, _ := strings.Cut(out, "\n")
	return standing(tree, want)
}

// standing returns the result of readQueue for the given output of tc.
func standing(tree, want string) (string, error) {
	wanted := []qdisc.Queue{{}}
	if want != "" {
		var err error
		if wanted, err = qdisc.Parse(want); err != nil {
			return "", err
		}
	}

	all, filters := parseTree(tree)
	filtered := func(handle uint32) bool {
		return slices.ContainsFunc(filters, func(f kernel.TrafficFilter) bool { return f.Parent == handle })
	}
	for i, w := range wanted {
		q, err := kernel.Standing(all, filtered, w)
		if err != nil {
			return "", lacks("%w", err)
		}

		if want == "" {
			q.Handle = 0
		}

		wanted[i] = q
	}

	return qdisc.Spell(wanted), nil
}

// parseTree parses the queues and classes of a device in the output of tc -r -d. The filters of the device
// come after a line "filters".
func parseTree(text string) (all []kernel.Discipline, filters []kernel.TrafficFilter) {
	queues, rest, _ := strings.Cut("\n"+text, "\nfilters\n")
	for line := range strings.Lines(queues) {
		words := strings.Fields(line)
		if len(words) >= 4 && (words[0] == "qdisc" || words[0] == "class") {
			all = append(all, parseDiscipline(words))
		}
	}
	return all, parseFilters(rest)
}

// parseDiscipline parses a line such as "qdisc tbf 8001: root …" or "class htb 1:10 parent 1:1 …".
func parseDiscipline(words []string) kernel.Discipline {
	d := kernel.Discipline{Class: words[0] == "class", Kind: words[1]}
	handle, _, _ := strings.Cut(words[2], "[")
	d.Handle, _ = qdisc.ParseHandle(handle)
	rest := words[4:]
	if d.Parent = qdisc.HandleRoot; words[3] == "parent" && len(words) > 4 {
		switch parent := words[4]; {
		case parent == "ffff:fff1":
			d.Parent = qdisc.HandleIngress
		case strings.HasPrefix(parent, ":"):
			d.Parent = 1 // a class; this is its default queue, which has handle 0
		default:
			d.Parent, _ = qdisc.ParseHandle(parent)
		}

		rest = words[5:]
	}

	d.Rate = max(rateOf(rest, "rate"), rateOf(rest, "bandwidth"))
	d.Ceil, d.FlowRate = rateOf(rest, "ceil"), rateOf(rest, "maxrate")
	if d.Class {
		if d.Kind == "hfsc" {
			d.Rate = max(curveOf(rest, "rt"), curveOf(rest, "ls"), curveOf(rest, "sc"))
			d.Ceil = curveOf(rest, "ul")
		}
		return d
	}

	q, err := queueOf(d.Kind, rest)
	if err != nil {
		d.Why = err.Error()
		return d
	}

	d.Queue = q
	d.Burst, d.LimitBytes, d.LimitPackets = q.Room()
	for w, next := range pairs(rest) {
		switch {
		case slices.Contains([]string{"maxrate", "ce_threshold", "autorate-ingress", "fwmark"}, w),
			d.Kind == "tbf" && slices.Contains([]string{"peakrate", "overhead"}, w),
			d.Kind == "tbf" && w == "mpu" && next != "0b",
			w == "linklayer" && next != "ethernet" && next != "unaware",
			w == "drop_batch" && next != "64":
			d.Why = "its owner has set " + w + ", which could not be restored"
			if d.Kind == "tbf" { // because even a change in place would remove the owner's setting
				d.Queue = qdisc.Queue{}
			}
		}
	}

	return d
}

// rateOf returns the rate after the word name, in bit/s.
func rateOf(words []string, name string) uint64 {
	for word, next := range pairs(words) {
		if word == name {
			return rateText(next)
		}
	}
	return 0
}

func rateText(text string) uint64 {
	rate, err := unit.ParseBitrate(text)
	if err != nil || rate > 1e15 {
		return 0
	}
	return uint64(rate)
}

// curveOf returns the larger of the two rates in an hfsc service curve such as "ul m1 0bit d 0us m2 10Mbit",
// in bit/s.
func curveOf(words []string, name string) uint64 {
	i := slices.Index(words, name)
	if i < 0 || i+6 >= len(words) || words[i+1] != "m1" || words[i+5] != "m2" {
		return 0
	}
	return max(rateText(words[i+2]), rateText(words[i+6]))
}

// parseFilters parses the output of tc filter show for the root and, after the lines "parent ingress" and
// "parent egress", for clsact.
func parseFilters(text string) (filters []kernel.TrafficFilter) {
	parent := uint32(0)
	var f *kernel.TrafficFilter
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 2 && words[0] == "parent" {
			parent = map[string]uint32{"ingress": 0xfffffff2, "egress": 0xfffffff3}[words[1]]
			continue
		}

		if len(words) > 0 && words[0] == "filter" {
			filters = append(filters, kernel.TrafficFilter{Parent: parent})
			f = &filters[len(filters)-1]
		}

		if f == nil {
			continue
		}

		preference := "" // the word after the preference is the kind of the filter
		for w, next := range pairs(words) {
			switch {
			case w == "parent" && next != "":
				f.Parent, _ = qdisc.ParseHandle(next)
			case w == "pref":
				preference = next
			case w == preference:
				f.Kind, preference = next, ""
			case w == "flowid", w == "classid":
				f.Action, f.To = "class", next
			case w == "mirred" && strings.HasPrefix(next, "("):
				f.Action = "mirror"
				if strings.Contains(line, "Redirect") {
					f.Action = "redirect"
				}

				_, to, _ := strings.Cut(line, " to device ")
				f.To, _, _ = strings.Cut(to, ")")
			case w == "police":
				f.Action, f.Rate = "police", rateOf(words, "rate")
			case w == "gact" && strings.Contains(line, "action drop"):
				f.Action = "drop"
			}
		}
	}

	return slices.DeleteFunc(filters, func(f kernel.TrafficFilter) bool { return f.Action == "" })
}
