package foreign

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

var (
	secretName = check.Pattern(`(?i)passw|secret|token|api_?key|private`)
	// personal matches keys whose values identify a person, a place or a single device.
	personal = check.Pattern(`(?i)ssid|serial|uuid|imei|imsi|machine_?id|latitude|longitude|^location$|` +
		`(?:^|_)(?:user|user_?name|login|owner|e?mail)$`)
	// personalWord matches personal keys within a text, with their values, such as "SSID: home" and "serial
	// number=A1".
	personalWord = check.Pattern(`(?i)\b((?:[be]?ssid|serial(?:[ _-]?(?:number|no))?|user(?:[ _-]?name)?|` +
		`login)\s*[:=]\s*)("[^"]*"|'[^']*'|[^\s,;"']+)`)
	keyed    = check.Pattern(`("(?:[^"\\]|\\.)*")(\s*:\s*)("(?:[^"\\]|\\.)*")`)
	userInfo = check.Pattern(`://[^/@\s]*@`)
	userAt   = check.Pattern(`[0-9A-Za-z_.+-]+@[0-9A-Za-z_.-]*`)
	quoted   = check.Pattern(`"(?:[^"\\]|\\.)*"`)
	wordOf   = check.Pattern(`[0-9A-Za-z_.:%-]+`)
	// addressIn matches addresses within a word: IPv4 and Ethernet addresses, and systemd's interface names
	// that contain an Ethernet address.
	addressIn = check.Pattern(`(?:[0-9]{1,3}\.){3}[0-9]{1,3}|(?:[0-9A-Fa-f]{2}[:-]){5,19}[0-9A-Fa-f]{2}|` +
		`\b[0-9A-Fa-f]{4}(?:\.[0-9A-Fa-f]{4}){2}\b|\b(?:en|wl|ww)x[0-9a-f]{12}\b`)
	pathIn = check.Pattern(`(^|[\s"'=(,:])((?:~|[A-Za-z]:)?[/\\][A-Za-z_.][^\s"',;:)]*|\\\\[^\s"',;)]+)`)
	homeOf = check.Pattern(`[/\\](?:home|Users)[/\\]([^/\\"':;]+)`)
	// systemPath matches system directories, whose files are not personal.
	systemPath = check.Pattern(`^/(?:bin|dev|etc|lib|lib64|proc|run|sbin|sys|usr)/`)
)

// aliases maps the addresses, hosts, users and paths in a file to aliases. Each address, host, user and path
// has its own alias, so that series named after different hosts stay distinct.
type aliases struct {
	of    map[string]string
	names []string // names to replace as whole words, the longest first
}

// maxNames is the maximum number of names to search for in every string of a file.
const maxNames = 200

// alias returns the replacement of a text. kind is "address", "host", "name" or "path".
func (a *aliases) alias(kind, text string) string {
	if a.of[text] == "" {
		a.of[text] = fmt.Sprintf("(%s %d)", kind, len(a.of)+1)
	}
	return a.of[text]
}

// address returns the alias of an address. Loopback and unspecified addresses are kept.
func (a *aliases) address(text string) string {
	if ip, err := netip.ParseAddr(text); err == nil && (ip.IsLoopback() || ip.IsUnspecified()) {
		return text
	}
	return a.alias("address", text)
}

// text replaces addresses, known hosts and names, and paths, and removes the user from URLs.
func (a *aliases) text(s string) string {
	s = personalWord().ReplaceAllString(userInfo().ReplaceAllString(s, "://"), "${1}(hidden)")
	if isPath(s) {
		s = a.alias("path", s)
	}

	s = pathIn().ReplaceAllStringFunc(s, func(found string) string {
		m := pathIn().FindStringSubmatch(found)
		if systemPath().MatchString(m[2]) {
			return found
		}
		return m[1] + a.alias("path", m[2])
	})
	for _, name := range a.names {
		s = replaceAlone(s, name, a.of[name])
	}

	s = wordOf().ReplaceAllStringFunc(s, a.word)
	return userAt().ReplaceAllStringFunc(s, func(m string) string {
		user, alone := strings.CutSuffix(m, "@")
		if alone { // the rest of the text is a host that already has an alias
			return a.alias("name", user) + "@"
		}
		return a.alias("name", m)
	})
}

// isPath reports whether the whole of s is one personal path, which may contain spaces.
func isPath(s string) bool {
	m := pathIn().FindStringSubmatchIndex(s)
	return m != nil && m[4] == 0 && !systemPath().MatchString(s) && !strings.Contains(s, " -") &&
		!strings.Contains(s, " /")
}

func (a *aliases) word(word string) string {
	whole := strings.TrimRight(word, ".:-%")
	host, _, _ := strings.Cut(whole, ":") // the host without the port
	alias := a.of[host]
	if alias != "" {
		return alias + word[len(host):]
	}

	for at := range whole { // find an address after "label:", but not after "series::"
		if at == 0 || at > 1 && whole[at-1] == ':' && whole[at-2] != ':' {
			if _, err := netip.ParseAddr(whole[at:]); err == nil {
				return word[:at] + a.address(whole[at:]) + word[len(whole):]
			}
		}
	}

	return addressIn().ReplaceAllStringFunc(word, a.address)
}

// replaceAlone replaces name where it is not next to a letter, a digit or "_".
func replaceAlone(s, name, by string) string {
	var b strings.Builder
	for {
		i := strings.Index(s, name)
		if i < 0 {
			return b.String() + s
		}

		end := i + len(name)
		if i > 0 && inWord(s[i-1]) || end < len(s) && inWord(s[end]) {
			b.WriteString(s[:end])
		} else {
			b.WriteString(s[:i] + by)
		}

		s = s[end:]
	}
}

func inWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= 0x80
}

// hosts adds the host names in a file, and the user names before "@" in these names.
func (a *aliases) hosts(f *flentFile) {
	hosts := append(f.Meta.Hosts, f.Meta.Host, f.Meta.Local)
	for _, name := range slices.Sorted(maps.Keys(f.Meta.Remote)) {
		hosts = append(hosts, words(name), f.Meta.Remote[name].Local)
	}

	for _, host := range hosts {
		for _, word := range wordOf().FindAllString(string(host), -1) { // words include user names
			name, _, _ := strings.Cut(strings.TrimRight(word, ".:-%"), ":")
			if a.text(word) == word && strings.ToUpper(name) != strings.ToLower(name) &&
				!slices.Contains(nobody[:], name) {
				a.alias("host", name)
			}
		}
	}
}

// people adds the names that follow personal keys or words, and the names of home directories.
func (a *aliases) people(text []byte) {
	add := func(name string) {
		name = strings.Trim(name, `"' `)
		if len(name) > 2 && len(name) <= maxName && !strings.HasPrefix(name, "(") &&
			!slices.Contains(everybody[:], name) && len(a.names) < maxNames && a.of[name] == "" {
			a.alias("name", name)
			a.names = append(a.names, name)
		}
	}
	for _, m := range keyed().FindAllSubmatch(text, -1) {
		var key, value string
		if json.Unmarshal(m[1], &key) == nil && personal().MatchString(key) &&
			json.Unmarshal(m[3], &value) == nil {
			add(value)
		}
	}

	for _, q := range quoted().FindAll(text, -1) {
		var s string
		if !bytes.ContainsAny(q, `/\:=`) || json.Unmarshal(q, &s) != nil {
			continue
		}

		for _, m := range personalWord().FindAllStringSubmatch(s, -1) {
			add(m[2])
		}

		for _, m := range homeOf().FindAllStringSubmatch(s, -1) {
			add(m[1])
		}
	}

	slices.SortStableFunc(a.names, func(x, y string) int { return len(y) - len(x) })
}

// anonymous returns the text of the file after replacing addresses, hosts, users, paths and other personal
// data in all strings with aliases.
func (f *flentFile) anonymous(text []byte) []byte {
	a := &aliases{of: map[string]string{}}
	test := string(f.Meta.Name)
	if isPath(test) { // keep only the base name of the user's own test file
		a.of[test] = path.Base(strings.ReplaceAll(test, `\`, "/"))
	}

	a.hosts(f)
	a.people(text)
	text = keyed().ReplaceAllFunc(text, func(pair []byte) []byte {
		m := keyed().FindSubmatch(pair)
		var key string
		if json.Unmarshal(m[1], &key) != nil || !personal().MatchString(key) {
			return pair
		}

		return slices.Concat(m[1], m[2], []byte("null"))
	})
	seen := map[string][]byte{}
	return quoted().ReplaceAllFunc(text, func(q []byte) []byte {
		if _, known := seen[string(q)]; !known {
			var s string
			seen[string(q)] = bytes.Clone(q)
			if json.Unmarshal(q, &s) == nil && a.text(s) != s {
				seen[string(q)], _ = json.Marshal(a.text(s)) // cannot fail, because it is a string
			}
		}
		return seen[string(q)]
	})
}

// nobody lists host names that identify nobody: loopback names, and names that this program writes.
var nobody = [...]string{"localhost", "client", "server", "address", "host", "name", "path"}

// everybody lists user names that identify nobody, such as names that exist on every system.
var everybody = [...]string{"root", "admin", "user", "none", "null", "unknown", "name", "path", "hidden"}
