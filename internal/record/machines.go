package record

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
)

// LocalMachine is the value of Machine.At for the machine that runs the controller.
const LocalMachine = "local"

// Machine describes a machine in a lab of real machines, as configured by the user.
type Machine struct {
	// At is LocalMachine, or "ssh://[USER@]HOST[:PORT]".
	At string `json:"at"`
	// Address is the address of an endpoint for test traffic; "" means that it is discovered.
	Address string `json:"address,omitempty"`
	// Driver is the name of the driver that configures and observes a router without an agent. If it is "",
	// an agent does so, provided that it can run there.
	Driver string `json:"driver,omitempty"`
	// LAN is the router's device towards the client, and WAN its device towards the server; "" means that it
	// is discovered.
	LAN string `json:"lan,omitempty"`
	WAN string `json:"wan,omitempty"`
	// Management is the device that carries the control connection; "" means that it is discovered.
	Management string `json:"management,omitempty"`
	// Identity is the private key file for ssh. Jump lists jump hosts, as for ssh -J. Where a field is "",
	// the user's configuration applies.
	Identity string `json:"identity,omitempty"`
	Jump     string `json:"jump,omitempty"`
	// ISP is the kind of access that the server, acting as a provider, offers the router on the device
	// ISPPort; "" means none.
	ISP     string `json:"isp,omitempty"`
	ISPPort string `json:"isp_port,omitempty"`
}

// Machines describes a lab of real machines. A router whose At is "" is not accessible.
type Machines struct {
	Client    Machine `json:"client"`
	Router    Machine `json:"router,omitzero"`
	Server    Machine `json:"server"`
	Port      int     `json:"port,omitempty"`       // first of three data ports; 0 means the default
	SSHConfig string  `json:"ssh_config,omitempty"` // replaces the user's ssh configuration file
	// AllowSysctl lists kernel settings that a plan may set on the machines although they do not affect
	// packet processing; nil means none.
	AllowSysctl *[]string `json:"allow_sysctl,omitempty"`
	AcceptNew   bool      `json:"accept_new,omitempty"` // accept and store unknown host keys
	Meter       *Meter    `json:"-"`                    // written to the head of the run
	LinkSpeed   string    `json:"-"`                    // rate of the slowest link, such as 1G
	Device      string    `json:"-"`                    // name of the router, written to the head of the run
	Notes       *[]string `json:"-"`                    // written to the head of the run
	// Firmware is the command on the controller's machine that installs firmware on the router. The level of
	// the firmware factor is appended as the last argument. If Firmware is nil, the user installs firmware by
	// hand.
	Firmware *[]string `json:"firmware,omitempty"`
	// Flash installs firmware through labgrid instead. If it is nil, Firmware or the user installs it.
	Flash *Flash `json:"flash,omitempty"`
	// Place is the labgrid place that the machines belong to; nil means none. The place's tags may name
	// machines.
	Place *Place `json:"place,omitempty"`
}

// Installs reports whether firmware can be installed on the router without the user.
func (m *Machines) Installs() bool { return m != nil && (m.Firmware != nil || m.Flash != nil) }

// Place describes a place of a labgrid coordinator. A run reserves and acquires the place before it first
// connects to a machine, and releases it at the end.
type Place struct {
	// Name is the name of the place; "" means any place that has all Tags.
	Name string   `json:"name,omitempty"`
	Tags []string `json:"tags,omitempty"` // KEY=VALUE
	// Coordinator is HOST[:PORT]; "" means labgrid's own default. Proxy is the host through which ssh
	// forwards the connection; "" means a direct connection.
	Coordinator string `json:"coordinator,omitempty"`
	Proxy       string `json:"proxy,omitempty"`
	// Config is the path of a labgrid environment file; "" means none. State is a state of the strategy in
	// this file. The board is brought into this state before the first connection.
	Config string `json:"config,omitempty"`
	State  string `json:"state,omitempty"`
	// PowerBefore is the power command before the first connection. PowerAfter is the power command before
	// the release. For both, "" means none.
	PowerBefore string        `json:"power_before,omitempty"`
	PowerAfter  string        `json:"power_after,omitempty"`
	Wait        time.Duration `json:"wait_ns,omitempty"` // maximum wait for a place that others use
	Boot        time.Duration `json:"boot_ns,omitempty"` // maximum wait for ssh after PowerBefore or State
}

// Flash describes how labgrid installs firmware on the router.
type Flash struct {
	// Image is the path of the image, in which LEVEL stands for the level of the firmware factor; "" means
	// none.
	Image string `json:"image,omitempty"`
	// Commands lists commands of labgrid-client, in which LEVEL stands for the level and IMAGE for the path.
	Commands []string `json:"commands"`
}

// FoundDevice describes the router under test from the facts in its environment; see DeviceOf. It returns ""
// unless the router is a real machine to which the run had access. If the run itself changes the firmware,
// the description omits the system.
func (r *Run) FoundDevice() string {
	if r.Machines == nil || r.Machines.Router.At == "" {
		return ""
	}

	own := slices.ContainsFunc(r.Design.Cells, factor.Firmware.In)
	return DeviceOf(r.Facts(r.Tested().Name), !own)
}

// DeviceOf describes a machine from the facts in its environment. It names the product or, if that is
// unknown, the processor. If system is set, the distribution and the release follow.
func DeviceOf(facts map[string]string, system bool) string {
	words := cmp.Or(facts["product"], facts["cpu_model"])
	if system {
		release := cmp.Or(facts["distribution_release"], facts["distribution_version"])
		words += ", " + strings.TrimSpace(facts["distribution"]+" "+release)
	}
	return strings.Trim(words, ", ")
}
