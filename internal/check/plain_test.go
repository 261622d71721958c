package check

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestPlain(t *testing.T) {
	for text, want := range map[string]string{
		"plain, größer\n\ttext": "plain, größer\n\ttext",
		"\x1b[31mred\x1b[0m":    "[31mred[0m",
		"line\r\nline":          "line\nline",
		"a\u202eb\u2066c":       "abc",
		"\x9b31m":               "\ufffd31m",
	} {
		got := Plain(text)
		if got != want {
			t.Errorf("Plain(%q): got %q, want %q", text, got, want)
		}
	}
}

// TestJSONWords: an error names the field and what JSON holds there, and no type of Go.
func TestJSONWords(t *testing.T) {
	var into struct {
		Name  string    `json:"name"`
		Rate  float64   `json:"rate"`
		Count int32     `json:"count"`
		On    *bool     `json:"on"`
		All   []float64 `json:"all"`
		In    struct {
			Deep map[string]int `json:"deep"`
		} `json:"in"`
	}
	for text, want := range map[string]string{
		`[]`:                 "want an object, got a list",
		`{"name": {}}`:       "name: want a text, got an object",
		`{"rate": "fast"}`:   "rate: want a number in its range, got a text",
		`{"rate": 1e400}`:    "rate: want a number in its range, got 1e400",
		`{"count": 1.5}`:     "count: want a whole number in its range, got 1.5",
		`{"on": []}`:         "on: want true or false, got a list",
		`{"all": true}`:      "all: want a list, got true or false",
		`{"in":{"deep": 1}}`: "in.deep: want an object, got a number",
		`{"rate": oops}`:     "invalid character 'o' looking for beginning of value",
		`{"rate": 1` + strings.Repeat("0", 400) + `}`: "rate: want a number in its range, got 1" +
			strings.Repeat("0", 39),
	} {
		err := json.Unmarshal([]byte(text), &into)
		got := JSONWords(err)
		if got == nil || got.Error() != want {
			t.Errorf("JSONWords of %.40s: got %v, want %s", text, got, want)
		}
	}
}

// FuzzPlainJSON: what is valid stays so, no string in it steers, and what had none is as it was.
func FuzzPlainJSON(f *testing.F) {
	f.Add([]byte(`{"a": "\u001b[0m", "b": ["\\u001b", "\r\b"]}`))
	f.Add([]byte("[\"\x7f\xc2\x9b\xe2\x80\xae\", \"\\ud83d\\ude00\"]\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got := PlainJSON(b)
		if !json.Valid(b) {
			return
		}

		var before, after any
		if err := json.Unmarshal(got, &after); err != nil {
			t.Fatalf("%q became %q: %v", b, got, err)
		}

		if err := json.Unmarshal(b, &before); err != nil {
			return // numbers that no float holds
		}

		var each func(v any)
		each = func(v any) {
			switch v := v.(type) {
			case string:
				if strings.ContainsFunc(v, Steers) {
					t.Errorf("%q became %q, which steers", b, v)
				}
			case []any:
				for _, v := range v {
					each(v)
				}
			case map[string]any:
				for k, v := range v {
					each(k)
					each(v)
				}
			}
		}
		each(after)
	})
}
