package trial

import (
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
)

// TestEverySettingIsExamined: doctor asks for each knob, by levels that it knows, each once.
func TestEverySettingIsExamined(t *testing.T) {
	for _, k := range knob.All() {
		family, isFamily := strings.CutSuffix(k.Name(), ":")
		found := 0
		for i, s := range examined {
			text := s[1]
			if name, rest, ok := strings.Cut(s[0], ":"); isFamily && ok && name == family {
				text = rest + "=" + s[1]
			} else if s[0] != k.Name() {
				continue
			}
			found++
			if _, err := k.Parse(text); err != nil {
				t.Errorf("%s: %v", k.Name(), err)
			}
			if slices.Contains(examined[:i], s) {
				t.Errorf("%v is examined twice", s)
			}
		}
		if found == 0 {
			t.Errorf("%s is not examined", k.Name())
		}
	}
}
