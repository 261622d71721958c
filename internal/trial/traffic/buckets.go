package traffic

import "math/bits"

// bucketFinest is log2 of the width in ns of the smallest bucket.
const bucketFinest = 6

// BucketOf returns the index of the bucket for a duration. The first 2<<octave buckets are 64 ns wide.
// Beyond them, each doubling of the duration has 1<<octave buckets.
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

// Buckets holds the number of durations in each bucket.
type Buckets []int64

// See counts a duration in its bucket. Each doubling of the duration has 1<<octave buckets.
func (b *Buckets) See(ns int64, octave int) {
	i := BucketOf(ns, octave)
	for len(*b) <= i {
		*b = append(*b, 0)
	}

	(*b)[i]++
}
