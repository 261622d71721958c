package plan_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func TestRateShares(t *testing.T) {
	f, ok := words().Lookup("rate")
	if !ok {
		t.Fatal("there is no factor rate")
	}

	for _, tc := range []struct{ text, want string }{
		{"90% of 300M", "270M"}, {"10 % of 1G", "100M"}, {"50% of 1.5G", "750M"}, {"0.5% of 1M", "5k"},
		{"200% of 10M", "20M"},
		{"90% of found", "90% of found"}, {"12.5 % of found", "12.5% of found"},
		{"50.0% of found", "50% of found"},
		{"0% of found", ""}, {"201% of found", ""}, {"-5% of found", ""}, {"90% of flat", ""}, {"90% of", ""},
		{"90%", ""},
		{"90% of lost", ""}, {"50% of 50% of 1M", ""}, {"0.001% of 1k", ""}, {"found", ""},
	} {
		got, err := f.Parse(tc.text)
		if got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%q: got %q, %v, want %q", tc.text, got, err, tc.want)
		}

		if tc.want == "" {
			continue
		}

		if again, err := f.Parse(got); again != got {
			t.Errorf("%q: its canonical text %q reads as %q, %v", tc.text, got, again, err)
		}
	}
}

func TestFoundOf(t *testing.T) {
	got, ok := factor.FoundOf(record.Factors{"protocol": "udp", "rate": "12.5% of found"})
	want := factor.Found{Share: .125, Of: record.Factors{"protocol": "udp", "rate": "flat"}}
	if diff := cmp.Diff(want, got); diff != "" || !ok {
		t.Errorf("found %v (-want +got):\n%s", ok, diff)
	}

	got, ok = factor.FoundOf(record.Factors{"protocol": "tcp", "pacing": "50% of found"})
	want = factor.Found{Share: .5, Of: record.Factors{"protocol": "tcp"}}
	if diff := cmp.Diff(want, got); diff != "" || !ok {
		t.Errorf("pacing: found %v (-want +got):\n%s", ok, diff)
	}

	for _, rate := range []string{"", "flat", "20M", "x% of found"} {
		if _, ok := factor.FoundOf(record.Factors{"rate": rate}); ok {
			t.Errorf("rate %q is taken for a share of a found one", rate)
		}
	}
}

// A share of what nobody finds is skipped, and who finds comes first in every block, in random as in listed
// order.
func TestSharesComeBehindWhoFinds(t *testing.T) {
	for _, order := range []string{"blocks", "listed"} {
		p := read(t, "method: {runs: 20, seed: 3, order: "+order+
			"}\nmatrix: {protocol: udp, direction: [up, down], packet_size: [100, 200], rate: [50% of "+
			"found, flat, 20M]}\n"+
			"include: [{protocol: udp, packet_size: 300, rate: 10% of found}]\n")
		n := len(p.Cells())
		if n != 12 {
			t.Errorf("%s: %d cells, want 12", order, n)
		}

		s := p.Skipped()
		if len(s) != 1 || !strings.Contains(s[0].Reason, "no rate to take a share of") {
			t.Errorf("%s: skipped %v, want the one without a finder, with the reason", order, s)
		}

		for block := 1; block <= 20; block++ {
			found := map[string]bool{}
			for _, r := range p.Block(block) {
				if r.Kind != record.RowLoad {
					continue
				}

				if share, ok := factor.FoundOf(r.Factors); ok && !found[share.Of.Key()] {
					t.Fatalf("%s, block %d: %s comes before the cell that finds its rate", order, block, r.ID)
				}

				found[r.Cell()] = true
			}
		}
	}
}
