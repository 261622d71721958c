package record

import (
	"cmp"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Inventory lists everything on a node that packets may pass through: devices with their queues, the packet
// filter, and other receivers of packets. A part that could not be read is absent, and Missing contains the
// reason.
type Inventory struct {
	Devices   []NetDevice   `json:"devices,omitempty"` // devices that are up, except loopback
	Filter    *PacketFilter `json:"filter,omitempty"`
	Taps      []Tap         `json:"taps,omitempty"`
	NFQueues  []NFQueue     `json:"nfqueues,omitempty"`
	Conntrack *Conntrack    `json:"conntrack,omitempty"`
	XFRM      *XFRMStates   `json:"xfrm,omitempty"`
	// BridgeFilter is true if the IPv4 packet filter also processes bridged packets
	// (bridge-nf-call-iptables).
	BridgeFilter *bool `json:"bridge_filter,omitempty"`
	// Missing contains the reason for each unknown part. The parts are "devices", "filter", "iptables",
	// "taps", "nfqueues", "conntrack", "xfrm", "bridge_filter", or "all".
	Missing map[string]string `json:"missing,omitempty"`
}

// NoInventory returns an empty inventory and records why nothing is known.
func NoInventory(why string) *Inventory { return &Inventory{Missing: map[string]string{"all": why}} }

// Lacks returns the reason why a part of the inventory is unknown, or "" if it is known.
func (v *Inventory) Lacks(part string) string {
	if v == nil {
		return "it was not read"
	}

	if why, ok := v.Missing["all"]; ok {
		return why
	}
	return v.Missing[part]
}

// Kinds of network devices for which the kernel has no name.
const (
	DevicePhysical = "physical"
	DeviceVirtual  = "virtual" // virtual device of unknown kind
)

// NetDevice describes a network device with its qdiscs, classes and filters.
type NetDevice struct {
	Name      string        `json:"name"`
	Port      string        `json:"port,omitempty"`   // port in the topology
	Kind      string        `json:"kind,omitempty"`   // "physical", "bridge", "bond", "vlan", "ifb", "veth" …
	Master    string        `json:"master,omitempty"` // bridge or bond that the device belongs to
	Lower     string        `json:"lower,omitempty"`  // underlying device
	MTU       int           `json:"mtu,omitempty"`
	SpeedMbps float64       `json:"speed_mbps,omitempty"`
	Queues    []QueueFacts  `json:"queues"`
	Filters   []QueueFilter `json:"filters,omitempty"`
	Missing   string        `json:"missing,omitempty"` // reason if Queues or Filters is incomplete
}

// Tap counts packet sockets (AF_PACKET) of one kind. Each socket receives a copy of every matching packet.
type Tap struct {
	Device   string `json:"device,omitempty"` // "" means all
	Type     string `json:"type"`             // "raw" or "dgram"
	Protocol string `json:"protocol"`         // hexadecimal EtherType; "0003" means all
	Sockets  int    `json:"sockets"`
}

// NFQueue describes a queue through which the packet filter passes packets to a program (NFQUEUE).
type NFQueue struct {
	Number      int   `json:"number"`
	Waiting     int64 `json:"waiting"`
	Dropped     int64 `json:"dropped"`      // dropped because the queue was full
	UserDropped int64 `json:"user_dropped"` // dropped because the program's socket was full
}

// Conntrack describes the table of tracked connections.
type Conntrack struct {
	Max   int64 `json:"max"`
	Count int64 `json:"count"`
}

// XFRMStates holds the number and properties of IPsec security associations.
type XFRMStates struct {
	States   int `json:"states"`
	Replayed int `json:"with_replay_window"`
	// MinWindow is the smallest replay window in packets; 0 means none.
	MinWindow int `json:"min_window,omitempty"`
}

// MaxFilterRules limits the number of rules that PacketFilter lists.
const MaxFilterRules = 64

// PacketFilter describes the nftables chains and rules that delay packets or decide about them.
type PacketFilter struct {
	Chains     []FilterChain `json:"chains,omitempty"`      // chains with a hook
	MoreChains int           `json:"more_chains,omitempty"` // number of unlisted chains with a hook
	// Rules lists at most MaxFilterRules rules with actions other than accept. Rules that packets of
	// established connections reach come first.
	Rules      []FilterRule     `json:"rules,omitempty"`
	MoreRules  int              `json:"more_rules,omitempty"` // number of such rules that are not listed
	Flowtables []FoundFlowtable `json:"flowtables,omitempty"`
	// LegacyEntries contains the number of entries in each table of iptables-legacy, without chain policies.
	// The keys are the names of the tables, such as "filter" for IPv4 and "ip6 filter" for IPv6. The actions
	// of the entries are not read.
	LegacyEntries map[string]int `json:"iptables_legacy,omitempty"`
}

// FilterChain describes a chain with a hook. Rules is the number of rules that packets of the chain may
// reach. It includes rules in chains that the packets jump to.
type FilterChain struct {
	Family   string `json:"family"` // "ip", "ip6", "inet", "bridge", "netdev", "arp"
	Table    string `json:"table"`
	Name     string `json:"name"`
	Hook     string `json:"hook"` // "forward", "prerouting" …
	Priority int    `json:"priority"`
	Policy   string `json:"policy,omitempty"`
	Device   string `json:"device,omitempty"` // only for family netdev
	Rules    int    `json:"rules"`
	Own      bool   `json:"own,omitempty"` // created by chokepoint
}

// Effects of rules, for FilterRule.Kinds.
const (
	RuleLimit     = "limit"      // limits a rate, volume or number of connections
	RuleFlowMeter = "flow-meter" // limits the traffic of each flow or address
	RuleDrop      = "drop"
	RuleReject    = "reject"
	RuleInvalid   = "invalid" // matches packets that belong to no connection
	RuleQueue     = "queue"   // passes packets to a program
	RuleLog       = "log"
	RuleCount     = "count"      // has a named counter, or a counter but no verdict
	RuleTCPOption = "tcp-option" // changes or removes a TCP option, such as the MSS
	RuleOffload   = "offload"    // adds connections to a flowtable
	RuleNoTrack   = "notrack"
	RuleRandom    = "random"
	RuleCopy      = "copy" // sends packets, or copies of them, elsewhere
)

// FilterRule describes a packet filter rule with actions other than accept. Text is the rule in the syntax of
// nft(8), without addresses, device names and comments.
type FilterRule struct {
	Family string   `json:"family"`
	Table  string   `json:"table"`
	Chain  string   `json:"chain"`
	Handle int64    `json:"handle"`
	Own    bool     `json:"own,omitempty"`   // created by chokepoint
	Hooks  []string `json:"hooks,omitempty"` // hooks whose packets may reach the rule
	// NewOnly is set if an earlier rule accepts all packets of established connections. This rule then sees
	// only packets of new connections.
	NewOnly bool       `json:"new_only,omitempty"`
	Kinds   []string   `json:"kinds"`
	Text    string     `json:"text"`
	Limit   *RateLimit `json:"limit,omitempty"`
	Packets *int64     `json:"packets,omitempty"` // nil if the rule has no counter
	Bytes   *int64     `json:"bytes,omitempty"`
}

// RateLimit describes the rate limit of a rule.
type RateLimit struct {
	Rate  float64 `json:"rate"` // packets or bytes per second
	Unit  string  `json:"unit"` // "packets" or "bytes"
	Burst float64 `json:"burst,omitempty"`
	Over  bool    `json:"over,omitempty"` // the rule matches traffic above the limit, not below it
}

// FoundFlowtable describes a flowtable of the packet filter.
type FoundFlowtable struct {
	Family  string   `json:"family"`
	Table   string   `json:"table"`
	Name    string   `json:"name"`
	Devices []string `json:"devices,omitempty"`
	Flags   []string `json:"flags,omitempty"` // "offload" (to hardware), "counter"
	Own     bool     `json:"own,omitempty"`   // created by chokepoint
}

// SkippedBy returns the first rule that connections in a flowtable bypass. Such a rule is at the forward hook
// and is reached by packets of established connections, which it limits, drops, redirects, logs or counts.
// SkippedBy ignores rules created by chokepoint.
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

// PacketsOf returns the packet counter that this inventory has for a rule from another inventory. It returns
// 0 if the rule or its counter is missing.
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

// QueueFacts describes a qdisc or class. Handle and Parent have the format of tc(8).
type QueueFacts struct {
	Class        bool    `json:"class,omitempty"` // set for a class, which queues no packets itself
	Kind         string  `json:"kind"`
	Handle       string  `json:"handle"`                  // "8001:" for a qdisc, "1:10" for a class
	Parent       string  `json:"parent"`                  // "root", "ingress", "clsact" or a handle
	RateBps      float64 `json:"rate_bps,omitempty"`      // rate limit; for a class, the guaranteed rate
	CeilBps      float64 `json:"ceil_bps,omitempty"`      // maximum rate of a class
	FlowRateBps  float64 `json:"flow_rate_bps,omitempty"` // maximum rate of each flow
	BurstBytes   float64 `json:"burst_bytes,omitempty"`   // bytes that may be sent at once
	LimitBytes   float64 `json:"limit_bytes,omitempty"`   // maximum length of the queue
	LimitPackets float64 `json:"limit_packets,omitempty"` // maximum length of the queue
	Level        string  `json:"level,omitempty"`         // kind and parameters, as in the queue factor
	Missing      string  `json:"missing,omitempty"`       // reason if some parameters are unknown
}

// Words describes the qdisc or class as a level of the queue factor. If parameters are missing, Words returns
// only the kind and the rates.
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

// Words describes the filter by its kind and action, and by its target or rate.
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

// QueueFilter describes a traffic control filter and its action on matching packets.
type QueueFilter struct {
	Parent  string  `json:"parent"`
	Kind    string  `json:"kind"`               // "u32", "matchall", "flower" …
	Action  string  `json:"action"`             // "redirect", "mirror", "police", "drop", "class" …
	To      string  `json:"to,omitempty"`       // device of a redirect, or name of the class
	RateBps float64 `json:"rate_bps,omitempty"` // only for a policer
}

// Device returns the device at a port of the topology. If there is none, it returns the device whose name is
// port, or nil.
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

// egressFilters is the parent of clsact's filters for packets that leave the device.
const egressFilters = "ffff:fff3"

func (d *NetDevice) clsact() bool {
	return slices.ContainsFunc(d.Queues, func(q QueueFacts) bool { return q.Kind == "clsact" })
}

// filters returns the filters that apply an action to packets leaving the device. If egress is false, it
// returns those for arriving packets. Filters of the qdisc "ingress" apply only to arriving packets.
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

// RedirectsTo lists the devices, such as an ifb, to which filters redirect packets leaving the device or, if
// egress is false, arriving packets.
func (d *NetDevice) RedirectsTo(egress bool) (out []string) {
	for _, f := range d.filters("redirect", egress) {
		if f.To != "" && !slices.Contains(out, f.To) {
			out = append(out, f.To)
		}
	}
	return out
}

// FiltersLeaving reports whether filters process packets that leave the device before they are queued.
func (d *NetDevice) FiltersLeaving() bool {
	return d != nil && (d.Polices(true) || d.clsact())
}

// Polices reports whether a filter polices packets leaving the device or, if egress is false, arriving
// packets.
func (d *NetDevice) Polices(egress bool) bool { return len(d.filters("police", egress)) > 0 }

// Root returns the device's root qdisc.
func (d *NetDevice) Root() (QueueFacts, bool) {
	i := slices.IndexFunc(d.Queues, func(q QueueFacts) bool { return !q.Class && q.Parent == "root" })
	if i < 0 {
		return QueueFacts{}, false
	}
	return d.Queues[i], true
}

// Below returns the qdiscs and classes whose parent has the given handle.
func (d *NetDevice) Below(handle string) []QueueFacts {
	var out []QueueFacts
	for _, q := range d.Queues {
		if q.Parent == handle {
			out = append(out, q)
		}
	}
	return out
}

// Leaves returns the classes that have no child classes. The qdisc of such a class is its child, unless the
// qdisc is the kernel's default.
func (d *NetDevice) Leaves() []QueueFacts {
	var out []QueueFacts
	for _, q := range d.Queues {
		if q.Class && !slices.ContainsFunc(d.Below(q.Handle), func(b QueueFacts) bool { return b.Class }) {
			out = append(out, q)
		}
	}
	return out
}

// Rated reports whether a qdisc or class of the device has a rate limit.
func (d *NetDevice) Rated() bool {
	return slices.ContainsFunc(d.Queues, func(q QueueFacts) bool {
		return q.RateBps > 0 || q.CeilBps > 0 || q.FlowRateBps > 0
	})
}

// maxRate returns the maximum rate in bit/s of a class, or of a qdisc that takes the place of a class. An
// HTB class can borrow up to its ceiling from its ancestors. The topmost class cannot borrow, so its own
// rate is the limit (tc-htb(8)).
func (d *NetDevice) maxRate(c QueueFacts) float64 {
	most := max(c.CeilBps, c.RateBps)
	if c.Kind != "htb" {
		return most
	}

	for range d.Queues { // limit for the case of a loop; no tree is deeper than this
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

// RateBps returns the rate in bit/s that limits all traffic leaving the device. It returns 0 if there is no
// limit or if classes have different limits.
func (d *NetDevice) RateBps() float64 {
	root, _ := d.Root()
	if root.RateBps > 0 {
		return root.RateBps
	}

	rate := 0.0
	leaves := d.Leaves()
	if len(leaves) == 0 { // as for prio, whose bands are not listed as classes
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

		if ceil == 0 { // as for an unused band of ets
			continue
		}

		if rate > 0 && ceil != rate {
			return 0
		}

		rate = ceil
	}

	return rate
}
