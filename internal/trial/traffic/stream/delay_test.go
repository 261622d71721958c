package stream

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// TestDelaysMatchModel: each bucket holds as many as the plain list of delays has in its range, however far
// the clocks are apart.
func TestDelaysMatchModel(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 2))
		apart := int64(r.Uint64() >> 2) // of the two clocks
		var d delays
		var plain []int64
		at := int64(r.Uint64() >> 3)
		for range 2000 {
			at += r.Int64N(1 << 20)
			delay := r.Int64N(1<<r.IntN(33) + 1)
			d.see(sendTick(at), at+delay+apart)
			plain = append(plain, delay)
		}

		got := d.variation("kernel")
		lowest := slices.Min(plain)
		for i := range plain {
			plain[i] -= lowest
		}

		n := int64(0)
		for i, c := range got.Counts {
			n += c.Packets
			if i > 0 && c.AboveNs < got.Counts[i-1].AboveNs {
				t.Fatalf("seed %d: buckets out of order: %+v", seed, got.Counts)
			}
		}

		if n != int64(len(plain)) {
			t.Fatalf("seed %d: %d packets, want %d", seed, n, len(plain))
		}

		slices.Sort(plain)
		// Any quantile is found to a bucket's width.
		for _, q := range []float64{0, .5, .9, .99, 1} {
			want := plain[int(q*float64(len(plain)-1))]
			rank := int64(q * float64(len(plain)-1))
			found := int64(0)
			for _, c := range got.Counts {
				found = c.AboveNs
				if rank -= c.Packets; rank < 0 {
					break
				}
			}

			// Near the first delay a bucket is fine; twice as far, twice as wide.
			off := max(found-want, want-found)
			if off > 128+max(want, plain[len(plain)-1])/8 {
				t.Errorf("seed %d: quantile %v is %d, want %d", seed, q, found, want)
			}
		}
	}
}

func TestDelayBucketsMeet(t *testing.T) {
	for i := range 400 {
		lo := traffic.BucketEdge(i, delayOctave)
		hi := traffic.BucketEdge(i+1, delayOctave)
		bucket := func(ns int64) int { return traffic.BucketOf(ns, delayOctave) }
		if bucket(lo) != i || bucket(hi-1) != i || bucket(hi) != i+1 {
			t.Fatalf("bucket %d: [%d, %d) holds %d, %d, %d", i, lo, hi, bucket(lo), bucket(hi-1), bucket(hi))
		}

		w := hi - lo
		if w != 64 && w > hi/16 {
			t.Errorf("bucket %d is %d wide at %d", i, w, lo)
		}
	}
}
