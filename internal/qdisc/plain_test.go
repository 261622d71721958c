package qdisc

import "testing"

// Labels leave out what a plan need not write, and keep what was written and is no default.
func TestPlainIsAsTyped(t *testing.T) {
	for _, typed := range []string{"fq_codel", "fq_codel limit 500", "tbf rate 300M",
		"tbf rate 300M burst 256k",
		"cake bandwidth 50M", "noqueue", "sfq", "pfifo limit 100", "netem delay 5ms"} {
		q, err := ParseOne(typed)
		if err != nil {
			t.Fatal(err)
		}

		level := q.String()
		got := Plain(level)
		if got != typed {
			t.Errorf("%s is said as %q; its level is %s", typed, got, level)
		}
	}
}
