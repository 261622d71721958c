package main

import (
	"slices"
	"strings"
	"testing"
)

func TestReadPing(t *testing.T) {
	const out = `PING 10.83.1.2 (10.83.1.2) 72(100) bytes of data.
80 bytes from 10.83.1.2: icmp_seq=1 ttl=63 time=0.045 ms
80 bytes from 10.83.1.2: icmp_seq=3 ttl=63 time=1.20 ms
80 bytes from 10.83.1.2: icmp_seq=2 ttl=63 time=0.007 ms

--- 10.83.1.2 ping statistics ---
4 packets transmitted, 3 received, 25% packet loss, time 3ms
`
	got, err := readPing([]byte(out))
	if err != nil || got.sent != 4 || !slices.Equal(got.rtt, []float64{7000, 45000, 1200000}) {
		t.Errorf("got %+v, %v", got, err)
	}

	for _, bad := range []string{"", "4 packets transmitted, 0 received", "80 bytes from x: time=1 ms",
		"80 bytes from x: time=1.2.3 ms\n1 packets transmitted"} {
		if got, err := readPing([]byte(bad)); err == nil || got.rtt != nil {
			t.Errorf("%q: got %+v, %v, want an error alone", bad, got, err)
		}
	}
}

func TestReadIRTT(t *testing.T) {
	const out = `{"version":{},"round_trips":[
		{"seqno":0,"lost":"false","delay":{"receive":60,"rtt":100,"send":40}},
		{"seqno":1,"lost":"true"},{"seqno":2,"lost":"false","delay":{"rtt":50}}]}`
	got, err := readIRTT([]byte(out))
	if err != nil || got.sent != 3 || !slices.Equal(got.rtt, []float64{50, 100}) {
		t.Errorf("got %+v, %v", got, err)
	}

	for _, bad := range []string{"", "{}", `{"round_trips":[{"lost":"true"}]}`, `{"round_trips":7}`} {
		if got, err := readIRTT([]byte(bad)); err == nil || got.rtt != nil {
			t.Errorf("%q: got %+v, %v, want an error alone", bad, got, err)
		}
	}
}

// The table compares block by block, so that a slow block harms no ratio.
func TestTable(t *testing.T) {
	o := options{blocks: 6, seconds: 1, seed: 1}
	all := make([][]measured, len(tools))
	for block := range o.blocks {
		slow := float64(1 + 10*(block%2))
		for i, ns := range []float64{8000, 7000, 64000, 7500} {
			all[i] = append(all[i], measured{rtt: []float64{ns * slow}, sent: 2})
		}
	}

	got := table(o, "a machine", all)
	for _, want := range []string{"| echo | kernel stamps", "| 6 of 12 |",
		"| p99, echo ÷ irtt | 0.125 × | 0.125 × to 0.125 × (96.9 %) | 6 |",
		"| p50, echo − ping | +3.00 µs |"} {
		if !strings.Contains(got, want) {
			t.Errorf("the table lacks %q:\n%s", want, got)
		}
	}
}
