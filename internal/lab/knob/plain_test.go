package knob

import "testing"

// What a plan need not write is not said in labels; what was written, and is no default, is.
func TestQueueIsSaidAsTyped(t *testing.T) {
	k := Queue()
	for _, typed := range []string{"fq_codel", "fq_codel limit 500", "tbf rate 300M",
		"tbf rate 300M burst 256k",
		"cake bandwidth 50M", "noqueue", "sfq", "pfifo limit 100", "netem delay 5ms"} {
		q, err := parseQueue(typed)
		if err != nil {
			t.Fatal(err)
		}
		level := string(spellQueue(q))
		if got := k.Factor().Plain(level); got != typed {
			t.Errorf("%s is said as %q; its level is %s", typed, got, level)
		}
	}
}
