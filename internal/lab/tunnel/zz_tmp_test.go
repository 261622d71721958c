package tunnel

import (
	"context"
	"testing"
	"time"
)

func TestTmpSpeed(t *testing.T) {
	near, far := newPair(t)
	a, b := ends(near, far, [2]string{"198.18.0.1", "198.18.0.2"})
	p, err := WireGuardUserspace().Up(context.Background(), a, b, Spec{})
	check0(t, err)
	defer p.Down(context.Background())
	s := time.Now()
	transfer(t, near, far, "198.18.9.2", 1<<30)
	t.Logf("tunnel %.2f Gbit/s", 8*float64(1<<30)/1e9/time.Since(s).Seconds())
	s = time.Now()
	transfer(t, near, far, "198.18.0.2", 1<<30)
	t.Logf("plain %.2f Gbit/s", 8*float64(1<<30)/1e9/time.Since(s).Seconds())
}
