package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// deviceQueues are what a device has by itself, and what takes no parameter.
var deviceQueues = []string{"noqueue", "mq", "pfifo_fast"}

// Kinds of queues that tc prints in a form that can be set again; not so htb with its classes and netem.
var spokenQueues = []string{"pfifo", "bfifo", "tbf", "sfq", "codel", "fq_codel", "fq", "cake"}

func readQueue(ctx context.Context, h host.Host, dev string) (string, error) {
	out, err := shell(ctx, h, "", `tc -r qdisc show dev "$1"`, dev)
	if err != nil {
		return "", err
	}
	return parseQdisc(out)
}

// parseQdisc reads the root queue from what tc -r qdisc show prints, in the words of knob.Queue.
func parseQdisc(text string) (string, error) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 4 || words[0] != "qdisc" || words[3] != "root" {
			continue
		}
		kind := words[1]
		if slices.Contains(deviceQueues, kind) {
			return kind, nil
		}
		parameters, ok := kernel.QueueParameters(kind)
		if !ok || !slices.Contains(spokenQueues, kind) {
			return "", fmt.Errorf("%w: driver linux does not speak of queue %s", host.ErrUnsupported, kind)
		}
		state, err := knob.Queue().Parse(kind + " " + strings.Join(queueWords(parameters, words[4:]), " "))
		return string(state), err
	}
	return "noqueue", nil // a tc that does not name it
}

// queueWords keeps of what tc prints the parameters that we know, with our units.
func queueWords(parameters []kernel.Parameter, words []string) (out []string) {
	for i := 0; i < len(words); i++ {
		for _, p := range parameters {
			switch {
			case p.Quantity == kernel.Flag && (words[i] == p.Name || words[i] == "no"+p.Name),
				p.Quantity == kernel.Word && slices.Contains(p.Words, words[i]):
				out = append(out, words[i])
			case p.Quantity == kernel.Flag, p.Quantity == kernel.Word, words[i] != p.Name, i+1 == len(words):
				continue
			default:
				i++
				value := words[i]
				switch p.Quantity {
				case kernel.BitsPerSecond:
					value = strings.ReplaceAll(strings.TrimSuffix(value, "bit"), "K", "k")
				case kernel.Bytes:
					value, _, _ = strings.Cut(value, "/") // its cells, with -d
				case kernel.Packets, kernel.Count:
					value = strings.TrimSuffix(strings.TrimSuffix(value, "p"), "sec")
				}
				out = append(out, p.Name, value)
			}
			break
		}
	}
	return out
}

func applyQueue(ctx context.Context, h host.Host, dev, value string) error {
	if !strings.HasPrefix(value, "parent ") && !strings.HasPrefix(value, "handle ") {
		if done, err := applyDeviceQueue(ctx, h, dev, value); done {
			return err
		}
	}
	for part := range strings.SplitSeq(value, ",") {
		if err := applyOneQueue(ctx, h, dev, strings.Fields(part)); err != nil {
			return err
		}
	}
	return nil
}

// applyDeviceQueue puts back what a device has by itself; done is false of any other queue.
func applyDeviceQueue(ctx context.Context, h host.Host, dev, kind string) (done bool, err error) {
	if !slices.Contains(deviceQueues, kind) {
		return false, nil
	}
	return true, lacking(change(ctx, h, "", `tc qdisc del dev "$1" root 2>/dev/null
case "$(tc qdisc show dev "$1")" in ""|"qdisc $2 "*) ;; *) tc qdisc replace dev "$1" root "$2";; esac`, dev,
		kind))
}

// applyOneQueue sets a root queue or that of a class. One whose kind allows it is changed in place, where it
// is there; else the one before makes room for it.
func applyOneQueue(ctx context.Context, h host.Host, dev string, words []string) error {
	var parent, handle string
	for len(words) > 2 && (words[0] == "parent" || words[0] == "handle") {
		if words[0] == "parent" {
			parent = words[1]
		} else {
			handle = words[1]
		}
		words = words[2:]
	}
	where := "root"
	if parent != "" {
		where = "parent"
	}
	switch {
	case len(words) == 0:
		return errors.New("no queue given")
	case words[0] == kernel.DefaultLeaf:
		return lacking(change(ctx, h, "", `tc qdisc del dev "$1" parent "$2" 2>/dev/null || :`, dev, parent))
	case !slices.Contains(spokenQueues, words[0]) && !slices.Contains(deviceQueues, words[0]):
		return fmt.Errorf("%w: driver linux does not speak of queue %s", host.ErrUnsupported, words[0])
	}
	script := `dev=$1 where=$2 at=$3 handle=$4; shift 4
`
	if kernel.InPlace(words[0]) {
		script += `now=$(tc qdisc show dev "$dev" | sed -n "s/^qdisc \([^ ]*\) [^ ]* $where${at:+ $at} .*/\1/p")
[ "$now" != "$1" ] || { tc qdisc change dev "$dev" $where $at "$@"; exit; }
`
	}
	script += `tc qdisc del dev "$dev" $where $at 2>/dev/null
tc qdisc replace dev "$dev" $where $at ${handle:+handle "$handle"} "$@"`
	args := append([]string{dev, where, parent, handle}, knob.QueueWords(words)...)
	return lacking(change(ctx, h, "", script, args...))
}

// lacking says of what a command answered whether the kernel lacks the queueing discipline, or the device
// what a setting takes, such as queues for mq.
func lacking(err error) error {
	for _, words := range []string{"kind is unknown", "Operation not supported"} {
		if err != nil && strings.Contains(err.Error(), words) {
			return fmt.Errorf("%w: %w", host.ErrUnsupported, err)
		}
	}
	return err
}

// printQueues prints the queues, classes and filters of devices.
const printQueues = `for d in "$@"; do echo "device $d"; tc -r -d qdisc show dev "$d" || exit 69
tc -r -d class show dev "$d"; echo filters; tc filter show dev "$d"
for i in ingress egress; do echo "parent $i"; tc filter show dev "$d" $i 2>/dev/null; done; done`

// parseQueues reads what printQueues prints.
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

// readQueueFor reads what a value would take the place of.
func readQueueFor(ctx context.Context, h host.Host, dev, value string) (string, error) {
	out, err := shell(ctx, h, "", printQueues, dev)
	if err != nil {
		return "", err
	}
	_, out, _ = strings.Cut(out, "\n")
	all, filters := parseTree(out)
	var states []string
	for want := range strings.SplitSeq(value, ",") {
		state, err := standing(all, filters, strings.Fields(want))
		if err != nil {
			return "", err
		}
		states = append(states, state)
	}
	state, err := knob.Queue().Parse(strings.Join(states, ", "))
	return string(state), err
}

// standing is the state of the queue that another would take the place of.
func standing(all []kernel.Discipline, filters []kernel.TrafficFilter, want []string) (string, error) {
	parent := uint32(kernel.HandleRoot)
	for len(want) > 2 && (want[0] == "parent" || want[0] == "handle") {
		if h, ok := kernel.ParseHandle(want[1]); ok && want[0] == "parent" {
			parent = h
		}
		want = want[2:]
	}
	if len(want) == 0 {
		return "", errors.New("no queue given")
	}
	under := ""
	if parent != kernel.HandleRoot {
		under = "parent " + kernel.HandleText(parent) + " "
	}
	i := slices.IndexFunc(all, func(d kernel.Discipline) bool { return !d.Class && d.Parent == parent })
	class := slices.ContainsFunc(all, func(d kernel.Discipline) bool {
		return d.Class && d.Handle == parent && slices.Contains([]string{"htb", "hfsc"}, d.Kind)
	})
	switch {
	case i < 0 && under == "":
		return "noqueue", nil // a tc that does not name it
	case i < 0 && class:
		return under + kernel.DefaultLeaf, nil
	case i < 0:
		return "", fmt.Errorf("%w: it has no class %s with a queue of its own", host.ErrUnsupported,
			kernel.HandleText(parent))
	}
	d := all[i]
	below := slices.ContainsFunc(all, func(o kernel.Discipline) bool {
		fifo := strings.HasSuffix(o.Kind, "fifo") || d.Kind != want[0] || !kernel.InPlace(d.Kind)
		return !o.Class && o.Handle != 0 && o.Handle != d.Handle && o.Parent>>16 == d.Handle>>16 && fifo
	})
	filtered := slices.ContainsFunc(filters, func(f kernel.TrafficFilter) bool {
		return f.Parent == d.Handle
	})
	inPlace := d.Kind == want[0] && kernel.InPlace(d.Kind)
	switch {
	case d.Handle == 0 && slices.Contains(deviceQueues, d.Kind):
		return under + d.Kind, nil
	case d.Level == "" || d.Handle != 0 && below || !inPlace && (d.Why != "" || filtered):
		return "", fmt.Errorf("%w: queue %s has what could not be restored: %s", host.ErrUnsupported, d.Kind,
			orElse(d.Why, "queues, classes or filters of its owner's"))
	}
	if d.Handle != 0 {
		under += "handle " + kernel.HandleText(d.Handle) + " "
	}
	return under + d.Level, nil
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// parseTree reads the queues and classes that tc -r -d prints of a device, and behind the line "filters" its
// filters.
func parseTree(text string) (all []kernel.Discipline, filters []kernel.TrafficFilter) {
	queues, rest, _ := strings.Cut("\n"+text, "\nfilters\n")
	for line := range strings.Lines(queues) {
		if words := strings.Fields(line); len(words) >= 4 && (words[0] == "qdisc" || words[0] == "class") {
			all = append(all, parseDiscipline(words))
		}
	}
	return all, parseFilters(rest)
}

// parseDiscipline reads "qdisc tbf 8001: root …" or "class htb 1:10 parent 1:1 …".
func parseDiscipline(words []string) kernel.Discipline {
	d := kernel.Discipline{Class: words[0] == "class", Kind: words[1]}
	handle, _, _ := strings.Cut(words[2], "[")
	d.Handle, _ = kernel.ParseHandle(handle)
	rest := words[4:]
	if d.Parent = kernel.HandleRoot; words[3] == "parent" && len(words) > 4 {
		switch parent := words[4]; parent {
		case "ffff:fff1":
			d.Parent = kernel.HandleIngress
		default:
			if strings.HasPrefix(parent, ":") {
				d.Parent = 1 // of the kernel's default, whose handle is 0
				break
			}
			d.Parent, _ = kernel.ParseHandle(parent)
		}
		rest = words[5:]
	}
	parameters, known := kernel.QueueParameters(d.Kind)
	d.Rate = max(rateOf(rest, "rate"), rateOf(rest, "bandwidth"))
	d.Ceil, d.FlowRate = rateOf(rest, "ceil"), rateOf(rest, "maxrate")
	if d.Class {
		if d.Kind == "hfsc" {
			d.Rate = max(curveOf(rest, "rt"), curveOf(rest, "ls"), curveOf(rest, "sc"))
			d.Ceil = curveOf(rest, "ul")
		}
		return d
	}
	if !known || !slices.Contains(append(spokenQueues, deviceQueues...), d.Kind) {
		d.Why = "driver linux does not speak of queue " + d.Kind
		return d
	}
	spelt := queueWords(parameters, rest)
	state, err := knob.Queue().Parse(strings.Join(append([]string{d.Kind}, spelt...), " "))
	if err != nil {
		d.Why = err.Error()
		return d
	}
	d.Level = string(state)
	d.Burst, d.LimitBytes, d.LimitPackets = knob.QueueRoom(state)
	for i, w := range rest {
		next := ""
		if i+1 < len(rest) {
			next = rest[i+1]
		}
		switch {
		case slices.Contains([]string{"maxrate", "ce_threshold", "autorate-ingress", "fwmark"}, w),
			d.Kind == "tbf" && slices.Contains([]string{"peakrate", "overhead"}, w),
			d.Kind == "tbf" && w == "mpu" && next != "0b",
			w == "linklayer" && next != "ethernet" && next != "unaware",
			w == "drop_batch" && next != "64":
			d.Why = "its owner has set " + w + ", which could not be restored"
			if d.Kind == "tbf" { // also changed in place it would lose that
				d.Level = ""
			}
		}
	}
	return d
}

// rateOf is the rate, in bits per second, behind a word.
func rateOf(words []string, name string) uint64 {
	i := slices.Index(words, name)
	if i < 0 || i+1 == len(words) {
		return 0
	}
	return rateText(words[i+1])
}

func rateText(text string) uint64 {
	for _, s := range []kernel.Scale{{Suffix: "Gbit", Factor: 1e9}, {Suffix: "Mbit", Factor: 1e6},
		{Suffix: "Kbit", Factor: 1e3}, {Suffix: "bit", Factor: 1}} {
		if number, ok := strings.CutSuffix(text, s.Suffix); ok {
			v, err := strconv.ParseFloat(number, 64)
			if err != nil || !(v >= 0 && v < 1e6) && s.Factor > 1 || !(v >= 0 && v < 1e15) {
				return 0
			}
			return uint64(v * float64(s.Factor))
		}
	}
	return 0
}

// curveOf is the larger rate of a service curve of hfsc, "ul m1 0bit d 0us m2 10Mbit".
func curveOf(words []string, name string) uint64 {
	i := slices.Index(words, name)
	if i < 0 || i+6 >= len(words) || words[i+1] != "m1" || words[i+5] != "m2" {
		return 0
	}
	return max(rateText(words[i+2]), rateText(words[i+6]))
}

// parseFilters reads what tc filter show prints of the root, and behind lines "parent ingress" and "parent
// egress" of clsact.
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
			for i := 1; i+1 < len(words); i++ {
				switch words[i] {
				case "parent":
					f.Parent, _ = kernel.ParseHandle(words[i+1])
				case "pref":
					if i+2 < len(words) {
						f.Kind = words[i+2]
					}
				case "flowid", "classid":
					f.Action, f.To = "class", words[i+1]
				}
			}
		}
		if f == nil {
			continue
		}
		for i, w := range words {
			next := ""
			if i+1 < len(words) {
				next = words[i+1]
			}
			switch {
			case w == "mirred" && strings.HasPrefix(next, "("):
				f.Action = "mirror"
				if strings.Contains(line, "Redirect") {
					f.Action = "redirect"
				}
				_, to, _ := strings.Cut(line, " to device ")
				f.To, _, _ = strings.Cut(to, ")")
			case w == "police":
				f.Action, f.Rate = "police", rateOf(words[i:], "rate")
			case w == "gact" && strings.Contains(line, "action drop"):
				f.Action = "drop"
			}
		}
	}
	return slices.DeleteFunc(filters, func(f kernel.TrafficFilter) bool { return f.Action == "" })
}
