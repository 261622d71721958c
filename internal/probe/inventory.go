package probe

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/qdisc"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Limits of an inventory. It does not list items beyond a limit.
const (
	maxDevices = 64
	// maxQueues applies to the qdiscs and classes of a device, and to its filters. A device that exceeds it
	// is listed without all of these.
	maxQueues = 128
	maxChains = 64 // applies to chains with hooks, and to flow tables
	maxTaps   = 32
)

func plainNumber(text string) float64 {
	v, _ := strconv.ParseFloat(text, 64) // 0 if text is not a number
	return v
}

// ProcTexts holds the contents of files in /proc: net/packet, net/netfilter/nfnetlink_queue, and sysctls.
// A text is empty if the file could not be read; the reason is then already in the inventory.
type ProcTexts struct{ Taps, NFQueues, Max, Count, BridgeFilter string }

// AddProc parses the texts and adds their contents to an inventory. nameOf returns the name of the device
// with the given index.
func AddProc(v *record.Inventory, t ProcTexts, nameOf func(index int) string) {
	var more int
	if v.Taps, more = parseTaps(t.Taps, nameOf); more > 0 {
		v.Missing["taps"] = fmt.Sprintf("%d sockets of other kinds are not listed", more)
	}

	for line := range strings.Lines(t.NFQueues) {
		// Columns: number, port id, waiting, copy mode, copy range, dropped, dropped by the program's socket,
		// …
		f := strings.Fields(line)
		if len(f) >= 7 && len(v.NFQueues) < maxTaps {
			n, err := strconv.Atoi(f[0])
			if err != nil {
				continue
			}

			v.NFQueues = append(v.NFQueues, record.NFQueue{
				Number:      n,
				Waiting:     int64(plainNumber(f[2])),
				Dropped:     int64(plainNumber(f[5])),
				UserDropped: int64(plainNumber(f[6])),
			})
		}
	}

	most, err := strconv.ParseInt(strings.TrimSpace(t.Max), 10, 64)
	count, alas := strconv.ParseInt(strings.TrimSpace(t.Count), 10, 64)
	if err == nil && alas == nil {
		v.Conntrack = &record.Conntrack{Max: most, Count: count}
	}

	on := strings.TrimSpace(t.BridgeFilter)
	if on == "0" || on == "1" {
		v.BridgeFilter = new(on == "1")
	}
}

// parseTaps counts the sockets in /proc/net/packet by kind. It returns at most maxTaps kinds. more is the
// number of sockets of all other kinds.
func parseTaps(text string, nameOf func(index int) string) (taps []record.Tap, more int) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)                         // columns: sk, RefCnt, Type, Proto, Iface, R, …
		if len(f) < 6 || f[0] == "sk" || f[3] == "0000" { // a socket without a protocol receives nothing
			continue
		}

		t := record.Tap{Type: map[string]string{"2": "dgram", "3": "raw"}[f[2]], Protocol: f[3]}
		if index, err := strconv.Atoi(f[4]); err == nil && index > 0 {
			t.Device = nameOf(index)
		}

		i := slices.IndexFunc(taps, func(o record.Tap) bool { o.Sockets = 0; return o == t })
		switch {
		case t.Type == "":
		case i >= 0:
			taps[i].Sockets++
		case len(taps) == maxTaps:
			more++
		default:
			t.Sockets = 1
			taps = append(taps, t)
		}
	}
	return taps, more
}

// DeviceQueues records the qdiscs and filters of a device, parents before children. It omits classes that
// a qdisc creates by itself, as tbf does.
func DeviceQueues(dev string, all []kernel.Discipline, filters []kernel.TrafficFilter) record.NetDevice {
	d := record.NetDevice{Name: dev}
	slices.SortStableFunc(all, func(a, b kernel.Discipline) int {
		top := func(d kernel.Discipline) int {
			if d.Parent == qdisc.HandleRoot && !d.Class {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(top(a), top(b)), cmp.Compare(a.Handle, b.Handle))
	})
	for _, q := range all {
		if q.Class && !slices.Contains([]string{"htb", "hfsc", "drr", "ets", "qfq"}, q.Kind) {
			continue
		}

		parent := qdisc.HandleText(q.Parent)
		switch {
		case q.Kind == "clsact":
			parent = q.Kind
		case q.Class && q.Parent == qdisc.HandleRoot:
			parent = qdisc.HandleText(q.Handle &^ 0xffff)
		}

		d.Queues = append(d.Queues, record.QueueFacts{
			Class:        q.Class,
			Kind:         q.Kind,
			Handle:       qdisc.HandleText(q.Handle),
			Parent:       parent,
			RateBps:      float64(q.Rate),
			CeilBps:      float64(q.Ceil),
			FlowRateBps:  float64(q.FlowRate),
			BurstBytes:   float64(q.Burst),
			LimitBytes:   float64(q.LimitBytes),
			LimitPackets: float64(q.LimitPackets),
			Level:        q.Queue.String(),
			Missing:      q.Why,
		})
	}

	for _, f := range filters {
		d.Filters = append(d.Filters, record.QueueFilter{
			Parent:  qdisc.HandleText(f.Parent),
			Kind:    f.Kind,
			Action:  f.Action,
			To:      f.To,
			RateBps: float64(f.Rate),
		})
	}

	if len(d.Queues) > maxQueues || len(d.Filters) > maxQueues {
		return record.NetDevice{
			Name:    dev,
			Missing: fmt.Sprintf("it has more than %d queues, classes or filters", maxQueues),
		}
	}

	return d
}
