package secrets_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"
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
			from := (shift*8 + 5) / 6
			to := len(padded) * 8 / 6
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

// TestSearchFindsAPlantedKey writes a key in every way that could happen.
func TestSearchFindsAPlantedKey(t *testing.T) {
	key := make([]byte, 32)
	rand.Read(key)
	copy(key, mark)
	message, err := json.Marshal(map[string]any{"key": key, "list": []int{int(key[0])}})
	if err != nil {
		t.Fatal(err)
	}

	tests := map[string]string{
		"raw": "x" + string(key) + "y", "hex": "private_key=" + hex.EncodeToString(key) + "\n",
		"HEX":    fmt.Sprintf("%X", key),
		"base64": base64.StdEncoding.EncodeToString(key), "url": base64.URLEncoding.EncodeToString(key),
		"json":                 string(message),
		"base64 of a frame, 1": base64.StdEncoding.EncodeToString(append([]byte{1}, key...)),
		"base64 of a frame, 2": base64.StdEncoding.EncodeToString(append([]byte{1, 200}, key...)),
		"base64 of a frame, 3": base64.StdEncoding.EncodeToString(append([]byte{255, 255, 255}, key...)),
		"%v":                   fmt.Sprintf("%v", key), "%#v": fmt.Sprintf("%#v", key),
		"%q": fmt.Sprintf("%q", key),
	}
	for _, before := range []int{35, 36, 37} {
		block := &pem.Block{Type: "PRIVATE KEY", Bytes: append(make([]byte, before), key...)}
		tests[fmt.Sprintf("PEM after %d bytes", before)] = string(pem.EncodeToMemory(block))
	}

	for name, text := range tests {
		got := search([]byte(text))
		if len(got) == 0 {
			t.Errorf("%s: got nothing in %q, want the planted key found", name, text)
		}
	}

	rand.Read(key)
	for name, text := range map[string]string{"another key": base64.StdEncoding.EncodeToString(key),
		"redacted": "[secret]"} {
		got := search([]byte(text))
		if len(got) != 0 {
			t.Errorf("%s: got %v, want nothing", name, got)
		}
	}
}
