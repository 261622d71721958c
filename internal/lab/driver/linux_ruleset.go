package driver

import (
	"errors"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// These maps contain the values of the chain priorities that nft(8) prints by name. The bridge family has
// values of its own.
var (
	priorities = map[string]int{"raw": -300, "mangle": -150, "dstnat": -100, "filter": 0, "security": 50,
		"srcnat": 100}
	bridgePriorities = map[string]int{"dstnat": -300, "filter": -200, "out": 100, "srcnat": 300}
)

// maxRule is the maximum length of a rule that spans several lines, in bytes.
const maxRule = 8 << 10

var (
	quoted    = check.Pattern(`"[^"]*"`)
	extension = check.Pattern(`\b(?:xt|#) (match|target) "?([A-Za-z0-9]+)"?`)
	named     = check.Pattern(`\bname "([^"]*)"`)
	handleEnd = check.Pattern(` # handle (\d+)$`)
)

// rulesetReader parses the output of nft -a list ruleset line by line.
type rulesetReader struct {
	probe.Ruleset
	family, table string
	block, name   string // keyword and name of the current chain, flowtable or other object, or ""
}

// parseRuleset parses the output of nft -a list ruleset.
func parseRuleset(text string) (probe.Ruleset, error) {
	var r rulesetReader
	whole := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if r.table == "" && (strings.HasPrefix(line, "Error") || strings.HasPrefix(line, "netlink:") ||
			strings.Contains(line, "Operation not permitted")) {
			return probe.Ruleset{}, errors.New("nft: " + line)
		}

		// A set within a rule may span several lines.
		if whole = strings.TrimSpace(whole + " " + line); r.block == "chain" && len(whole) < maxRule &&
			strings.Count(whole, "{") > strings.Count(whole, "}") {
			continue
		}

		r.line(whole)
		whole = ""
	}

	return r.Ruleset, nil
}

func (r *rulesetReader) line(line string) {
	var handle int64
	m := handleEnd().FindStringSubmatch(line)
	if m != nil {
		handle, _ = strconv.ParseInt(m[1], 10, 64) // 0 on overflow
		line = strings.TrimSuffix(line, m[0])
	}

	words := strings.Fields(line)
	opens := strings.HasSuffix(line, "{")
	switch {
	case len(words) == 0:
	case words[0] == "}" && r.block != "":
		r.block = ""
	case words[0] == "}":
		r.table = ""
	case r.table == "" && words[0] == "table" && opens && len(words) >= 4:
		r.family = words[1]
		r.table = words[2]
	case r.table == "":
	case r.block == "" && opens:
		r.block = words[0]
		r.name = words[max(0, len(words)-2)]
		if r.block == "flowtable" {
			r.Flowtables = append(r.Flowtables, record.FoundFlowtable{
				Family: r.family,
				Table:  r.table,
				Name:   r.name,
			})
		}
	case r.block == "flowtable":
		r.inFlowtable(line, words[0])
	case r.block != "chain": // such as an element of a set, "flags dormant" or a comment
	case words[0] == "type" && len(words) > 4 && words[2] == "hook":
		r.hook(words)
	case words[0] != "comment" && words[0] != "policy":
		r.rule(line, handle)
	}
}

// inFlowtable parses a line within a flowtable.
func (r *rulesetReader) inFlowtable(line, keyword string) {
	t := &r.Flowtables[len(r.Flowtables)-1]
	switch keyword {
	case "devices":
		_, list, _ := strings.Cut(line, "{")
		t.Devices = append(t.Devices, strings.FieldsFunc(list, func(c rune) bool {
			return strings.ContainsRune(` ,"{};`, c)
		})...)
	case "flags":
		if strings.Contains(line, "offload") {
			t.Flags = append(t.Flags, "offload")
		}
	case "counter", "counter;":
		t.Flags = append(t.Flags, "counter")
	}
}

// hook parses a line such as "type filter hook forward [device "eth0"] priority filter + 1; policy drop;".
func (r *rulesetReader) hook(words []string) {
	c := record.FilterChain{Family: r.family, Table: r.table, Name: r.name, Hook: words[3]}
	names := priorities
	if r.family == "bridge" {
		names = bridgePriorities
	}

	for word, next := range pairs(words[4:]) {
		next = strings.Trim(next, `";`)
		switch word {
		case "device":
			c.Device = next
		case "policy":
			c.Policy = next
		case "priority":
			known, ok := names[next]
			if !ok {
				known, _ = strconv.Atoi(next) // 0 if the name is unknown
			}

			c.Priority = known
		case "+", "-":
			more, _ := strconv.Atoi(word + next)
			c.Priority += more
		}
	}

	r.Chains = append(r.Chains, c)
}

// rule parses a rule from which the handle was removed. It ignores quoted text, such as comments.
func (r *rulesetReader) rule(line string, handle int64) {
	f := probe.FoundRule{FilterRule: record.FilterRule{
		Family: r.family,
		Table:  r.table,
		Chain:  r.name,
		Handle: handle,
	}}
	for _, m := range extension().FindAllStringSubmatch(line, -1) {
		f.Extend(m[1] == "target", m[2])
	}

	line = named().ReplaceAllString(extension().ReplaceAllString(line, ""), "name $1")
	line = quoted().ReplaceAllString(line, `""`)
	line, _, _ = strings.Cut(line, ` comment ""`)
	for _, c := range []string{"{", "}", ",", ":"} {
		if c != ":" || strings.Contains(line, "vmap") {
			line = strings.ReplaceAll(line, c, " "+c+" ")
		}
	}

	s := statements{words: strings.Fields(line), FoundRule: &f}
	s.read()
	f.End()
	r.Rules = append(r.Rules, f)
}

// statements holds the words of a rule. The words before index at have been parsed.
type statements struct {
	*probe.FoundRule
	words []string
	at    int
}

// next returns the next word, or "" at the end.
func (s *statements) next() string {
	if s.at >= len(s.words) {
		return ""
	}

	s.at++
	return s.words[s.at-1]
}

// takes skips the given words if they come next, and reports whether they did.
func (s *statements) takes(words ...string) bool {
	if s.at+len(words) > len(s.words) {
		return false
	}

	for i, w := range words {
		if s.words[s.at+i] != w {
			return false
		}
	}

	s.at += len(words)
	return true
}

func (s *statements) number() uint64 {
	n, err := strconv.ParseUint(s.next(), 10, 63)
	if err != nil {
		return 0
	}
	return n
}

// amount parses an amount such as "2 mbytes", or a rate such as "2 mbytes/second". per is the rate's unit of
// time.
func (s *statements) amount() (v uint64, per string, bytes bool) {
	number, per, _ := strings.Cut(s.next(), "/")
	v, err := strconv.ParseUint(number, 10, 32)
	if err != nil {
		return 0, "", false
	}

	if per != "" {
		return v, per, false
	}

	unit, per, _ := strings.Cut(s.next(), "/")
	switch unit {
	case "bytes":
		return v, per, true
	case "kbytes":
		return v << 10, per, true
	case "mbytes":
		return v << 20, per, true
	}

	return v, per, false
}

// block returns the words of a block whose opening brace has been read, and skips the closing brace.
func (s *statements) block() []string {
	from := s.at
	depth := 1
	for depth > 0 {
		switch s.next() {
		case "{":
			depth++
		case "}":
			depth--
		case "":
			return s.words[from:]
		}
	}

	return s.words[from : s.at-1]
}

// read parses all statements. It treats unknown words as parts of a condition.
func (s *statements) read() {
	for s.at < len(s.words) {
		switch {
		case s.takes("ct", "state"):
			s.states()
		case s.takes("ct", "count"):
			over := s.takes("over")
			s.Connections(s.number(), over)
		case s.takes("limit", "rate"):
			s.limit()
		case s.takes("limit", "name"), s.takes("quota", "name"), s.takes("counter", "name"):
			object := s.words[s.at-2]
			s.Refer(object, s.next())
		case s.takes("counter"):
			var packets, bytes uint64
			if s.takes("packets") {
				packets = s.number()
			}

			if s.takes("bytes") {
				bytes = s.number()
			}

			s.Count(int64(packets), int64(bytes))
		case s.takes("quota"):
			over := s.takes("over")
			s.takes("until")
			v, _, _ := s.amount()
			if s.Quota(v, over); s.takes("used") {
				s.amount()
			}
		case s.takes("flow", "add"), s.takes("flow", "offload"):
			s.Do(record.RuleOffload, "flow add "+s.next())
		case s.takes("reset", "tcp", "option"):
			s.Do(record.RuleTCPOption, "reset tcp option "+s.next())
		case s.takes("tcp", "option"):
			s.option()
		case s.takes("numgen", "random", "mod"):
			s.Do(record.RuleRandom, "numgen random mod "+s.next())
			s.Conditions++
		default:
			s.statement(s.next())
		}
	}
}

// states parses the words after "ct state".
func (s *statements) states() {
	switch {
	case s.takes("vmap", "{"):
		verdicts := map[string]string{}
		for element := range strings.SplitSeq(strings.Join(s.block(), " "), " , ") {
			if state, verdict, ok := strings.Cut(element, " : "); ok {
				verdicts[state] = verdict
			}
		}

		s.ByState(verdicts)
		return
	case s.takes("vmap"), s.takes("!="), s.takes("and"), s.takes("&"):
		s.Map = s.words[s.at-1] == "vmap"
		s.Conditions++
		return
	}

	list := []string{}
	if s.takes("{") {
		list = s.block()
	} else {
		for list = append(list, s.next()); s.takes(","); {
			list = append(list, s.next())
		}
	}

	bits := uint32(0)
	for _, name := range list {
		bits |= probe.StateOf(name)
	}

	s.InStates(bits)
}

// limit parses the words after "limit rate", such as "over 2 mbytes/second burst 10 kbytes".
func (s *statements) limit() {
	over := s.takes("over")
	rate, per, bytes := s.amount()
	unit := "packets"
	burst := uint64(5) // default value, which older versions of nft(8) do not print
	if bytes {
		unit, burst = "bytes", 0
	}

	if s.takes("burst") {
		burst, _, _ = s.amount()
	}

	s.LimitTo(rate, map[string]uint64{"second": 1, "minute": 60, "hour": 3600, "day": 86_400,
		"week": 604_800}[per], unit, burst, over)
}

// option parses the words after "tcp option": an action such as "maxseg size set rt mtu", or a condition.
func (s *statements) option() {
	name := s.next()
	s.takes("size")
	if !s.takes("set") {
		s.Conditions++
		return
	}

	if s.Do(record.RuleTCPOption, "tcp option "+name+" set"); !s.takes("rt", "mtu") {
		s.next()
	}
}

func (s *statements) statement(word string) {
	switch word {
	case "accept", "drop", "return", "continue":
		s.Decide(word, "")
	case "jump", "goto":
		s.Decide(word, s.next())
	case "reject":
		s.Verdict, s.at = "drop", len(s.words)
		s.Do(record.RuleReject, word)
	case "queue":
		number := "0"
		for s.takes("flags") || s.takes("to") || s.takes("num") {
			number = s.next()
		}

		s.Verdict, s.at = word, len(s.words)
		number, _, _ = strings.Cut(number, "-") // keep only the start of a range
		s.Do(record.RuleQueue, "queue num "+number)
	case "log":
		s.Do(record.RuleLog, word)
		for s.takes("prefix") || s.takes("level") || s.takes("group") || s.takes("snaplen") ||
			s.takes("queue-threshold") || s.takes("flags") {
			s.next()
		}
	case "notrack":
		s.Do(record.RuleNoTrack, word)
	case "dup", "fwd":
		s.Do(record.RuleCopy, word)
		s.Conditions++ // the following words are a condition
	case "masquerade", "snat", "dnat", "redirect", "tproxy", "synproxy":
		s.Verdict, s.at = word, len(s.words)
	case "add", "update", "meter":
		set := s.next()
		for s.at < len(s.words) && !s.takes("{") {
			s.next() // skip the size of a meter
		}

		inner := statements{words: s.block(), FoundRule: &probe.FoundRule{}}
		inner.read()
		s.Each("update @"+strings.TrimPrefix(set, "@"), *inner.FoundRule)
	case "vmap":
		s.Map = true
		s.Conditions++
	case "{":
		s.block()
		s.Conditions++
	default:
		s.Conditions++
	}
}
