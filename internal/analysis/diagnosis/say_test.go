package diagnosis

import (
	"slices"
	"strings"
	"testing"
)

// TestSay: values are worded by the verbs of a sentence, and a sentence without values stands as it is.
func TestSay(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{say("%h of %d", .123, 7), "12.3 % of 7"},
		{say("%n", 1.5e6), "1.50 ms"},
		{say("%b, %r", 14.9e6, 2e3), "14.9 Mbit/s, 2.00 kpps"},
		{say("%m, %g, %.2g, %.0f", 2.5, 1234.5, 1.26, 41.7), "×2.50, 1234, 1.3, 42"},
		{say("%k of %s", 512e3, Core{Name: "cpu1"}), "512 kB of core 1"},
		{say("100 % full"), "100 % full"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}

// TestWordsOfEveryClass: each class has a label and a meaning, and each remedy what to do, where it is known
// when.
func TestWordsOfEveryClass(t *testing.T) {
	traits := []string{"ends", "quiet", "wasteful", "of-failed", "to-tester", "delay", "any-rate",
		"at-capacity", "busy-cores", "in-router", "in-guest"}
	for _, r := range Rules() {
		if r.Label == "" || r.Means == "" {
			t.Errorf("%s has no label or meaning", r.Class)
		}

		if !slices.Contains([]string{"", ByRate, ByPacket, byWindow, byFlow}, r.Kind) {
			t.Errorf("%s is of the kind %q, for which there are no experiments", r.Class, r.Kind)
		}

		for _, trait := range r.Traits {
			if !slices.Contains(traits, trait) {
				t.Errorf("%s has the unknown trait %s", r.Class, trait)
			}
		}

		for _, name := range r.Explains {
			if len(classesOf(name)) == 0 {
				t.Errorf("%s explains %s, which is no class and no trait", r.Class, name)
			}
		}

		for _, m := range r.Remedies {
			_, known := conditions[strings.TrimPrefix(m.When, "not ")]
			if m.Do == "" || m.When != "" && !known {
				t.Errorf("%s: %+v has no words, or a condition that is not known", r.Class, m)
			}
		}
	}

	w := words("\tlabel: the link\n\tmeans: it is \\\n\t\tfull\n\ttraits: ends\n\tkind: rate\n" +
		"\tplanted: queue shape\n\tcostly: mss\n\tany: wait\n\tlinux: swap it\n\t\t$ a b\n" +
		"\t\trisk: none\n\t\tplan: queue=fq\n")
	if !w.Has("ends") || w.Kind != ByRate || !slices.Equal(w.Planted, []string{"queue", "shape"}) ||
		!slices.Equal(w.Costly, []string{"mss"}) {
		t.Errorf("got %+v", w)
	}

	if w.Label != "the link" || w.Means != "it is full" || len(w.Remedies) != 2 {
		t.Fatalf("got %+v", w)
	}

	swap := w.Remedies[1]
	if w.Remedies[0].System != "" || swap.Commands[0] != "a b" || swap.Risk != "none" ||
		swap.Factor != "queue" || swap.Level != "fq" {
		t.Errorf("got %+v", w)
	}
}
