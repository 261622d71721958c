package foreign

import (
	"bytes"
	"encoding/json"
)

// flentRest holds the parts of a flent file other than its series. X preserves the digits of the times.
type flentRest struct {
	X       json.RawMessage `json:"x_values"`
	Version json.RawMessage `json:"version"`
	Raw     json.RawMessage `json:"raw_values"`
	Meta    json.RawMessage `json:"metadata"`
}

// maxMeta is the maximum size of the metadata, in bytes.
const maxMeta = 4 << 20

// flentRaw returns the flentRest of an anonymized text, without secrets. It writes missing raw values as
// flent does.
func flentRaw(text []byte) ([]byte, error) {
	var f flentRest
	if err := decode(text, &f); err != nil {
		return nil, err
	}

	if len(f.Meta) > maxMeta {
		return nil, fileError("", "its metadata hold more than %d MiB", maxMeta>>20)
	}

	if len(f.Raw) == 0 || string(f.Raw) == "null" {
		f.Raw = json.RawMessage("{}")
	}

	d := json.NewDecoder(bytes.NewReader(f.Meta))
	d.UseNumber() // preserves the digits of numbers
	var meta map[string]any
	if err := d.Decode(&meta); err != nil {
		return nil, err
	}

	conceal(meta)
	f.Meta, _ = json.Marshal(meta) // cannot fail, because meta was decoded above
	return json.Marshal(f)
}

// conceal sets secrets and personal data in metadata to nil.
func conceal(v any) {
	switch v := v.(type) {
	case []any:
		for _, value := range v {
			conceal(value)
		}
	case map[string]any:
		for key, value := range v {
			if conceal(value); secretName().MatchString(key) || personal().MatchString(key) {
				v[key] = nil
			}
		}
	}
}
