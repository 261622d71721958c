package plan

import (
	"embed"
	"slices"
)

//go:embed plans/*.yaml
var builtIns embed.FS

// builtInNames are in the order in which they are shown; the first is the
// default.
var builtInNames = [...]string{
	"quick", "wireguard", "queues", "firewall", "forwarding", "openvpn", "site-to-site", "to-router",
}

// BuiltInSource is the Design.Source of a built-in plan.
const BuiltInSource = "built-in"

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

// ReadBuiltIn reads a built-in plan.
func ReadBuiltIn(name string, v Vocabulary, sets []string) (*Plan, error) {
	data, ok := BuiltIn(name)
	if !ok {
		return nil, &Error{Text: "there is no built-in plan " + name,
			HintText: choiceHint(name, "built-in plans", BuiltIns())}
	}
	p, err := Read(name+".yaml", data, v, sets)
	if err != nil {
		return nil, err
	}
	p.Design.Source = BuiltInSource
	return p, nil
}
