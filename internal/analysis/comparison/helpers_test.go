package comparison

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
)

func quickFactors(changes ...string) record.Factors {
	f := record.Factors{
		"topology": "forward", "tunnel": "none", "ip": "4", "nat": "off", "offload": "wire",
		"protocol": "tcp", "streams": "1", "direction": "up", "congestion": "cubic", "engine": "native",
	}
	for i := 0; i+1 < len(changes); i += 2 {
		f[changes[i]] = changes[i+1]
	}
	if f["tunnel"] != "none" && f["mtu"] == "" {
		f["mtu"] = "1420"
	}
	if f["protocol"] == "udp" {
		delete(f, "congestion")
		f["rate"] = "flat"
		if f["packet_size"] == "" {
			f["packet_size"] = "64"
		}
	}
	return f
}

func source(label uint64) *rand.Rand { return rand.New(rand.NewPCG(20260101, label)) }

func atMost(t *testing.T, what string, got, most float64) {
	t.Helper()
	if se := math.Sqrt(most * (1 - most) / draws); got > most+4*se {
		t.Errorf("%s = %.4f, want at most %.4f", what, got, most)
	}
}

const draws = 10000

// declaredFactors are the factors of every plan, and those of the knobs.
func declaredFactors() *factor.Catalogue {
	return &factor.Catalogue{Factors: slices.Concat(factor.Base(factor.Options{}), factor.Further(),
		knob.Factors(node.Knobs()))}
}
