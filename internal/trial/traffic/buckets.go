package traffic

import "math/bits"

// bucketFinest is log2 of the width of the smallest bucket, in ns.
const bucketFinest = 6

// BucketOf returns the bucket of a duration. The first 2<<octave buckets are 64 ns wide. From there on,
// each doubling has 1<<octave buckets.
func BucketOf(ns int64, octave int) int {
	linear := bucketFinest + octave
	if ns < 1<<linear {
		return int(ns >> bucketFinest)
	}

	e := bits.Len64(uint64(ns)) - 1
	return (e-linear+1)<<octave + int(ns>>(e-octave))&(1<<octave-1)
}

// BucketEdge returns the lower bound of a bucket, in ns.
func BucketEdge(i, octave int) int64 {
	if i < 1<<octave {
		return int64(i) << bucketFinest
	}

	e := i>>octave - 1 + bucketFinest
	return (1<<octave | int64(i&(1<<octave-1))) << e
}

// Buckets counts durations by bucket.
type Buckets []int64

// See counts a duration, with 1<<octave buckets per doubling.
func (b *Buckets) See(ns int64, octave int) {
	i := BucketOf(ns, octave)
	for len(*b) <= i {
		*b = append(*b, 0)
	}

	(*b)[i]++
}
