package diagnosis

import "github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"

// heldDown is what speaks against a full core as the cause: its quota is.
func (o *Observation) heldDown(node string) float64 {
	share, _ := o.throttled(node, 0)
	return ramp(share, .05, .3, 0, 3.5)
}

// tested is the first router, or of several the one whose CPU was held back most.
func (o *Observation) tested() (string, string) {
	routers := o.Routers()
	if len(routers) == 0 {
		return "", "the topology has no router"
	}
	best, most := routers[0], -1.0
	for _, node := range routers {
		if share, ok := o.throttled(node, 0); ok && share > most {
			best, most = node, share
		}
	}
	return best, ""
}

// tightened is what speaks for a CPU that became slower within the window, and so against one that is slow.
func (o *Observation) tightened() float64 {
	if o.Trial.Window.Seconds() < leastFall {
		return 0
	}
	return ramp(o.fell(), .28, .45, 0, 4)
}

// fell is how much less arrived in the window's last third than in its first: 0.5 = half as much.
func (o *Observation) fell() float64 {
	early, late := 0.0, 0.0
	curves, _ := metrics.Received(o.Trial.Traffic)
	for _, curve := range curves {
		c := Column{curve: curve, w: o.Trial.Window}
		a, ok1 := c.GrewIn(0, .34)
		b, ok2 := c.GrewIn(.66, 1)
		if ok1 && ok2 {
			early, late = early+a, late+b
		}
	}
	if early <= 0 {
		return 0
	}
	return 1 - late/early
}
