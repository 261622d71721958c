package analysis

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/ciphers"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/cipher"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// CipherNode holds the results of a node's cipher cells.
type CipherNode struct {
	Node     string            `json:"node"`
	CPU      ciphers.CPU       `json:"cpu"`
	Versions map[string]string `json:"versions"` // library → version
	Advice   []ciphers.Advice  `json:"advice"`
	Shares   []CipherShare     `json:"shares,omitempty"`
}

// measuredNode is a node with the results of its cipher cells.
type measuredNode struct {
	CipherNode
	results []ciphers.Result
	watched string // name of the node whose CPU samples cover these CPUs
}

// CipherShare estimates which share of a cell's CPU time is spent on the tunnel's cipher: the tunnel's rate ÷
// the rate at which one core encrypts ÷ the number of busy cores.
type CipherShare struct {
	Factors   record.Factors `json:"factors"` // factors of the cell
	Label     string         `json:"label"`
	Node      string         `json:"node"` // name of the node that has the CPUs
	Algorithm string         `json:"algorithm"`
	Library   string         `json:"library"`     // library with which CoreBps was measured
	Block     int            `json:"block_bytes"` // block size with which CoreBps was measured
	CoreBps   float64        `json:"core_bps"`    // encryption rate of one core, in bit/s
	Busy      float64        `json:"busy_cores"`
	Ends      int            `json:"ends"` // number of tunnel ends on these CPUs
	Share     float64        `json:"share"`
	Text      string         `json:"text"`
}

// cipherNodes returns the cipher results of each node, and compares the run's tunnels with them.
func cipherNodes(run *record.Run, cells []*group) (out []CipherNode) {
	var nodes []*measuredNode
	for _, g := range cells {
		good := g.good()
		if factor.Sends(g.factors) || len(good) == 0 || good[0].Trial.Cipher == nil {
			continue
		}

		c := good[0].Trial.Cipher
		i := slices.IndexFunc(nodes, func(n *measuredNode) bool { return n.Node == c.Node })
		if i < 0 {
			i = len(nodes)
			nodes = append(nodes, &measuredNode{
				watched: c.Watched,
				CipherNode: CipherNode{
					Node:     c.Node,
					Versions: map[string]string{},
					CPU:      ciphers.CPUOf(run.Facts(c.Node)),
				},
			})
			nodes[i].CPU.Threads = c.CPUs
		}

		n := nodes[i]
		n.Versions[c.Library] = c.Version
		var rates []float64
		for _, j := range good {
			rates = append(rates, j.Trial.Cipher.Rate)
			if _, known := j.Metrics.Values[metrics.CipherClock]; known ||
				n.CPU.ClockFrom == cipher.ClockUnwatched {
				n.CPU.ClockFrom = j.Metrics.ClockFrom
			}
		}

		of := cipher.CellOf(g.factors, c.CPUs)
		r := ciphers.Result{Cell: of, Unit: of.Unit(), Rate: statistics.Summarise(rates)}
		for _, k := range g.cell.Reasons { // each of these reasons makes the speed doubtful
			r.Doubts = append(r.Doubts, ciphers.Doubt{Kind: k.Kind, Text: k.Text})
		}

		if run.Node(c.Node).CPUs == record.CPUsEmulated {
			r.Doubts = append(r.Doubts, ciphers.Doubt{Kind: ciphers.DoubtEmulated})
		}

		n.results = append(n.results, r)
	}

	for _, n := range nodes {
		n.Advice = append(ciphers.AdviseHardware(n.CPU), ciphers.Advise(n.results)...)
		for _, g := range cells {
			if s, ok := n.shareOf(run, g); ok {
				n.Shares = append(n.Shares, s)
				g.cell.noteShare(s)
			}
		}

		out = append(out, n.CipherNode)
	}

	return out
}

// shareOf returns the cipher share of a cell's tunnel. ok is false unless the tunnel ends on the node's CPUs.
func (n *measuredNode) shareOf(run *record.Run, g *group) (s CipherShare, ok bool) {
	algorithm, libraries := cipherOf(g)
	top := metrics.TopologyOf(run, g.factors)
	goodput, known := g.cell.Metrics[metrics.Goodput]
	if algorithm == "" || top == nil || !known {
		return s, false
	}

	s = CipherShare{Factors: g.factors, Label: g.cell.Label, Node: n.watched, Algorithm: algorithm}
	metric := "router_" + metrics.CPURatio
	if n.watched == record.HostNode {
		metric = record.HostNode + "_" + metrics.CPURatio
	} else if len(top.Routers) == 0 || top.Routers[0] != n.Node {
		return s, false // no metric covers the load of these CPUs
	}

	for _, end := range top.Tunnel {
		if end == n.watched || n.watched == record.HostNode && run.Node(end).CPUs == record.CPUsShared {
			s.Ends++
		}
	}

	load, known := g.cell.Metrics[metric]
	best, found := n.nearest(algorithm, libraries, sizeOf(g))
	s.Busy = load.Median * float64(n.CPU.Threads)
	if !known || !found || s.Ends == 0 || s.Busy <= 0 {
		return s, false
	}

	s.Library = best.Library
	s.Block = best.Block
	s.CoreBps = 8 * best.Rate.Median
	s.Share = goodput.Median * float64(s.Ends) / s.CoreBps / s.Busy
	word := "most of it is something else: a faster cipher would change little"
	if s.Share >= .5 {
		word = "the cipher is most of it"
	}

	s.Text = fmt.Sprintf("the tunnel's %s takes about %s of the %s CPU cores that were busy on %s; %s "+
		"(one core encrypts %s by %s, in blocks of %d bytes)", algorithm, unit.Percent(s.Share),
		unit.Significant(s.Busy, 3), s.Node, word, unit.Bitrate(s.CoreBps), s.Library, s.Block)
	return s, true
}

// cipherOf returns the AEAD of a cell's tunnel, and the libraries whose speed is closest to the speed in the
// tunnel, best first. Most tunnels use the kernel's own ciphers. A program needs a system call for each block
// to use these ciphers. Therefore, its speed with OpenSSL is closer to the speed in the tunnel. If the tunnel
// has no AEAD, cipherOf returns "".
func cipherOf(g *group) (algorithm string, libraries []string) {
	kind := factor.Tunnel.Of(g.factors)
	libraries = []string{cipher.OpenSSL, cipher.Kernel}
	switch {
	case strings.HasPrefix(kind, "wireguard"):
		if strings.Contains(kind+factor.Tunnel.Of(g.cell.Resolved), "userspace") {
			libraries = []string{cipher.Go}
		}
		return "chacha20-poly1305", libraries
	case strings.HasSuffix(kind, "-chacha20-poly1305"):
		return "chacha20-poly1305", libraries
	case strings.HasPrefix(kind, "openvpn"), strings.HasSuffix(kind, "aes-gcm-256"):
		return "aes-256-gcm", libraries
	case kind == "esp", kind == "esp-policy":
		return "aes-128-gcm", libraries
	}

	return "", nil // the tunnel has no cipher, or has a cipher and a separate hash
}

// sizeOf returns the size, in bytes, of the packets that a cell's tunnel encrypts.
func sizeOf(g *group) int {
	sizes := g.factors.PacketSizes()
	if sizes != nil {
		return int(record.MeanSize(sizes))
	}
	return metrics.PathOf(g.factors, true).MTU()
}

// nearest returns the speed of one encrypting thread for the block size nearest to a packet size. It uses the
// first library that has a result.
func (n *measuredNode) nearest(algorithm string, libraries []string, size int) (best ciphers.Result,
	ok bool) {
	for _, library := range libraries {
		least := math.Inf(1)
		for _, r := range n.results {
			if r.Library != library || r.Algorithm != algorithm || r.Operation != cipher.Encrypt ||
				r.Threads != 1 {
				continue
			}

			far := math.Abs(float64(r.Block - size))
			if r.Mode == cipher.ModeEVP {
				far += .5 // prefer packet mode if both modes are equally near
			}

			if far < least {
				best = r
				ok = true
				least = far
			}
		}

		if ok {
			break
		}
	}
	return best, ok
}

// noteShare adds the share of the cipher as a fact to causes about the CPU time of a tunnel.
func (c *Cell) noteShare(s CipherShare) {
	if c.Diagnosis == nil {
		return
	}

	for i := range c.Diagnosis.Causes {
		k := &c.Diagnosis.Causes[i]
		switch k.Class {
		case diagnosis.CryptoWorkers, diagnosis.VPNProcess, diagnosis.OneTunnel:
			k.Facts = append(k.Facts, evidence.Evidence{
				Metric:  metrics.CipherRate,
				Node:    s.Node,
				Element: s.Algorithm,
				Value:   new(s.Share),
				Text:    s.Text,
			})
		}
	}
}

// cipherWords returns the advice on ciphers and VPNs for each node. It uses the first library for which there
// is advice.
func cipherWords(d *Document) (out []string) {
	for _, n := range d.Ciphers {
		for _, kind := range []string{ciphers.AdviceCipher, ciphers.AdviceVPN} {
			i := slices.IndexFunc(n.Advice, func(a ciphers.Advice) bool { return a.Kind == kind })
			if i >= 0 {
				a := n.Advice[i]
				by := strings.TrimSuffix(" ("+a.Library+")", " ()")
				out = append(out, fmt.Sprintf("For the CPU of %s%s: %s", n.Node, by, a.Text))
			}
		}
	}
	return out
}

// clockCaveat adds a caveat if the CPU's clock differed between the cell's trials.
func (g *group) clockCaveat() {
	v, ok := g.cell.Metrics[metrics.CipherClock]
	if !ok || len(v.Values) == 0 {
		return
	}

	w := (slices.Max(v.Values) - slices.Min(v.Values)) / v.Median
	if w > ciphers.MaxClock {
		g.caveat("clock-moved", fmt.Sprintf("the CPU's clock moved by %s between the trials",
			unit.Percent(w)))
	}
}
