package probe

import (
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// TestFilterMoves: rules are counted, and counted again when they change.
func TestFilterMoves(t *testing.T) {
	s := open(t, filterRules(Root{}))
	before := sample(t, s)["filter_rules"]
	if err := kernel.FirewallRules.Set(kernel.Firewall{On: true, Rules: 700}); err != nil {
		t.Logf("%v", err)
		t.Skip("skip: the kernel has no packet filter of this kind")
	}

	t.Cleanup(func() { must(t, kernel.FirewallRules.Set(kernel.Firewall{})) })
	// IPv4 and IPv6 have them, and a list may end in a rule of its own.
	if got := sample(t, s)["filter_rules"] - before; got < 700 || got > 702 {
		t.Errorf("after two lists of 700: got %v more rules, want 700 to 702", got)
	}

	must(t, kernel.FirewallRules.Set(kernel.Firewall{}))
	if got := sample(t, s)["filter_rules"]; got != before {
		t.Errorf("without them: got %v rules, want %v", got, before)
	}
}

func TestParseRules(t *testing.T) {
	b := append(message(newRule, []byte{familyIPv4, 0, 0, 0}), message(newRule, []byte{familyBoth, 0, 0,
		0})...)
	b = append(b, message(nlmsgDone, make([]byte, 4))...)
	n := ruleCount{ipv6: 3}
	if done, err := kernel.EachMessage(b, n.take); n != (ruleCount{1, 3, 1}) || !done || err != nil {
		t.Errorf("got %v, done %v, error %v, want one of each more and the end", n, done, err)
	}

	body := generationAnswer()[kernel.NetlinkHeader:]
	if got, err := generation(newGeneration, body); got != 0x102 || err != nil {
		t.Errorf("generation: got %#x, error %v, want 0x102", got, err)
	}

	if _, err := generation(newRule, body); err == nil {
		t.Error("an answer to another question: got no error")
	}
}

// TestKthreadsMoves: the kinds are told by name; time is that since the watch began.
func TestKthreadsMoves(t *testing.T) {
	for name, want := range map[string]string{"ksoftirqd/0": "softirqs",
		"kworker/1:2-wg-crypt-wg0": "wg-crypt",
		"napi/wan-5":               "napi", "irq/24-eth0": "irq", "kworker/0:1-events": "", "bash": ""} {
		got := kthreadKind(nameOf([]byte("7 (" + name + ") S 2")))
		if got != want {
			t.Errorf("%s: got kind %q, want %q", name, got, want)
		}
	}

	s, err := kthreads(Root{}).Open(Options{})
	if err != nil {
		t.Logf("%v", err)
		t.Skip("skip: the machine's processes cannot be seen")
	}
	defer s.Close()
	for name, v := range sample(t, s) {
		if v < 0 || v > 60e9 {
			t.Errorf("%s: got %v, want the time since the watch began", name, v)
		}
	}
}
