package foreign

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// flentRest is what a file of flent's holds beside its series. X are their times, digit by digit.
type flentRest struct {
	X       json.RawMessage `json:"x_values"`
	Version json.RawMessage `json:"version"`
	Raw     json.RawMessage `json:"raw_values"`
	Meta    json.RawMessage `json:"metadata"`
}

// mostMeta bounds metadata, in bytes.
const mostMeta = 1 << 20

// flentRaw is a flentRest of an anonymous text, without what its names call secret. What metadata is too
// large is left out, and raw values that are none are as flent has them.
func flentRaw(text []byte) ([]byte, error) {
	var f flentRest
	if err := decode(text, &f); err != nil {
		return nil, err
	}
	if len(f.Raw) == 0 || string(f.Raw) == "null" {
		f.Raw = json.RawMessage("{}")
	}
	d := json.NewDecoder(bytes.NewReader(f.Meta))
	d.UseNumber() // digits stay as they are
	var meta map[string]any
	if len(f.Meta) <= mostMeta && d.Decode(&meta) == nil {
		conceal(meta)
	}
	f.Meta = nil
	if meta != nil {
		f.Meta, _ = json.Marshal(meta) // as it was read
	}
	return json.Marshal(f)
}

// conceal takes secrets out of metadata.
func conceal(v any) {
	switch v := v.(type) {
	case []any:
		for _, value := range v {
			conceal(value)
		}
	case map[string]any:
		for key, value := range v {
			if conceal(value); secretName.MatchString(key) {
				v[key] = nil
			}
		}
	}
}

var (
	secretName = regexp.MustCompile(`(?i)passw|secret|token|api_?key|private`)
	userInfo   = regexp.MustCompile(`://[^/@\s]*@`)
	quoted     = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	wordOf     = regexp.MustCompile(`[0-9A-Za-z_.:%-]+`)
	// What is an address also within a word: of IPv4, and of Ethernet with systemd's names that hold one.
	addressIn = regexp.MustCompile(`(?:[0-9]{1,3}\.){3}[0-9]{1,3}|(?:[0-9A-Fa-f]{2}[:-]){5,19}[0-9A-Fa-f]{2}|` +
		`\b[0-9A-Fa-f]{4}(?:\.[0-9A-Fa-f]{4}){2}\b|\benx[0-9a-f]{12}\b`)
)

// aliases stand for the addresses and hosts of a file. Each has its own, so that series which are called by
// them stay apart.
type aliases map[string]string

// address is what stands for one. That of loopback and that of every host tell nothing.
func (a aliases) address(text string) string {
	if ip, err := netip.ParseAddr(text); err == nil && (ip.IsLoopback() || ip.IsUnspecified()) {
		return text
	} else if a[text] == "" {
		a[text] = fmt.Sprintf("(address %d)", len(a)+1)
	}
	return a[text]
}

// text is one without addresses, known hosts, and the user of a URL.
func (a aliases) text(s string) string {
	return wordOf.ReplaceAllStringFunc(userInfo.ReplaceAllString(s, "://"), func(word string) string {
		whole := strings.TrimRight(word, ".:-%")
		host, _, _ := strings.Cut(whole, ":") // and a port
		if alias := a[host]; alias != "" {
			return alias + word[len(host):]
		}
		for at := range whole { // behind "label:", but not behind "series::"
			if at == 0 || at > 1 && whole[at-1] == ':' && whole[at-2] != ':' {
				if _, err := netip.ParseAddr(whole[at:]); err == nil {
					return word[:at] + a.address(whole[at:]) + word[len(whole):]
				}
			}
		}
		return addressIn.ReplaceAllStringFunc(word, a.address)
	})
}

// anonymous is the file's text without its addresses and the hosts that it names, in whatever string.
func (f *flentFile) anonymous(text []byte) []byte {
	a, hosts := aliases{}, append(f.Meta.Hosts, f.Meta.Host, f.Meta.Local)
	for _, name := range slices.Sorted(maps.Keys(f.Meta.Remote)) {
		hosts = append(hosts, words(name), f.Meta.Remote[name].Local)
	}
	for _, host := range hosts {
		for _, word := range wordOf.FindAllString(string(host), -1) { // that of a user, too
			name, _, _ := strings.Cut(strings.TrimRight(word, ".:-%"), ":")
			if a.text(word) == word && strings.ToUpper(name) != strings.ToLower(name) &&
				!slices.Contains(nobody[:], name) {
				a[name] = fmt.Sprintf("(host %d)", len(a)+1)
			}
		}
	}
	seen := map[string][]byte{}
	return quoted.ReplaceAllFunc(text, func(q []byte) []byte {
		if _, known := seen[string(q)]; !known {
			var s string
			seen[string(q)] = bytes.Clone(q)
			if json.Unmarshal(q, &s) == nil && a.text(s) != s {
				seen[string(q)], _ = json.Marshal(a.text(s)) // a string can always be
			}
		}
		return seen[string(q)]
	})
}

// nobody are the names of hosts that tell nothing: of loopback, and those that this program writes.
var nobody = [...]string{"localhost", "client", "server", "address", "host"}
