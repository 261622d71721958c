package probe

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// wire holds the attributes of an nf_tables message, or of a nested attribute, by their numbers
// (linux/netfilter/nf_tables.h). Values are in network byte order.
type wire map[uint16][]byte

func wireOf(b []byte) wire {
	w := wire{}
	kernel.EachAttribute(b, func(kind uint16, v []byte) bool { w[kind] = v; return true })
	return w
}

func (w wire) text(at uint16) string { return string(bytes.TrimRight(w[at], "\x00")) }

func (w wire) number(at uint16) uint64 {
	switch v := w[at]; len(v) {
	case 1:
		return uint64(v[0])
	case 2:
		return uint64(binary.BigEndian.Uint16(v))
	case 4:
		return uint64(binary.BigEndian.Uint32(v))
	case 8:
		return binary.BigEndian.Uint64(v)
	}
	return 0
}

func (w wire) inner(at uint16) wire { return wireOf(w[at]) }

// families maps NFPROTO_* numbers (linux/netfilter.h) to names of families.
var families = map[uint8]string{1: "inet", 2: "ip", 3: "arp", 5: "netdev", 7: "bridge", 10: "ip6"}

// hookOf returns the name of a family's hook.
func hookOf(family string, number uint64) string {
	names := "prerouting input forward output postrouting ingress"
	switch family {
	case "netdev":
		names = "ingress egress"
	case "arp":
		names = "input output forward"
	}

	list := strings.Fields(names)
	if number < uint64(len(list)) {
		return list[number]
	}

	return "unknown"
}

// maxStateSets limits the number of sets of connection states that are read.
const maxStateSets = 16

// setReader reads the elements of a set.
type setReader func(family uint8, table, set string) ([][]byte, error)

// ReadRuleset parses a dump of the packet filter. It calls elements only for sets in which the connection's
// state is looked up.
func ReadRuleset(d kernel.FilterDump, elements setReader) Ruleset {
	var s Ruleset
	for _, m := range d.Chains {
		family, w := bodyOf(m)
		if family != "" {
			const table, name, hook, policy = 1, 3, 4, 5
			h := w.inner(hook)
			if len(h) == 0 {
				continue
			}

			const number, priority, device, devices = 1, 2, 3, 4
			c := record.FilterChain{
				Family:   family,
				Table:    w.text(table),
				Name:     w.text(name),
				Hook:     hookOf(family, h.number(number)),
				Priority: int(int32(h.number(priority))),
				Device:   h.text(device),
			}
			if c.Device == "" {
				c.Device = h.inner(devices).text(1)
			}

			if _, ok := w[policy]; ok {
				c.Policy = [...]string{"drop", "accept"}[min(w.number(policy), 1)]
			}

			s.Chains = append(s.Chains, c)
		}
	}

	asked := 0
	for _, m := range d.Rules {
		family, w := bodyOf(m)
		if family == "" {
			continue
		}

		const table, chain, handle, expressions = 1, 2, 3, 4
		r := ruleReader{
			FoundRule: FoundRule{FilterRule: record.FilterRule{
				Family: family,
				Table:  w.text(table),
				Chain:  w.text(chain),
				Handle: int64(w.number(handle)),
			}},
			set: func(set string) [][]byte {
				if asked++; asked > maxStateSets || elements == nil {
					return nil
				}

				all, _ := elements(m[0], w.text(table), set) // on an error, the map counts as unknown
				return all
			},
		}
		r.read(w[expressions])
		r.End()
		s.Rules = append(s.Rules, r.FoundRule)
	}

	for _, m := range d.Flowtables {
		family, w := bodyOf(m)
		if family != "" {
			const table, name, hook, flags, devices = 1, 2, 3, 7, 3
			t := record.FoundFlowtable{Family: family, Table: w.text(table), Name: w.text(name)}
			kernel.EachAttribute(w.inner(hook)[devices], func(_ uint16, v []byte) bool {
				t.Devices = append(t.Devices, string(bytes.TrimRight(v, "\x00")))
				return true
			})
			for i, word := range []string{"offload", "counter"} {
				if w.number(flags)>>i&1 == 1 {
					t.Flags = append(t.Flags, word)
				}
			}

			s.Flowtables = append(s.Flowtables, t)
		}
	}

	return s
}

// bodyOf parses the attributes after a struct nfgenmsg. family is "" if it is unknown.
func bodyOf(m []byte) (family string, w wire) {
	if len(m) < nfHeader {
		return "", nil
	}
	return families[m[0]], wireOf(m[nfHeader:])
}

// ruleReader parses the expressions of a rule.
type ruleReader struct {
	FoundRule
	set   func(set string) [][]byte
	state bool   // the register contains the connection's state
	mask  uint32 // bits of the state to compare
}

func (r *ruleReader) read(list []byte) {
	kernel.EachAttribute(list, func(_ uint16, e []byte) bool {
		const name, data = 1, 2
		w := wireOf(e)
		r.expression(w.text(name), w.inner(data))
		return true
	})
}

// tcpOptions maps TCP option numbers to their names in nft(8).
var tcpOptions = map[uint64]string{2: "maxseg", 3: "window", 4: "sack-perm", 5: "sack", 8: "timestamp"}

// expression parses one expression. Expressions that only load or change a register do not count as
// conditions.
func (r *ruleReader) expression(name string, w wire) {
	const inverted = 1 // flag of the expressions that limit a rate, a volume or a number of connections
	switch name {
	case "ct":
		const key, state = 2, 0
		if w.number(key) == state && w[4] == nil { // with NFTA_CT_SREG, it would set the state
			r.state, r.mask = true, 0
		}
	case "bitwise":
		const mask, value = 4, 1
		v := w.inner(mask)[value]
		if r.state && len(v) == 4 {
			r.mask = binary.NativeEndian.Uint32(v)
		}
	case "cmp":
		const op, unequal = 2, 1
		if r.state && r.mask != 0 && w.number(op) == unequal {
			r.InStates(r.mask)
		} else {
			r.Conditions++
		}

		r.state = false
	case "range", "fib", "socket", "osf":
		r.Conditions++
	case "lookup":
		r.lookup(w)
	case "limit":
		const rate, seconds, burst, kind, flags = 1, 2, 3, 4, 5
		unit := [...]string{"packets", "bytes"}[min(w.number(kind), 1)]
		r.LimitTo(w.number(rate), w.number(seconds), unit, w.number(burst), w.number(flags)&inverted != 0)
	case "quota":
		const amount, flags = 1, 2
		r.Quota(w.number(amount), w.number(flags)&inverted != 0)
	case "connlimit":
		const count, flags = 1, 2
		r.Connections(w.number(count), w.number(flags)&inverted != 0)
	case "dynset": // applies a limit to each element of a set
		const set, one, several = 1, 7, 10
		inner := ruleReader{set: r.set}
		e := w.inner(one)
		inner.expression(e.text(1), e.inner(2))
		inner.read(w[several])
		r.Each("update @"+w.text(set), inner.FoundRule)
	case "immediate":
		const register, data, verdict = 1, 2, 2
		if w.number(register) == 0 { // NFT_REG_VERDICT; with another register, it loads a value
			word, chain, _ := strings.Cut(verdictOf(w.inner(data).inner(verdict)), " ")
			r.Decide(word, chain)
		}
	case "counter":
		const bytes, packets = 1, 2
		r.Count(int64(w.number(packets)), int64(w.number(bytes)))
	case "objref":
		const kind, object = 1, 2
		r.Refer(map[uint64]string{1: "counter", 2: "quota", 4: "limit", 5: "ct count"}[w.number(kind)],
			w.text(object))
	case "reject":
		r.Verdict = "drop"
		r.Do(record.RuleReject, "reject")
	case "log":
		r.Do(record.RuleLog, "log")
	case "queue":
		r.Verdict = name
		r.Do(record.RuleQueue, "queue num "+strconv.FormatUint(w.number(1), 10))
	case "exthdr":
		const register, kind, op, from, tcpOption = 1, 2, 6, 7, 1
		option := cmp.Or(tcpOptions[w.number(kind)], strconv.FormatUint(w.number(kind), 10))
		switch _, written := w[from]; {
		case w.number(op) != tcpOption:
		case written:
			r.Do(record.RuleTCPOption, "tcp option "+option+" set")
		case w[register] == nil:
			r.Do(record.RuleTCPOption, "reset tcp option "+option)
		}
	case "flow_offload":
		r.Do(record.RuleOffload, "flow add @"+w.text(1))
	case "notrack":
		r.Do(record.RuleNoTrack, "notrack")
	case "numgen":
		const modulus, kind, random = 2, 3, 1
		if w.number(kind) == random {
			r.Do(record.RuleRandom, "numgen random mod "+strconv.FormatUint(w.number(modulus), 10))
		}
	case "dup", "fwd":
		r.Do(record.RuleCopy, name)
	case "nat", "masq", "redir", "tproxy", "synproxy":
		r.Verdict = name
	case "match", "target":
		r.extension(name == "target", w)
	}
}

// lookup parses a lookup in a set or in a verdict map.
func (r *ruleReader) lookup(w wire) {
	const set, result, flags = 1, 3, 5
	_, mapped := w[result]
	if !r.state || w.number(flags)&1 != 0 {
		r.Map = r.Map || mapped && w.number(result) == 0 // the result register is NFT_REG_VERDICT
		r.Conditions++
		return
	}

	r.state = false
	var states uint32
	verdicts := map[string]string{}
	for _, m := range r.set(w.text(set)) {
		_, body := bodyOf(m)
		kernel.EachAttribute(body[3], func(_ uint16, element []byte) bool { // NFTA_SET_ELEM_LIST_ELEMENTS
			const key, data, value, verdict = 1, 2, 1, 2
			e := wireOf(element)
			v := e.inner(key)[value]
			if len(v) == 4 {
				bit := binary.NativeEndian.Uint32(v)
				states |= bit
				for _, s := range connectionStates {
					if s.bit == bit {
						verdicts[s.name] = verdictOf(e.inner(data).inner(verdict))
					}
				}
			}

			return true
		})
	}

	switch {
	case states == 0: // the set could not be read
		r.Map = mapped
		r.Conditions++
	case mapped:
		r.ByState(verdicts)
	default:
		r.InStates(states)
	}
}

// verdictOf returns a verdict in the syntax of nft(8), or "" if it is unknown.
func verdictOf(w wire) string {
	const code, chain = 1, 2
	word := map[int32]string{0: "drop", 1: "accept", 3: "queue", -1: "continue", -2: "break", -3: "jump",
		-4: "goto", -5: "return"}[int32(w.number(code))]
	if word == "jump" || word == "goto" {
		word += " " + w.text(chain)
	}

	return word
}

// extension parses a match or target of iptables. A match on the connection's state is treated like "ct
// state".
func (r *ruleReader) extension(target bool, w wire) {
	const nameAt, revision, info = 1, 2, 3
	name := w.text(nameAt)
	b := w[info]
	// Offsets in struct xt_conntrack_mtinfo2 and xt_conntrack_mtinfo3: flags of matched properties, flags of
	// inverted properties, states.
	const flags, inverted, states, end, ofState = 146, 148, 150, 152, 1
	half := binary.NativeEndian.Uint16
	if name == "conntrack" && w.number(revision) >= 2 && len(b) >= end && half(b[flags:]) == ofState &&
		half(b[inverted:]) == 0 {
		r.InStates(uint32(half(b[states:])))
		return
	}

	if name == "state" && len(b) >= 4 { // b is a struct xt_state_info
		r.InStates(binary.NativeEndian.Uint32(b))
		return
	}

	r.Extend(target, name)
}
