package record

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// WattsCondition names the condition that holds a mean power under load, read by hand.
const WattsCondition = "watts"

// Watts is the power in watts that was typed in as a condition, such as "6.1" or "6.1 W"; 0 if none was.
func (d *Design) Watts() (float64, error) {
	text, ok := d.Conditions[WattsCondition]
	if !ok {
		return 0, nil
	}
	w, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(text, "W")), 64)
	if err != nil || !(w > 0) || math.IsInf(w, 0) {
		return 0, fmt.Errorf("condition %s: %q is not a power in watts", WattsCondition, text)
	}
	return w, nil
}
