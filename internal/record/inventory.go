package record

import (
	"cmp"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Inventory lists what a node had in the path of packets: its devices with their queues, its packet filter,
// and other readers of packets. A part that could not be read is absent, with the reason in Missing.
type Inventory struct {
	Devices   []NetDevice   `json:"devices,omitempty"` // devices that are up, except the loopback device
	Filter    *PacketFilter `json:"filter,omitempty"`
	Taps      []Tap         `json:"taps,omitempty"`
	NFQueues  []NFQueue     `json:"nfqueues,omitempty"`
	Conntrack *Conntrack    `json:"conntrack,omitempty"`
	XFRM      *XFRMStates   `json:"xfrm,omitempty"`
	// BridgeFilter reports that the IPv4 packet filter also sees bridged packets (bridge-nf-call-iptables).
	BridgeFilter *bool `json:"bridge_filter,omitempty"`
	// Missing holds the reason for each unknown part: "devices", "filter", "iptables", "taps", "nfqueues",
	// "conntrack", "xfrm", "bridge_filter", or "all".
	Missing map[string]string `json:"missing,omitempty"`
}

// NoInventory returns an empty inventory.
func NoInventory(why string) *Inventory { return &Inventory{Missing: map[string]string{"all": why}} }

// Lacks returns why a part is unknown, "" if it is known.
func (v *Inventory) Lacks(part string) string {
	if v == nil {
		return "it was not read"
	}

	if why, ok := v.Missing["all"]; ok {
		return why
	}
	return v.Missing[part]
}

// Kinds of network devices; others have the kernel's own name.
const (
	DevicePhysical = "physical"
	DeviceVirtual  = "virtual" // for a kind that could not be read
)

// NetDevice describes one network device with its queueing disciplines, classes and filters.
type NetDevice struct {
	Name      string        `json:"name"`
	Port      string        `json:"port,omitempty"`   // its port in the topology
	Kind      string        `json:"kind,omitempty"`   // "physical", "bridge", "bond", "vlan", "ifb", "veth" …
	Master    string        `json:"master,omitempty"` // bridge or bond of which it is a port
	Lower     string        `json:"lower,omitempty"`  // underlying device
	MTU       int           `json:"mtu,omitempty"`
	SpeedMbps float64       `json:"speed_mbps,omitempty"`
	Queues    []QueueFacts  `json:"queues"`
	Filters   []QueueFilter `json:"filters,omitempty"`
	Missing   string        `json:"missing,omitempty"` // why the lists are incomplete
}

// Tap counts packet sockets (AF_PACKET) of one kind; each gets a copy of every matching packet.
type Tap struct {
	Device   string `json:"device,omitempty"` // "" = all
	Type     string `json:"type"`             // "raw" or "dgram"
	Protocol string `json:"protocol"`         // in hexadecimal, "0003" = all
	Sockets  int    `json:"sockets"`
}

// NFQueue is a queue through which the packet filter passes packets to a program (NFQUEUE).
type NFQueue struct {
	Number      int   `json:"number"`
	Waiting     int64 `json:"waiting"`
	Dropped     int64 `json:"dropped"`      // because it was full
	UserDropped int64 `json:"user_dropped"` // because the program's socket was full
}

// Conntrack is the table of tracked connections.
type Conntrack struct {
	Max   int64 `json:"max"`
	Count int64 `json:"count"`
}

// XFRMStates counts IPsec associations.
type XFRMStates struct {
	States   int `json:"states"`
	Replayed int `json:"with_replay_window"`
	// the smallest replay window, in packets; 0 = there is none
	MinWindow int `json:"min_window,omitempty"`
}

// MaxFilterRules bounds how many rules PacketFilter lists.
const MaxFilterRules = 64

// PacketFilter describes the parts of nftables that cost time for packets or decide about them.
type PacketFilter struct {
	Chains     []FilterChain `json:"chains,omitempty"`      // at a hook
	MoreChains int           `json:"more_chains,omitempty"` // chains at hooks that were not read
	// Rules that do more than accept, first those that established connections pass; at most MaxFilterRules.
	Rules      []FilterRule     `json:"rules,omitempty"`
	MoreRules  int              `json:"more_rules,omitempty"` // further rules of that kind, not listed
	Flowtables []FoundFlowtable `json:"flowtables,omitempty"`
	// LegacyEntries counts the entries of each table of iptables-legacy beyond its policies: "filter" for
	// IPv4, "ip6 filter" for IPv6. Their actions are not read.
	LegacyEntries map[string]int `json:"iptables_legacy,omitempty"`
}

// FilterChain is a chain at a hook. Rules counts the rules that its packets may reach, including by jumps.
type FilterChain struct {
	Family   string `json:"family"` // "ip", "ip6", "inet", "bridge", "netdev", "arp"
	Table    string `json:"table"`
	Name     string `json:"name"`
	Hook     string `json:"hook"` // "forward", "prerouting" …
	Priority int    `json:"priority"`
	Policy   string `json:"policy,omitempty"`
	Device   string `json:"device,omitempty"` // for family netdev
	Rules    int    `json:"rules"`
	Own      bool   `json:"own,omitempty"` // made by chokepoint
}

// Effects of rules, in FilterRule.Kinds.
const (
	RuleLimit     = "limit"      // by rate, quota or number of connections
	RuleFlowMeter = "flow-meter" // limits each flow or address
	RuleDrop      = "drop"
	RuleReject    = "reject"
	RuleInvalid   = "invalid" // for packets that belong to no connection
	RuleQueue     = "queue"   // passes packets to a program
	RuleLog       = "log"
	RuleCount     = "count"      // has a counter and no verdict, or a named counter
	RuleTCPOption = "tcp-option" // changes or removes an option, such as the MSS
	RuleOffload   = "offload"    // adds connections to a flowtable
	RuleNoTrack   = "notrack"
	RuleRandom    = "random"
	RuleCopy      = "copy" // sends packets, or copies of them, elsewhere
)

// FilterRule is a rule of the packet filter that does more than accept. Text has its statements as nft(8)
// writes them, without addresses, names of devices and comments.
type FilterRule struct {
	Family string   `json:"family"`
	Table  string   `json:"table"`
	Chain  string   `json:"chain"`
	Handle int64    `json:"handle"`
	Own    bool     `json:"own,omitempty"`   // made by chokepoint
	Hooks  []string `json:"hooks,omitempty"` // hooks whose packets may reach it
	// NewOnly reports that an earlier rule accepts the packets of established connections.
	NewOnly bool       `json:"new_only,omitempty"`
	Kinds   []string   `json:"kinds"`
	Text    string     `json:"text"`
	Limit   *RateLimit `json:"limit,omitempty"`
	Packets *int64     `json:"packets,omitempty"` // absent without a counter
	Bytes   *int64     `json:"bytes,omitempty"`
}

// RateLimit is the limit of a rule.
type RateLimit struct {
	Rate  float64 `json:"rate"` // per second
	Unit  string  `json:"unit"` // "packets" or "bytes"
	Burst float64 `json:"burst,omitempty"`
	Over  bool    `json:"over,omitempty"` // the rule applies to traffic above the limit, else to the rest
}

// FoundFlowtable is a flowtable of the packet filter.
type FoundFlowtable struct {
	Family  string   `json:"family"`
	Table   string   `json:"table"`
	Name    string   `json:"name"`
	Devices []string `json:"devices,omitempty"`
	Flags   []string `json:"flags,omitempty"` // "offload" by hardware, "counter"
	Own     bool     `json:"own,omitempty"`   // made by chokepoint
}

// SkippedBy returns the first rule, other than ours, that no longer affects connections in a flowtable: at
// the forward hook, reached by packets of established connections, in order to limit, drop, redirect, log or
// count them.
func (f *PacketFilter) SkippedBy() (FilterRule, bool) {
	i := slices.IndexFunc(f.Rules, func(r FilterRule) bool {
		acts := slices.ContainsFunc(r.Kinds, func(kind string) bool {
			return slices.Contains([]string{RuleLimit, RuleFlowMeter, RuleDrop, RuleReject, RuleQueue,
				RuleLog, RuleCount, RuleCopy}, kind)
		})
		return acts && !r.Own && !r.NewOnly && slices.Contains(r.Hooks, "forward") &&
			slices.Contains([]string{"ip", "ip6", "inet"}, r.Family)
	})
	if i < 0 {
		return FilterRule{}, false
	}
	return f.Rules[i], true
}

// PacketsOf returns the counter of a rule found by another reading, 0 if the rule is missing, or has none.
func (v *Inventory) PacketsOf(rule FilterRule) int64 {
	if v == nil || v.Filter == nil {
		return 0
	}

	for _, r := range v.Filter.Rules {
		same := r.Family == rule.Family && r.Table == rule.Table && r.Chain == rule.Chain &&
			r.Handle == rule.Handle
		if same && r.Packets != nil {
			return *r.Packets
		}
	}
	return 0
}

// QueueFacts describes one queueing discipline or class. Handle and Parent are in the form of tc(8).
type QueueFacts struct {
	Class        bool    `json:"class,omitempty"` // class of Parent, which queues no packets itself
	Kind         string  `json:"kind"`
	Handle       string  `json:"handle"`                  // "8001:"; of a class "1:10"; of a default "0:"
	Parent       string  `json:"parent"`                  // "root", "ingress", "clsact" or a handle
	RateBps      float64 `json:"rate_bps,omitempty"`      // rate limit; for a class, the guaranteed rate
	CeilBps      float64 `json:"ceil_bps,omitempty"`      // maximum rate of a class
	FlowRateBps  float64 `json:"flow_rate_bps,omitempty"` // maximum rate of each flow
	BurstBytes   float64 `json:"burst_bytes,omitempty"`   // bytes that may pass at once
	LimitBytes   float64 `json:"limit_bytes,omitempty"`   // that may wait
	LimitPackets float64 `json:"limit_packets,omitempty"` // that may wait
	Level        string  `json:"level,omitempty"`         // its kind and parameters, as the factor queue has them
	Missing      string  `json:"missing,omitempty"`       // why its parameters are not completely known
}

// Words describes the discipline or class as the factor queue does, or by its kind and rates if its
// parameters are not completely known.
func (q QueueFacts) Words() string {
	text := cmp.Or(q.Level, q.Kind)
	for _, r := range []struct {
		word string
		bps  float64
	}{{"rate ", q.RateBps}, {"ceil ", q.CeilBps}, {"per flow ", q.FlowRateBps}} {
		if r.bps > 0 && q.Level == "" {
			text += " " + r.word + unit.Bitrate(r.bps).String()
		}
	}
	return text
}

// Words describes the filter by its kind, its action, and the target or rate.
func (f QueueFilter) Words() string {
	text := f.Kind + " " + f.Action
	if f.To != "" {
		text += " " + f.To
	}

	if f.RateBps > 0 {
		text += " " + unit.Bitrate(f.RateBps).String()
	}

	return text
}

// QueueFilter is a filter of traffic control with an action on the packets that it matches.
type QueueFilter struct {
	Parent  string  `json:"parent"`
	Kind    string  `json:"kind"`               // "u32", "matchall", "flower" …
	Action  string  `json:"action"`             // "redirect", "mirror", "police", "drop", "class" …
	To      string  `json:"to,omitempty"`       // device of a redirect, or class
	RateBps float64 `json:"rate_bps,omitempty"` // for a policer
}

// Device returns the device of a port of the topology, else the one of that name; nil if it was not read.
func (v *Inventory) Device(port string) *NetDevice {
	if v == nil {
		return nil
	}

	for _, is := range []func(NetDevice) bool{
		func(d NetDevice) bool { return d.Port == port },
		func(d NetDevice) bool { return d.Port == "" && d.Name == port },
	} {
		i := slices.IndexFunc(v.Devices, is)
		if i >= 0 {
			return &v.Devices[i]
		}
	}
	return nil
}

// egressFilters is the parent of a clsact's filters for packets that leave a device.
const egressFilters = "ffff:fff3"

func (d *NetDevice) clsact() bool {
	return slices.ContainsFunc(d.Queues, func(q QueueFacts) bool { return q.Kind == "clsact" })
}

// filters returns the filters with an action on packets that leave the device, or on those that arrive. A
// queueing discipline "ingress" sees only those that arrive.
func (d *NetDevice) filters(action string, egress bool) (out []QueueFilter) {
	if d == nil {
		return nil
	}

	for _, f := range d.Filters {
		leaves := f.Parent == egressFilters && d.clsact() || !strings.HasPrefix(f.Parent, "ffff:")
		if f.Action == action && leaves == egress {
			out = append(out, f)
		}
	}
	return out
}

// RedirectsTo lists the devices, such as an ifb, to which filters redirect packets that leave the device, or
// that arrive.
func (d *NetDevice) RedirectsTo(egress bool) (out []string) {
	for _, f := range d.filters("redirect", egress) {
		if f.To != "" && !slices.Contains(out, f.To) {
			out = append(out, f.To)
		}
	}
	return out
}

// FiltersLeaving reports whether filters inspect packets that leave the device before they are queued.
func (d *NetDevice) FiltersLeaving() bool {
	return d != nil && (d.Polices(true) || d.clsact())
}

// Polices reports whether a filter polices packets that leave the device, or that arrive.
func (d *NetDevice) Polices(egress bool) bool { return len(d.filters("police", egress)) > 0 }

// Root returns the queueing discipline through which everything leaves the device.
func (d *NetDevice) Root() (QueueFacts, bool) {
	i := slices.IndexFunc(d.Queues, func(q QueueFacts) bool { return !q.Class && q.Parent == "root" })
	if i < 0 {
		return QueueFacts{}, false
	}
	return d.Queues[i], true
}

// Below returns the queueing disciplines and classes whose parent is a handle.
func (d *NetDevice) Below(handle string) []QueueFacts {
	var out []QueueFacts
	for _, q := range d.Queues {
		if q.Parent == handle {
			out = append(out, q)
		}
	}
	return out
}

// Leaves returns the classes without classes below them. Their own queue, if it is not the kernel's default,
// is below them.
func (d *NetDevice) Leaves() []QueueFacts {
	var out []QueueFacts
	for _, q := range d.Queues {
		if q.Class && !slices.ContainsFunc(d.Below(q.Handle), func(b QueueFacts) bool { return b.Class }) {
			out = append(out, q)
		}
	}
	return out
}

// Rated reports whether any queueing discipline of the device limits traffic to a rate.
func (d *NetDevice) Rated() bool {
	return slices.ContainsFunc(d.Queues, func(q QueueFacts) bool {
		return q.RateBps > 0 || q.CeilBps > 0 || q.FlowRateBps > 0
	})
}

// maxRate returns the rate to which a class, or a queue in place of one, limits its traffic. A class of HTB
// borrows up to its ceiling from the classes above it; the topmost borrows from none, so its own rate counts
// (tc-htb(8)).
func (d *NetDevice) maxRate(c QueueFacts) float64 {
	most := max(c.CeilBps, c.RateBps)
	if c.Kind != "htb" {
		return most
	}

	for range d.Queues { // no tree is deeper
		most = min(most, max(c.CeilBps, c.RateBps))
		above := slices.IndexFunc(d.Queues, func(q QueueFacts) bool {
			return q.Class && q.Handle == c.Parent
		})
		if above < 0 {
			return min(most, cmp.Or(c.RateBps, most))
		}

		c = d.Queues[above]
	}

	return most
}

// RateBps returns the rate to which the device limits everything that leaves it; 0 if there is no limit, or
// if classes with different rates do.
func (d *NetDevice) RateBps() float64 {
	root, _ := d.Root()
	if root.RateBps > 0 {
		return root.RateBps
	}

	rate := 0.0
	leaves := d.Leaves()
	if len(leaves) == 0 { // such as prio, whose bands are not classes
		leaves = slices.DeleteFunc(slices.Clone(d.Queues), func(q QueueFacts) bool {
			return q.Parent == "root" || !strings.HasPrefix(q.Parent, root.Handle)
		})
	}

	for _, c := range leaves {
		ceil := d.maxRate(c)
		below := d.Below(c.Handle)
		if ceil == 0 && len(below) > 0 {
			ceil = below[0].RateBps
		}

		if ceil == 0 { // such as an idle band of ets
			continue
		}

		if rate > 0 && ceil != rate {
			return 0
		}

		rate = ceil
	}

	return rate
}
