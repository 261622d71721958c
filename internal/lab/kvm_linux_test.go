package lab

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

// TestBootBest: KVM is tried once and for a short time, its failure is said, and a machine that cannot have
// it is not asked.
func TestBootBest(t *testing.T) {
	hangs := errors.New("no answer: the console said x")
	tests := []struct {
		name      string
		may       check.Answer
		kvm, tcg  error
		wantTried string
		wantKVM   bool
		wantWhy   string
		wantErr   error
	}{
		{"none here", check.Not("open /dev/kvm: no such file"), nil, nil, "tcg 1m0s", false, "", nil},
		{"it is not known", check.CouldNotTell("x"), nil, nil, "tcg 1m0s", false, "", nil},
		{"works", check.OK(), nil, nil, "kvm 10s", true, "", nil},
		{"hangs", check.OK(), hangs, nil, "kvm 10s, tcg 1m0s", false, hangs.Error(), nil},
		{"nothing works", check.OK(), hangs, hangs, "kvm 10s, tcg 1m0s", false, hangs.Error(), hangs},
		{"no emulator at all", check.OK(), host.ErrUnsupported, nil, "kvm 10s", false, "",
			host.ErrUnsupported},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var tried []string
			g, as, err := bootBest(tt.may, 10*time.Second, time.Minute,
				func(kvm bool, within time.Duration) (*running, error) {
					accel := "tcg"
					err := tt.tcg
					if kvm {
						accel = "kvm"
						err = tt.kvm
					}

					tried = append(tried, fmt.Sprint(accel, " ", within))
					if err != nil {
						return nil, err
					}

					return &running{}, nil
				})
			expect.Same(t, "tried", tt.wantTried, strings.Join(tried, ", "))
			if !errors.Is(err, tt.wantErr) || (g == nil) != (tt.wantErr != nil) {
				t.Errorf("got %v, %v, want the error %v", g, err, tt.wantErr)
			}

			if as.KVM != tt.wantKVM || !strings.Contains(as.Why, tt.wantWhy) ||
				(as.Why == "") != (tt.wantWhy == "") {
				t.Errorf("booted as %+v, want KVM %v, why %q", as, tt.wantKVM, tt.wantWhy)
			}
		})
	}
}
