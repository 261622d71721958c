package foreign

import (
	"bytes"
	"encoding/json"
	"net"
	"net/netip"
	"regexp"
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

// flentRaw is a flentRest of a file, in which nothing tells an address or a password. What metadata is too
// large is left out.
func flentRaw(text []byte) ([]byte, error) {
	var f flentRest
	if err := decode(text, &f); err != nil {
		return nil, err
	}
	f.Raw = publicStrings(f.Raw)
	if len(f.Meta) > mostMeta {
		f.Meta = nil
	}
	if f.Meta != nil {
		d := json.NewDecoder(bytes.NewReader(f.Meta))
		d.UseNumber() // digits stay as they are
		var meta any
		err := d.Decode(&meta)
		if err == nil {
			f.Meta, err = json.Marshal(public(meta))
		}
		if err != nil {
			return nil, err
		}
	}
	return json.Marshal(f)
}

// public is a value of metadata without addresses and passwords.
func public(v any) any {
	switch v := v.(type) {
	case string:
		return publicText(v)
	case []any:
		for i := range v {
			v[i] = public(v[i])
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, value := range v {
			if secretName.MatchString(key) {
				value = nil
			}
			out[publicText(key)] = public(value)
		}
		return out
	}
	return v
}

var (
	secretName = regexp.MustCompile(`(?i)passw|secret|token|api_?key|private`)
	userInfo   = regexp.MustCompile(`://[^/@\s]*@`)
	wordOf     = regexp.MustCompile(`[0-9A-Za-z_.:%-]+`)
)

// withheld stands for an address.
const withheld = "(address)"

// publicText is a text without addresses, of IP and of Ethernet, and without the user of a URL. That of
// loopback and that of every host tell nothing.
func publicText(s string) string {
	return wordOf.ReplaceAllStringFunc(userInfo.ReplaceAllString(s, "://"), func(word string) string {
		address := strings.TrimRight(word, ".:")
		a, err := netip.ParseAddr(address)
		if p, wrong := netip.ParseAddrPort(address); err != nil && wrong == nil {
			a, err = p.Addr(), nil
		}
		_, wrong := net.ParseMAC(address)
		ethernet := wrong == nil && strings.ContainsAny(address, ":-.") // else it may be a count
		if ethernet || err == nil && !a.IsLoopback() && !a.IsUnspecified() {
			return withheld + word[len(address):]
		}
		return word
	})
}

// publicStrings is a text of JSON whose values are without addresses; names stay, as series are called.
func publicStrings(text []byte) []byte {
	var out bytes.Buffer
	for len(text) > 0 {
		from := bytes.IndexByte(text, '"')
		if from < 0 {
			break
		}
		to := from + 1
		for text[to] != '"' {
			if text[to] == '\\' {
				to++
			}
			to++
		}
		to++
		out.Write(text[:from])
		quoted := text[from:to]
		rest := bytes.TrimLeft(text[to:], " \t\r\n")
		var s string
		if !bytes.HasPrefix(rest, []byte(":")) && bytes.ContainsAny(quoted, `.:\`) &&
			json.Unmarshal(quoted, &s) == nil {
			quoted, _ = json.Marshal(publicText(s))
		}
		out.Write(quoted)
		text = text[to:]
	}
	out.Write(text)
	return out.Bytes()
}
