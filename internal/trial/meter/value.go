package meter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

const (
	maxBytes = 64 << 10 // limit for an answer; a plug's answer has 1000 to 2000 bytes
	maxWatts = 1e6      // highest plausible power in W
)

// watts parses a power such as "6.1" or "6.1 W".
func watts(text string) (float64, error) {
	w, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "W")), 64)
	if err != nil || !(w >= 0 && w <= maxWatts) { // NaN fails this comparison, too
		return 0, fmt.Errorf("%s is no power in watts", quoted(text))
	}
	return w, nil
}

// quoted returns the beginning of a meter's output in quotation marks, for error messages.
func quoted(text string) string {
	const most = 60
	if text = strings.TrimSpace(check.Plain(text)); len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return strconv.Quote(text)
}

// fieldOf returns a field of a JSON text by its path, such as "ENERGY.Power". If the field is a list, as for
// a plug with several sockets, fieldOf returns the list's element for the channel.
func fieldOf(data []byte, path string, channel int) (string, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var at any
	if err := d.Decode(&at); err != nil {
		return "", fmt.Errorf("%s is no JSON", quoted(string(data)))
	}

	missing := fmt.Errorf("it has no field %s", path)
	for name := range strings.SplitSeq(path, ".") {
		in, ok := at.(map[string]any)
		if !ok {
			return "", missing
		}

		at = in[name]
	}

	if list, ok := at.([]any); ok && channel < len(list) {
		at = list[channel]
	}

	switch v := at.(type) {
	case json.Number:
		return v.String(), nil
	case string: // some devices quote numbers
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	}

	return "", missing
}

// decimals returns the number of digits after the decimal point.
func decimals(text string) int {
	_, fraction, _ := strings.Cut(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "W")), ".")
	return len(fraction)
}
