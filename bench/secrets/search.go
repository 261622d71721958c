package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
)

// mark begins every planted key. WireGuard's clamping of private keys changes the lowest bits of the first
// byte and the highest of the last one, which leaves it as it is.
const mark = "planted-secret!!"

// codings are the forms in which a key might be written.
var codings = codingsOf(mark)

func codingsOf(secret string) map[string][]byte {
	raw := []byte(secret)
	forms := map[string][]byte{
		"as it is":        raw,
		"in hexadecimal":  []byte(hex.EncodeToString(raw)),
		"in HEXADECIMAL":  []byte(strings.ToUpper(hex.EncodeToString(raw))),
		"as numbers":      []byte(strings.Trim(fmt.Sprint(raw), "[]")),
		"as JSON numbers": []byte(strings.ReplaceAll(strings.Trim(fmt.Sprint(raw), "[]"), " ", ",")),
		"as Go source": []byte(strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%#v", raw), "[]byte{"),
			"}")),
	}
	// Inside of longer base64 it can begin at any of three bit positions; what depends on the neighbours is
	// cut off.
	for shift := range 3 {
		padded := append(make([]byte, shift), raw...)
		for name, coding := range map[string]*base64.Encoding{"in base64": base64.RawStdEncoding,
			"in URL base64": base64.RawURLEncoding} {
			text := coding.EncodeToString(padded)
			from, to := (shift*8+5)/6, len(padded)*8/6
			forms[fmt.Sprintf("%s, shifted by %d", name, shift)] = []byte(text[from:to])
		}
	}
	return forms
}

// search returns the codings in which the mark occurs. A private key in PEM is looked at without its line
// ends, which may cut the mark.
func search(data []byte) []string {
	var found []string
	if bytes.Contains(data, []byte("PRIVATE KEY-----")) {
		data = bytes.ReplaceAll(data, []byte("\n"), nil)
	}
	for name, form := range codings {
		if bytes.Contains(data, form) {
			found = append(found, name)
		}
	}
	return found
}
