package plan

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
	yaml "go.yaml.in/yaml/v4"
)

// Bounds of what a lab file may hold.
const (
	mostMachineText = 1000
	mostPort        = 1<<16 - 3 // the first of three
)

// ReadMachines reads a lab file: which machines are a lab of real ones. file is only a name, for messages;
// judge says what is wrong with a machine's place, meter reads how a power meter is named, and whole says
// what is wrong with machines that can be read, and at which key, such as router.lan. An error is an
// *Error, or several, joined: all that is wrong.
func ReadMachines(file string, data []byte, judge func(at string) error,
	meter func(at string) (record.Meter, error),
	whole func(record.Machines) (key string, err error)) (m record.Machines, err error) {
	root, err := parseTree(file, data)
	if empty, ok := errors.AsType[*Error](err); ok && empty.Text == emptyPlan {
		empty.Text, empty.HintText = "the lab file is empty", "chokepoint lab init writes one"
	}
	if err != nil {
		return m, err
	}
	r := &reader{file: file, root: root, origin: map[*yaml.Node]string{}, broken: map[string]bool{}}
	const thisFile = "the lab file"
	places := map[string]*yaml.Node{} // of keys
	noted := func(prefix string, fields []field) []field {
		for i, f := range fields {
			fields[i].read = func(n *yaml.Node) error {
				places[prefix+f.name] = n
				return f.read(n)
			}
		}
		return fields
	}
	machine := func(name string, into *record.Machine, more ...field) field {
		for key, into := range map[string]*string{"management": &into.Management, "identity": &into.Identity,
			"jump": &into.Jump} {
			more = append(more, field{key, r.text(key, mostMachineText, into)})
		}
		return field{name, func(n *yaml.Node) error {
			at := r.scalarOf(name, func(n *yaml.Node, text string) error {
				if err := judge(text); err != nil {
					return r.fail(n, cmp.Or(check.HintOf(err), "write local or ssh://[USER@]HOST[:PORT]"),
						"%s: %v", name, err)
				}
				into.At = text
				return nil
			})
			if n.Kind == yaml.ScalarNode {
				return at(n)
			}
			return r.object(n, name, noted(name+".", append([]field{{"at", at}}, more...)))
		}}
	}
	address := func(into *string) field {
		return field{"address", r.scalarOf("address", func(n *yaml.Node, text string) error {
			if _, err := netip.ParseAddr(text); err != nil {
				return r.fail(n, "such as 192.0.2.7 or 2001:db8::7", "%q is no address", text)
			}
			*into = text
			return nil
		})}
	}
	told := r.note(r.object(root, thisFile, noted("", []field{
		machine("client", &m.Client, address(&m.Client.Address)),
		machine("router", &m.Router, field{"lan", r.text("lan", mostMachineText, &m.Router.LAN)},
			field{"wan", r.text("wan", mostMachineText, &m.Router.WAN)},
			field{"driver", r.text("driver", mostMachineText, &m.Router.Driver)}),
		machine("server", &m.Server, address(&m.Server.Address),
			field{"isp", r.text("isp", mostMachineText, &m.Server.ISP)},
			field{"isp_port", r.text("isp_port", mostMachineText, &m.Server.ISPPort)}),
		{"data_port", r.scalarOf("data_port", func(n *yaml.Node, text string) error {
			if m.Port, err = strconv.Atoi(text); err != nil || m.Port < 1 || m.Port > mostPort {
				return r.fail(n, "", "data_port %q: want a number from 1 to %d", text, mostPort)
			}
			return nil
		})},
		{"allow_sysctl", func(n *yaml.Node) error {
			names, err := r.words(n, "allow_sysctl", "name fewer")
			m.AllowSysctl = &names
			return err
		}},
		{"ssh_config", r.text("ssh_config", mostMachineText, &m.SSHConfig)},
		{"meter", func(n *yaml.Node) error { return r.meter(n, &m.Meter, meter) }},
		{"firmware", func(n *yaml.Node) error { return r.firmware(n, &m.Firmware) }},
		{"link_speed", r.scalarOf("link_speed", func(n *yaml.Node, text string) error {
			rate, err := unit.ParseBitrate(text)
			if err != nil || rate <= 0 {
				return r.fail(n, "such as 1G or 100M",
					"link_speed %q: want the rate of the slowest link", text)
			}
			m.LinkSpeed = text
			return nil
		})},
	})))
	for name, of := range map[string]record.Machine{"client": m.Client, "server": m.Server} {
		if told == nil && of.At == "" {
			_ = r.note(r.fail(root, "name it: "+name+": ssh://HOST", "%s has no %s", thisFile, name))
		}
	}
	if len(r.errs) > 0 {
		return record.Machines{}, together(r.errs)
	}
	if key, err := whole(m); err != nil {
		at := cmp.Or(places[key], root)
		if machine, _, ok := strings.Cut(key, "."); ok {
			at = cmp.Or(places[key], places[machine], root)
		}
		return record.Machines{}, r.fail(at, check.HintOf(err), "%v", err)
	}
	return m, nil
}

// meter reads which power meter there is: an address, or that and whose power it measures.
func (r *reader) meter(n *yaml.Node, into **record.Meter, parse func(at string) (record.Meter, error)) error {
	var m record.Meter
	at := r.scalarOf("meter", func(n *yaml.Node, text string) (err error) {
		if m, err = parse(text); err != nil {
			return r.fail(n, check.HintOf(err), "meter: %v", err)
		}
		return nil
	})
	*into = &m
	if n.Kind == yaml.ScalarNode {
		return at(n)
	}
	node := ""
	err := r.object(n, "meter", []field{{"at", at}, {"node", r.scalarOf("node",
		func(n *yaml.Node, text string) error {
			if node = text; !slices.Contains([]string{"client", "router", "server"}, text) {
				return r.fail(n, "write client, router or server", "%q is no node of the lab", text)
			}
			return nil
		})}})
	if err == nil && m.At == "" {
		err = r.fail(n, "name it: at: shelly://HOST", "meter has no at")
	}
	m.Node = node
	return err
}

// mostWords bounds the lists of a lab file.
const mostWords = 50

// firmware reads how another system is put on the router: a program with its arguments, each a word.
func (r *reader) firmware(n *yaml.Node, into **[]string) error {
	var command []string
	err := r.object(n, "firmware", []field{{"command", func(n *yaml.Node) (err error) {
		command, err = r.words(n, "command", "write a script of it")
		return err
	}}})
	if err == nil && len(command) == 0 {
		err = r.fail(n, "such as firmware: {command: [./flash.sh]}, which is run with the level behind it",
			"firmware has no command")
	}
	*into = &command
	return err
}

// words reads a list of at most mostWords texts; fewer is the hint where it has more.
func (r *reader) words(n *yaml.Node, key, fewer string) (words []string, err error) {
	err = r.list(n, key, func(i int, item *yaml.Node) error {
		var word string
		if err := r.text(key, mostMachineText, &word)(item); err != nil {
			return err
		}
		if i >= mostWords {
			return r.fail(item, fewer, "%s has more than %d words", key, mostWords)
		}
		words = append(words, word)
		return nil
	})
	return words, err
}

// wordsText is a list of texts as YAML.
func wordsText(words []string) string {
	var quoted []string
	for _, word := range words {
		quoted = append(quoted, strconv.Quote(word))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// MachinesText is the lab file of machines.
func MachinesText(m record.Machines) string {
	var b strings.Builder
	b.WriteString("# A lab of real machines: chokepoint run --lab FILE\n")
	machine := func(name string, of record.Machine) {
		if of.At == "" {
			return
		}
		fmt.Fprintf(&b, "%s:\n  at: %s\n", name, of.At)
		for _, f := range [][2]string{{"address", of.Address}, {"driver", of.Driver},
			{"lan", of.LAN},
			{"wan", of.WAN}, {"management", of.Management}, {"identity", of.Identity},
			{"jump", of.Jump}, {"isp", of.ISP}, {"isp_port", of.ISPPort}} {
			if f[1] != "" {
				fmt.Fprintf(&b, "  %s: %q\n", f[0], f[1])
			}
		}
	}
	machine("client", m.Client)
	machine("router", m.Router)
	machine("server", m.Server)
	if m.Port > 0 {
		fmt.Fprintf(&b, "data_port: %d\n", m.Port)
	}
	if m.SSHConfig != "" {
		fmt.Fprintf(&b, "ssh_config: %q\n", m.SSHConfig)
	}
	if m.AllowSysctl != nil {
		fmt.Fprintf(&b, "allow_sysctl: %s\n", wordsText(*m.AllowSysctl))
	}
	if m.LinkSpeed != "" {
		fmt.Fprintf(&b, "link_speed: %s\n", m.LinkSpeed)
	}
	if m.Meter != nil {
		fmt.Fprintf(&b, "meter:\n  at: %q\n", m.Meter.At)
		if m.Meter.Node != "" {
			fmt.Fprintf(&b, "  node: %s\n", m.Meter.Node)
		}
	}
	if m.Firmware != nil {
		fmt.Fprintf(&b, "firmware:\n  command: %s\n", wordsText(*m.Firmware))
	}
	return b.String()
}
