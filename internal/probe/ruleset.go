package probe

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Ruleset holds the rules of a packet filter, read over netlink or parsed from the output of nft(8). The
// rules of each chain are in order.
type Ruleset struct {
	Chains     []record.FilterChain
	Rules      []FoundRule
	Flowtables []record.FoundFlowtable
}

// FoundRule holds a rule of the packet filter. A parser calls its methods in the order of the rule's
// statements.
type FoundRule struct {
	record.FilterRule
	Jump       string // chain of a jump or goto
	Goto       bool   // packets do not return from the chain that they jump to
	Map        bool   // a map sends packets to unknown chains
	Conditions int    // number of matches, without matches on the connection's state
	States     uint32 // connection states that match, as bits of nftables; 0 means any
	Verdict    string
}

// Bits of connection states (linux/netfilter/nf_conntrack_common.h).
const (
	StateInvalid = 1 << iota
	StateEstablished
	StateRelated
	StateNew
	StateUntracked = 64
)

// connectionStates lists all states, with the names and in the order of nft(8).
var connectionStates = [...]struct {
	name string
	bit  uint32
}{{"invalid", StateInvalid}, {"established", StateEstablished}, {"related", StateRelated}, {"new", StateNew},
	{"untracked", StateUntracked}}

// StateOf returns the bit of a state by its name, or 0 if there is none.
func StateOf(name string) uint32 {
	for _, s := range connectionStates {
		if s.name == name {
			return s.bit
		}
	}
	return 0
}

// maxRuleText limits the length of a rule's text, in bytes.
const maxRuleText = 120

// Do adds a statement. kind is one of the kinds that record.FilterRule lists, or "".
func (r *FoundRule) Do(kind, text string) {
	if kind != "" && !slices.Contains(r.Kinds, kind) {
		r.Kinds = append(r.Kinds, kind)
	}

	if text = strings.TrimSpace(r.Text + " " + text); len(text) <= maxRuleText {
		r.Text = text
	}
}

// InStates adds a "ct state …" match.
func (r *FoundRule) InStates(states uint32) {
	r.States = states
	var names []string
	for _, s := range connectionStates {
		if states&s.bit != 0 {
			names = append(names, s.name)
		}
	}

	kind := ""
	outside := uint32(StateInvalid | StateUntracked)
	if states&outside != 0 && states&^outside == 0 { // matches only packets that belong to no connection
		kind = record.RuleInvalid
	}

	r.Do(kind, "ct state "+strings.Join(names, ","))
}

// Count sets the rule's counter.
func (r *FoundRule) Count(packets, bytes int64) { r.Packets, r.Bytes = &packets, &bytes }

// LimitTo adds a "limit rate …" statement. The limit is rate packets or bytes, depending on unit, in the
// given number of seconds.
func (r *FoundRule) LimitTo(rate, seconds uint64, unit string, burst uint64, over bool) {
	if seconds == 0 {
		return
	}

	r.Limit = &record.RateLimit{
		Rate:  float64(rate) / float64(seconds),
		Unit:  unit,
		Burst: float64(burst),
		Over:  over,
	}
	text := "limit rate " + overText(over)
	per := map[uint64]string{1: "second", 60: "minute", 3600: "hour", 86_400: "day", 604_800: "week"}[seconds]
	amount := func(v uint64) string {
		if unit == "packets" {
			return fmt.Sprint(v)
		}
		return bytesText(v)
	}
	text += amount(rate) + "/" + cmp.Or(per, fmt.Sprintf("%d s", seconds))
	if burst != 0 && burst != 5 { // the burst is not the default
		text += " burst " + amount(burst)
		if unit == "packets" {
			text += " packets"
		}
	}

	r.Do(record.RuleLimit, text)
}

// Quota adds a "quota …" statement.
func (r *FoundRule) Quota(bytes uint64, over bool) {
	r.Do(record.RuleLimit, "quota "+overText(over)+bytesText(bytes))
}

// Connections adds a "ct count …" statement.
func (r *FoundRule) Connections(n uint64, over bool) {
	r.Do(record.RuleLimit, "ct count "+overText(over)+fmt.Sprint(n))
}

func overText(over bool) string {
	if over {
		return "over "
	}
	return ""
}

// bytesText formats a number of bytes like nft(8).
func bytesText(v uint64) string {
	switch {
	case v >= 1<<20 && v%(1<<20) == 0:
		return fmt.Sprintf("%d mbytes", v>>20)
	case v >= 1<<10 && v%(1<<10) == 0:
		return fmt.Sprintf("%d kbytes", v>>10)
	}
	return fmt.Sprintf("%d bytes", v)
}

// Decide sets the verdict: "accept", "drop", "return", "continue", "jump", "goto" or "queue". chain is the
// target of a jump or goto.
func (r *FoundRule) Decide(verdict, chain string) {
	if r.Verdict = verdict; verdict == "jump" || verdict == "goto" {
		r.Jump = chain
		r.Goto = verdict == "goto"
		return
	}

	kind := map[string]string{"drop": record.RuleDrop, "queue": record.RuleQueue}[verdict]
	r.Do(kind, verdict)
}

// Each adds a statement that updates a set and applies the statements of inner to each element.
func (r *FoundRule) Each(set string, inner FoundRule) {
	kind := ""
	switch {
	case slices.Contains(inner.Kinds, record.RuleLimit):
		kind, r.Limit = record.RuleFlowMeter, cmp.Or(r.Limit, inner.Limit)
	case inner.Packets != nil:
		kind = record.RuleCount
		inner.Text = "counter"
	}

	r.Do(kind, set+" { "+inner.Text+" }")
}

// Refer adds a reference to a named object: a "counter", "quota", "limit" or "ct count".
func (r *FoundRule) Refer(object, name string) {
	kind := record.RuleLimit
	switch object {
	case "":
		return
	case "counter":
		kind = record.RuleCount
	}

	r.Do(kind, object+" name "+name)
}

// Extend adds a match or target of iptables, by its iptables name.
func (r *FoundRule) Extend(target bool, name string) {
	kind := map[string]string{"limit": record.RuleLimit, "hashlimit": record.RuleFlowMeter,
		"connlimit": record.RuleLimit, "quota": record.RuleLimit, "statistic": record.RuleRandom,
		"REJECT": record.RuleReject, "NFQUEUE": record.RuleQueue, "LOG": record.RuleLog,
		"NFLOG": record.RuleLog, "TCPMSS": record.RuleTCPOption, "TCPOPTSTRIP": record.RuleTCPOption,
		"NOTRACK": record.RuleNoTrack, "TEE": record.RuleCopy}[name]
	if !target {
		r.Conditions++
	} else {
		r.Verdict = cmp.Or(r.Verdict, name)
	}

	if kind != "" {
		r.Do(kind, "xt "+name)
	}
}

// End completes the rule after its last statement.
func (r *FoundRule) End() {
	r.Own = ours(r.Table)
	if r.Packets != nil && r.Verdict == "" && !r.Map && len(r.Kinds) == 0 {
		r.Do(record.RuleCount, "counter")
	}
}

// ByState adds "ct state vmap { … }", with a verdict for each state.
func (r *FoundRule) ByState(verdicts map[string]string) {
	var parts []string
	kind := ""
	for _, state := range connectionStates {
		verdict := verdicts[state.name]
		if verdict == "" {
			continue
		}

		parts = append(parts, state.name+" : "+verdict)
		word, _, _ := strings.Cut(verdict, " ")
		switch {
		case word == "jump" || word == "goto":
			r.Map = true
		case state.bit == StateEstablished:
			r.States, r.Verdict = StateEstablished, word
		case state.bit == StateInvalid && word == "drop":
			kind = record.RuleInvalid
		}
	}

	r.Do(kind, "ct state vmap { "+strings.Join(parts, ", ")+" }")
}

// takes reports whether the rule applies to at least some packets of established connections, and whether it
// applies to all of them.
func (r *FoundRule) takes() (some, all bool) {
	some = r.States == 0 || r.States&StateEstablished != 0
	part := slices.ContainsFunc(r.Kinds, func(kind string) bool {
		return kind == record.RuleLimit || kind == record.RuleFlowMeter || kind == record.RuleRandom
	})
	return some, some && r.Conditions == 0 && !part
}

// chainWalk follows packets through chains, from a chain with a hook. It tracks packets of established
// connections separately from other packets.
type chainWalk struct {
	rules  []FoundRule
	chains map[string][]int    // indexes of rules by chain; for the keys, see chainKey
	jumped map[string][]string // chains that have no hook, by table
	known  []bool              // by rule: whether packets of established connections match it
	seen   map[int]bool        // indexes of the rules that packets reach
	done   map[walked]bool
}

type walked struct {
	chain       string
	established bool
}

func chainKey(family, table, chain string) string { return family + " " + table + " " + chain }

// follow walks through a chain. established specifies whether packets of established connections enter the
// chain. follow reports whether such packets return from its end.
func (w *chainWalk) follow(chain string, established bool) bool {
	at := walked{chain, established}
	out, again := w.done[at]
	if again {
		return out
	}

	w.done[at] = established // ends the walk in case of a loop, although the kernel rejects loops
	here, back := established, false
	for _, i := range w.chains[chain] {
		r := &w.rules[i]
		some, all := r.takes()
		w.seen[i] = true
		w.known[i] = w.known[i] || here && some
		on := true
		switch {
		case r.Jump != "":
			on = w.follow(chainKey(r.Family, r.Table, r.Jump), here && some)
			if r.Goto {
				back = back || here && some && on
				on = false
			}
		case r.Map:
			all := walked{chainKey(r.Family, r.Table, ""), here}
			if w.done[all] {
				break
			}

			w.done[all] = true
			for _, other := range w.jumped[all.chain] {
				w.follow(other, here)
			}
		case r.Verdict == "return":
			back = back || here && some
			on = false
		case r.Verdict == "accept" || r.Verdict == "drop":
			on = false
		}

		here = here && (on || !all)
	}

	w.done[at] = here || back
	return here || back
}

// PacketFilter summarises the rules: it reports which chains and rules packets reach, and which actions
// other than accept the rules have.
func (s Ruleset) PacketFilter() *record.PacketFilter {
	f := &record.PacketFilter{Flowtables: s.Flowtables[:min(len(s.Flowtables), maxChains)]}
	slices.SortStableFunc(s.Chains, func(a, b record.FilterChain) int {
		return cmp.Compare(strings.Index(b.Hook, "forward"), strings.Index(a.Hook, "forward"))
	})
	if more := len(s.Chains) - maxChains; more > 0 {
		s.Chains = s.Chains[:maxChains]
		f.MoreChains = more
	}

	w := &chainWalk{
		rules:  s.Rules,
		chains: map[string][]int{},
		jumped: map[string][]string{},
		known:  make([]bool, len(s.Rules)),
	}
	hooked := map[string]bool{}
	for _, c := range s.Chains {
		hooked[chainKey(c.Family, c.Table, c.Name)] = true
	}

	for i, r := range s.Rules {
		key := chainKey(r.Family, r.Table, r.Chain)
		table := chainKey(r.Family, r.Table, "")
		if w.chains[key] == nil && !hooked[key] {
			w.jumped[table] = append(w.jumped[table], key)
		}

		w.chains[key] = append(w.chains[key], i)
	}

	for _, c := range s.Chains {
		w.seen = map[int]bool{}
		w.done = map[walked]bool{}
		w.follow(chainKey(c.Family, c.Table, c.Name), true)
		for i := range w.seen {
			r := &s.Rules[i]
			if !slices.Contains(r.Hooks, c.Hook) {
				r.Hooks = append(r.Hooks, c.Hook)
			}
		}

		c.Rules, c.Own = len(w.seen), ours(c.Table)
		f.Chains = append(f.Chains, c)
	}

	for i, r := range s.Rules {
		if len(r.Kinds) > 0 && len(r.Hooks) > 0 {
			slices.Sort(r.Hooks)
			r.NewOnly = !w.known[i]
			f.Rules = append(f.Rules, r.FilterRule)
		}
	}

	rank := func(r record.FilterRule) int {
		forward := slices.Contains(r.Hooks, "forward")
		return slices.Index([]bool{!r.Own && !r.NewOnly && forward, !r.Own && !r.NewOnly, !r.Own, true}, true)
	}
	slices.SortStableFunc(f.Rules, func(a, b record.FilterRule) int { return cmp.Compare(rank(a), rank(b)) })
	if more := len(f.Rules) - record.MaxFilterRules; more > 0 {
		f.Rules = f.Rules[:record.MaxFilterRules]
		f.MoreRules = more
	}

	for i := range f.Flowtables {
		f.Flowtables[i].Own = ours(f.Flowtables[i].Table)
	}

	return f
}

func ours(table string) bool { return strings.HasPrefix(table, kernel.TablePrefix) }
