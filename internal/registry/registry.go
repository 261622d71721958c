// Package registry lists everything that plans, labs and reports can use, with one line per item. It
// contains no logic.
package registry

import (
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/cipher"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/overhead"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/iperf3"
)

// congestions lists the usual TCP congestion control algorithms, the default first. Which of them a node's
// kernel supports is determined in the lab.
var congestions = [...]string{"cubic", "reno", "bbr"}

// LabParts returns the controller's side of knobs and tunnels.
func LabParts() lab.Parts { return lab.Parts{Knobs: node.Knobs(), Tunnels: node.Tunnels()} }

// Vocabulary returns the factors and metrics that plans may contain.
func Vocabulary() plan.Vocabulary { return vocabularyOf(node.Engines(), nil) }

// Catalogue lists the factors that plans may contain.
func Catalogue() *factor.Catalogue { return Vocabulary().Catalogue }

// PeerVocabulary returns the vocabulary for a run with another machine. The default IP version is that of
// the address that the user typed. If the other machine is a third party's iperf3 server, the default
// engine is iperf3.
func PeerVocabulary(thirdParty, typedIPv6 bool) plan.Vocabulary {
	engines := node.Engines()
	if thirdParty {
		i := slices.IndexFunc(engines,
			func(e traffic.Engine) bool { return e.Name() == (iperf3.Engine{}).Name() })
		engines[0], engines[i] = engines[i], engines[0]
	}

	if typedIPv6 {
		return vocabularyOf(engines, []string{"6", "4"})
	}

	return vocabularyOf(engines, nil)
}

func vocabularyOf(engines []traffic.Engine, ips []string) plan.Vocabulary {
	options := factor.Options{
		Shapes:      lab.Topologies(),
		Tunnels:     []string{factor.NoTunnel},
		Congestions: congestions[:],
		TunnelMTU:   overhead.TunnelMTU,
		MaxTunnels:  lab.Slots - 1,
		IPs:         ips,
	}
	for _, t := range node.Tunnels() {
		options.Tunnels = append(options.Tunnels, t.Name())
	}

	var ofEngines []factor.Declaration
	for _, e := range engines {
		options.Engines = append(options.Engines, e.Name())
		if d, ok := e.(interface{ Factors() []factor.Declaration }); ok {
			ofEngines = append(ofEngines, d.Factors()...)
		}
	}

	options.Engines = append(options.Engines, factor.CipherEngine)
	ofEngines = append(ofEngines, cipher.Factors(options.Shapes)...)
	v := plan.Vocabulary{
		Absent: metrics.Absent,
		Catalogue: &factor.Catalogue{
			Shapes: options.Shapes,
			Factors: slices.Concat(factor.Base(options), ofEngines, factor.Further(),
				knob.Factors(node.Knobs())),
		},
	}
	for _, m := range metrics.Metrics() {
		v.Metrics = append(v.Metrics, m.Name)
	}

	return v
}
