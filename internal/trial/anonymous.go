package trial

import (
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// What may tell whose router it is.
var (
	// Words that may be an address, of IP or of a device; what of them is no address as a whole may hold one.
	wordLike = regexp.MustCompile(`[0-9A-Fa-f][0-9A-Fa-f:.]+[0-9A-Fa-f:]|::[0-9A-Fa-f:.]*`)
	ipv4     = regexp.MustCompile(`(?:[0-9]{1,3}\.){3}[0-9]{1,3}`)
	// Addresses of devices, also as systemd names one after its own.
	hardware = regexp.MustCompile(`(?:[0-9A-Fa-f]{2}[:-]){5,19}[0-9A-Fa-f]{2}\b|\benx[0-9a-f]{12}\b`)
	// Keys, digests and certificates, in hexadecimal digits or base64. Paths have slashes, too, but no end
	// like that.
	keyLike = regexp.MustCompile(`-----BEGIN[^-]*-----[^-]*(?:-----END[^-]*-----)?|` +
		`\b(?:0x)?[0-9A-Fa-f]{32,}\b|[0-9A-Za-z+/]{42,}==?|AAAA[0-9A-Za-z+/]{30,}|[0-9A-Za-z+]{42,}`)
	// Properties that somebody has given, or whose value is one router's alone: name and value as JSON, uci,
	// RouterOS and sh write them.
	given = regexp.MustCompile(`(?i)((?:\b|_|-)(?:comment|description|descr|identity|hostname|host-name|` +
		`user|username|login|ssid|password|passphrase|passwd|psk|secret|private[-_]key|public[-_]key|` +
		`preshared[-_]key|wpa[-_]key|community|contact|location|serial|serial[-_]number|software[-_]id|` +
		`system[-_]id)"?\s*[=:]\s*)` +
		`("(?:[^"\\]|\\.)*"?|'[^']*'?|[^\s,;}\])]+)`)
	remark = regexp.MustCompile(`(?i)(\bcomment\s+)(?:"(?:[^"\\]|\\.)*"?|'[^']*'?)`) // of nft and iptables
)

// anonymous is a text without addresses, keys, and names that somebody has given.
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
	text = given.ReplaceAllString(remark.ReplaceAllString(text, `${1}"GIVEN"`), `${1}"GIVEN"`)
	text = keyLike.ReplaceAllLiteralString(text, "KEY")
	text = hardware.ReplaceAllLiteralString(text, "ADDRESS")
	text = wordLike.ReplaceAllStringFunc(text, func(word string) string {
		for _, w := range []string{word, strings.TrimRight(word, ".:")} {
			_, ip := netip.ParseAddr(w)
			_, mac := net.ParseMAC(w)
			if ip == nil || mac == nil {
				return "ADDRESS" + word[len(w):]
			}
		}
		if strings.Count(word, ":") > 3 { // no time of day
			return "ADDRESS"
		}
		return word
	})
	return ipv4.ReplaceAllStringFunc(text, func(word string) string {
		if _, err := netip.ParseAddr(word); err != nil {
			return word
		}
		return "ADDRESS"
	})
}
