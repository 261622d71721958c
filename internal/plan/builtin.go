package plan

import (
	"embed"
	"slices"
)

//go:embed plans/*.yaml
var builtIns embed.FS

// builtInNames lists the built-in plans in display order. The first is the default.
var builtInNames = [...]string{"quick", PathPlan, "blackbox", "wireguard", "queues", "firewall", "forwarding",
	"openvpn", "site-to-site", "to-router", "latency", "rfc2544", "ramp", "soak", "crypto",
	"crypto-full"}

// PathPlan is the default plan for the path between two machines.
const PathPlan = "path"

// BuiltInSource is the Design.Source of a built-in plan.
const BuiltInSource = "built-in"

// Strict returns the --set options that give a built-in plan the durations of the standard that it follows.
// ok is false if the plan follows no standard.
func Strict(name string) (sets []string, ok bool) {
	if name != "rfc2544" {
		return nil, false
	}
	return []string{"method.warmup=0", "method.cooldown=7s", "method.search.preset=rfc2544",
		"method.search.max_time=24h", "method.search.latency.duration=120s",
		"method.search.latency.repeats=20", "method.search.frame_loss.duration=60s",
		"method.search.back_to_back.duration=2s", "method.search.back_to_back.repeats=50"}, true
}

// BuiltIns lists the names of the built-in plans, the default first.
func BuiltIns() []string { return slices.Clone(builtInNames[:]) }

// BuiltIn returns the text of a built-in plan.
func BuiltIn(name string) (data []byte, ok bool) {
	if !slices.Contains(builtInNames[:], name) {
		return nil, false
	}

	data, err := builtIns.ReadFile("plans/" + name + ".yaml")
	return data, err == nil
}

// ReadBuiltIn reads one of BuiltIns.
func ReadBuiltIn(name string, v Vocabulary, sets []string) (*Plan, error) {
	data, _ := BuiltIn(name)
	p, err := Read(name+".yaml", data, v, sets)
	if err != nil {
		return nil, err
	}

	p.Design.Source = BuiltInSource
	return p, nil
}
