package trial

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Patterns of text that may identify the owner of a router.
var (
	// wordLike matches words that may be an IP or hardware address. A word that is not an address may still
	// contain an IPv4 address, which ipv4 matches.
	wordLike = check.Pattern(`[0-9A-Fa-f][0-9A-Fa-f:.]+[0-9A-Fa-f:]|::[0-9A-Fa-f:.]*`)
	ipv4     = check.Pattern(`(?:[0-9]{1,3}\.){3}[0-9]{1,3}`)
	// hardware matches hardware addresses, and names that systemd derives from them.
	hardware = check.Pattern(`(?:[0-9A-Fa-f]{2}[:-]){5,19}[0-9A-Fa-f]{2}\b|\benx[0-9a-f]{12}\b`)
	// keyLike matches keys, digests and certificates in hexadecimal or base64. Base64 with slashes must end
	// in "=", because a path may contain slashes, too.
	keyLike = check.Pattern(`-----BEGIN[^-]*-----[^-]*(?:-----END[^-]*-----)?|` +
		`\b(?:0x)?[0-9A-Fa-f]{32,}\b|[0-9A-Za-z+/]{42,}==?|AAAA[0-9A-Za-z+/]{30,}|[0-9A-Za-z+]{42,}`)
	// given matches the name and value of a property, in the syntax of JSON, uci, RouterOS or sh, if the
	// value is a user's text or specific to one router.
	given = check.Pattern(`(?i)((?:\b|_|-)(?:comment|description|descr|identity|hostname|host-name|` +
		`user|username|login|ssid|password|passphrase|passwd|psk|secret|private[-_]key|public[-_]key|` +
		`preshared[-_]key|wpa[-_]key|community|contact|location|serial|serial[-_]number|software[-_]id|` +
		`system[-_]id)"?\s*[=:]\s*)` +
		`("(?:[^"\\]|\\.)*"?|'[^']*'?|[^\s,;}\])]+)`)
	remark = check.Pattern(`(?i)(\bcomment\s+)(?:"(?:[^"\\]|\\.)*"?|'[^']*'?)`) // nft, iptables
)

// anonymous returns text without addresses, without keys, and without names given by users.
func (c *Conformance) anonymous(text string) string {
	text = check.Plain(text)
	if c.of.Host != nil {
		at := c.of.Host.Name()
		text = strings.ReplaceAll(text, at, c.of.Name)
		if u, err := url.Parse(at); err == nil && len(u.Hostname()) > 2 && u.Hostname() != c.of.Name {
			text = regexp.MustCompile(`\b`+regexp.QuoteMeta(u.Hostname())+`\b`).ReplaceAllLiteralString(text,
				c.of.Name)
		}
	}

	text = given().ReplaceAllString(remark().ReplaceAllString(text, `${1}"GIVEN"`), `${1}"GIVEN"`)
	text = keyLike().ReplaceAllLiteralString(text, "KEY")
	text = hardware().ReplaceAllLiteralString(text, "ADDRESS")
	text = wordLike().ReplaceAllStringFunc(text, func(word string) string {
		for _, w := range []string{word, strings.TrimRight(word, ".:")} {
			_, ip := netip.ParseAddr(w)
			_, mac := net.ParseMAC(w)
			if ip == nil || mac == nil {
				return "ADDRESS" + word[len(w):]
			}
		}

		if strings.Count(word, ":") > 3 { // more colons than a time of day
			return "ADDRESS"
		}
		return word
	})
	return ipv4().ReplaceAllStringFunc(text, func(word string) string {
		if _, err := netip.ParseAddr(word); err != nil {
			return word
		}
		return "ADDRESS"
	})
}

// deviceFact is the prefix of facts about a network device, such as "device:eth0:mtu".
const deviceFact = "device:"

// deviceNamed matches names of network devices in the output of ip(8), tc(8), RouterOS and others.
var deviceNamed = check.Pattern(`"(?:ifname|interface)":\s*"([^"]+)"|\binterface="?([^"\s,;]+)|` +
	`\bdev ([^\s:@]+)|(?m:^\d+: ([^\s:@]+)[:@])`)

// personal returns the device names in facts and outputs that a user chose or that contain an address.
func (c *Conformance) personal() []string {
	found := map[string]bool{}
	for _, all := range []map[string]string{c.Facts, c.Missing} {
		for name := range all {
			rest, ok := strings.CutPrefix(name, deviceFact)
			end := strings.LastIndex(rest, ":")
			if ok && end > 0 {
				found[rest[:end]] = true
			}
		}
	}

	for _, o := range c.Outputs {
		for _, m := range deviceNamed().FindAllStringSubmatch(o.Printed, -1) {
			found[strings.Join(m[1:], "")] = true
		}
	}

	maps.DeleteFunc(found, func(name string, _ bool) bool { return record.UsualDevice(name) })
	return slices.Sorted(maps.Keys(found))
}

// nameDevices replaces the names that personal returns with "device1" and so on, in the names of facts and in
// texts. It also replaces them in data that was recorded before all names were known.
func (c *Conformance) nameDevices() {
	words := map[string]string{}
	for i, device := range c.personal() {
		words[device] = fmt.Sprint("device", i+1)
	}

	longest := slices.SortedFunc(maps.Keys(words), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
	})
	renamed := func(text string) string {
		for _, device := range longest {
			text = replaceWord(text, device, words[device])
		}
		return text
	}
	c.Facts, c.Missing = c.renameKeys(c.Facts, renamed), c.renameKeys(c.Missing, renamed)
	c.NotSampled = c.renameKeys(c.NotSampled, renamed)
	for i, name := range c.Sampled {
		c.Sampled[i] = c.anonymous(renamed(name))
	}

	for i := range c.Tried {
		t := &c.Tried[i]
		t.Answer.Reason, t.Answer.Hint = renamed(t.Answer.Reason), renamed(t.Answer.Hint)
	}

	for i := range c.Outputs {
		o := &c.Outputs[i]
		o.Printed = renamed(o.Printed)
		for k, word := range o.Command {
			o.Command[k] = renamed(word)
		}
	}
}

// renameKeys applies renamed and anonymous to the keys of a map. Keys that become equal are numbered.
func (c *Conformance) renameKeys(all map[string]string, renamed func(string) string) map[string]string {
	out := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		stem := c.anonymous(renamed(name))
		key := stem
		for i := 2; ; i++ {
			_, taken := out[key]
			if !taken {
				break
			}

			key = fmt.Sprint(stem, " ", i)
		}

		out[key] = renamed(all[name])
	}
	return out
}

// replaceWord replaces a word wherever it has no letter or digit next to it.
func replaceWord(text, word, by string) string {
	inWord := func(b byte) bool {
		return b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b == '_' || b >= 0x80
	}
	var out strings.Builder
	done := 0
	for from := 0; ; {
		i := strings.Index(text[from:], word)
		if i < 0 {
			out.WriteString(text[done:])
			return out.String()
		}

		i += from
		from = i + len(word)
		if i > 0 && inWord(text[i-1]) || from < len(text) && inWord(text[from]) {
			from = i + 1
			continue
		}

		out.WriteString(text[done:i] + by)
		done = from
	}
}
