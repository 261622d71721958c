package plan

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
	yaml "go.yaml.in/yaml/v4"
)

// These are the limits of lab files and bed files.
const (
	maxText = 1000      // maximum length of a text in bytes
	maxPort = 1<<16 - 3 // three consecutive ports are used
)

// These are the maximum times to wait for a labgrid place, and for its board to boot.
const (
	maxPlaceWait = 24 * time.Hour
	maxPlaceBoot = time.Hour
)

// machineKey is a key of a machine in a lab file. It is allowed only for the listed roles, or for all roles
// if the list is empty.
type machineKey struct {
	name, roles string
	into        *string
}

// machineKeys lists the keys of a machine, except "at".
func machineKeys(m *record.Machine) []machineKey {
	return []machineKey{
		{"address", "client server", &m.Address},
		{"driver", "router", &m.Driver},
		{"lan", "router", &m.LAN},
		{"wan", "router", &m.WAN},
		{"management", "", &m.Management},
		{"identity", "", &m.Identity},
		{"jump", "", &m.Jump},
		{"isp", "server", &m.ISP},
		{"isp_port", "server", &m.ISPPort},
	}
}

// ReadMachines reads a lab file, which describes a lab of real machines. The argument file is the name shown
// in messages. The function meter parses the address of a power meter. The function whole checks the
// machines, and may complete them. If it returns an error, key is the wrong key, such as router.lan. The
// error of ReadMachines names the place. If there are several mistakes, it consists of several joined
// *Errors.
func ReadMachines(file string, data []byte, meter func(at string) (record.Meter, error),
	whole func(*record.Machines) (key string, err error)) (record.Machines, error) {
	r := newReader(file, "the lab file is empty", "chokepoint lab init writes one")
	read := func(root *yaml.Node, m *record.Machines) { r.machines(root, m, meter) }
	return readWhole(r, data, read, whole)
}

// machine reads a machine, which is given as an address, or as an address with further keys.
func (r *reader) machine(name string, into *record.Machine) field {
	at := r.text(name, maxText, &into.At)
	fields := []field{{"at", at.read}}
	for _, k := range machineKeys(into) {
		if k.roles == "" || strings.Contains(k.roles, name) {
			fields = append(fields, r.text(k.name, maxText, k.into))
		}
	}

	return field{name, func(n *yaml.Node) error {
		if n.Kind == yaml.ScalarNode {
			return at.read(n)
		}
		return r.object(n, name, r.placed(name+".", fields))
	}}
}

// machines reads the keys of a lab file.
func (r *reader) machines(root *yaml.Node, m *record.Machines,
	meter func(at string) (record.Meter, error)) {
	const thisFile = "the lab file"
	failed := r.note(r.object(root, thisFile, r.placed("", []field{
		r.machine("client", &m.Client),
		r.machine("router", &m.Router),
		r.machine("server", &m.Server),
		r.line("device", record.MaxDevice, &m.Device),
		{"notes", func(n *yaml.Node) error {
			m.Notes = new([]string)
			return r.notes(m.Notes).read(n)
		}},
		r.count("data_port", 1, maxPort, &m.Port),
		{"allow_sysctl", func(n *yaml.Node) error {
			m.AllowSysctl = new([]string)
			return r.words("allow_sysctl", maxText, maxWords, "name fewer", m.AllowSysctl).read(n)
		}},
		r.text("ssh_config", maxText, &m.SSHConfig),
		{"meter", func(n *yaml.Node) error { return r.meter(n, &m.Meter, meter) }},
		{"firmware", func(n *yaml.Node) error { return r.firmware(n, m) }},
		{"place", func(n *yaml.Node) error {
			m.Place = &record.Place{}
			return r.place(n, m.Place)
		}},
		r.scalarOf("link_speed", func(n *yaml.Node, text string) error {
			rate, err := unit.ParseBitrate(text)
			if err != nil || rate <= 0 {
				return r.fail(n, "such as 1G or 100M",
					"link_speed %q: want the rate of the slowest link", text)
			}

			m.LinkSpeed = text
			return nil
		}),
	})))
	for name, of := range map[string]record.Machine{"client": m.Client, "server": m.Server} {
		if failed == nil && of.At == "" && m.Place == nil { // the place's tags may name the machine
			_ = r.note(r.fail(root, "name it: "+name+": ssh://HOST", "%s has no %s", thisFile, name))
		}
	}
}

// meter reads a power meter, which is given as an address, or as an address and the node whose power it
// measures.
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
		return at.read(n)
	}

	node := ""
	err := r.object(n, "meter", []field{{"at", at.read},
		r.word("node", &node, "client", "router", "server")})
	if err == nil && m.At == "" {
		err = r.fail(n, "name it: at: shelly://HOST", "meter has no at")
	}

	m.Node = node
	return err
}

// maxWords is the maximum length of a list in a lab file.
const maxWords = 50

// defaultBoot limits the wait for a board to answer over SSH if the lab file sets no limit.
const defaultBoot = 5 * time.Minute

// firmware reads the commands that install another system on the router. They are a program with its
// arguments, or a list of labgrid-client commands.
func (r *reader) firmware(n *yaml.Node, m *record.Machines) error {
	var command []string
	var flash record.Flash
	err := r.object(n, "firmware", []field{
		r.command(&command),
		r.words("labgrid", maxText, maxWords, "write a script of it", &flash.Commands),
		r.text("image", maxText, &flash.Image),
	})
	switch {
	case err != nil:
		return err
	case len(flash.Commands) > 0 && len(command) > 0:
		return r.fail(n, "keep one of them", "firmware has both command and labgrid")
	case len(flash.Commands) > 0:
		m.Flash = &flash
		return nil
	case flash.Image != "":
		return r.fail(n, "such as labgrid: [write-image IMAGE, power cycle]",
			"firmware has image without labgrid")
	case len(command) == 0:
		return r.fail(n, "such as firmware: {command: [./flash.sh]}, which is run with the level behind it",
			"firmware has no command")
	}

	m.Firmware = &command
	return nil
}

// place reads a labgrid place.
func (r *reader) place(n *yaml.Node, p *record.Place) error {
	p.Boot = defaultBoot
	fields := []field{
		r.text("name", maxText, &p.Name),
		r.words("tags", maxText, maxWords, "name fewer", &p.Tags),
		r.text("coordinator", maxText, &p.Coordinator),
		r.text("proxy", maxText, &p.Proxy),
		r.text("config", maxText, &p.Config),
		r.text("state", maxText, &p.State),
		r.word("power_before", &p.PowerBefore, "cycle", "on"),
		r.word("power_after", &p.PowerAfter, "off"),
		r.duration("wait", 0, maxPlaceWait, &p.Wait),
		r.duration("boot", time.Second, maxPlaceBoot, &p.Boot),
	}
	err := r.object(n, "place", r.placed("place.", fields))
	switch {
	case err != nil:
		return err
	case p.Name == "" && len(p.Tags) == 0:
		return r.fail(n, "such as name: board-7, or tags: [device=openwrt_one]",
			"place has no name and no tags")
	case p.Name != "" && len(p.Tags) > 0:
		return r.fail(n, "keep one of them", "place has both name and tags")
	case p.State != "" && p.Config == "":
		return r.fail(n, "name the labgrid environment file with the strategy: config: FILE",
			"place has state without config")
	}

	return nil
}

// words reads a list of texts. It limits the length of each text to long bytes, and the number of texts to
// most. The argument fewer is the hint shown for a list with too many texts.
func (r *reader) words(key string, long, most int, fewer string, into *[]string) field {
	return field{key, func(n *yaml.Node) error {
		return r.list(n, key, func(i int, item *yaml.Node) error {
			var word string
			if err := r.text(key, long, &word).read(item); err != nil {
				return err
			}

			if i >= most {
				return r.fail(item, fewer, "%s has more than %d entries", key, most)
			}

			*into = append(*into, word)
			return nil
		})
	}}
}

// command reads a program with its arguments.
func (r *reader) command(into *[]string) field {
	return r.words("command", maxText, maxWords, "write a script of it", into)
}

// wordsText formats a list of texts as YAML.
func wordsText(words []string) string {
	var quoted []string
	for _, word := range words {
		quoted = append(quoted, strconv.Quote(word))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// MachinesText formats machines as a lab file.
func MachinesText(m record.Machines) string {
	var b strings.Builder
	b.WriteString("# A lab of real machines: chokepoint run --lab FILE\n")
	machine := func(name string, of record.Machine) {
		if of.At == "" {
			return
		}

		fmt.Fprintf(&b, "%s:\n  at: %s\n", name, of.At)
		for _, k := range machineKeys(&of) {
			if *k.into != "" {
				fmt.Fprintf(&b, "  %s: %q\n", k.name, *k.into)
			}
		}
	}
	machine("client", m.Client)
	machine("router", m.Router)
	machine("server", m.Server)
	if m.Device != "" {
		fmt.Fprintf(&b, "device: %q\n", m.Device)
	}

	if m.Notes != nil {
		fmt.Fprintf(&b, "notes: %s\n", wordsText(*m.Notes))
	}

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
