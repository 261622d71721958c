package record

import (
	"cmp"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
)

// LocalMachine stands for the machine on which the controller runs.
const LocalMachine = "local"

// Machine is one machine of a lab of real machines, as named by the user.
type Machine struct {
	// At is LocalMachine, or "ssh://[USER@]HOST[:PORT]".
	At string `json:"at"`
	// Address is the data address of an endpoint; "" = discovered.
	Address string `json:"address,omitempty"`
	// Driver configures and observes a router; "" = an agent, if it can run there.
	Driver string `json:"driver,omitempty"`
	// LAN and WAN are the router's devices that face the client and the server; "" = discovered.
	LAN string `json:"lan,omitempty"`
	WAN string `json:"wan,omitempty"`
	// Management is the device through which the machine is reached; "" = discovered.
	Management string `json:"management,omitempty"`
	// Identity is the file of the private key for ssh, and Jump the jump hosts, as for ssh -J; "" = the
	// user's configuration.
	Identity string `json:"identity,omitempty"`
	Jump     string `json:"jump,omitempty"`
	// ISP is the kind of access that a server, as provider, gives the router on its device ISPPort; "" =
	// none.
	ISP     string `json:"isp,omitempty"`
	ISPPort string `json:"isp_port,omitempty"`
}

// Machines describes a lab of real machines. A router without At cannot be logged in to.
type Machines struct {
	Client    Machine `json:"client"`
	Router    Machine `json:"router,omitzero"`
	Server    Machine `json:"server"`
	Port      int     `json:"port,omitempty"`       // the first of three data ports; 0 = the default
	SSHConfig string  `json:"ssh_config,omitempty"` // file that replaces the user's ssh configuration
	// AllowSysctl names kernel settings outside packet processing that a plan may nevertheless set on the
	// machines; nil: none.
	AllowSysctl *[]string `json:"allow_sysctl,omitempty"`
	AcceptNew   bool      `json:"accept_new,omitempty"` // unknown host keys are trusted and stored
	Meter       *Meter    `json:"-"`                    // which a run has by itself
	LinkSpeed   string    `json:"-"`                    // of the slowest link, such as 1G, likewise
	Device      string    `json:"-"`                    // the router's name in the head of a run, likewise
	Notes       *[]string `json:"-"`                    // of the head of a run; nil: none
	// Firmware is the command on the controller's machine that installs firmware on the router, with the
	// level of the factor as last argument; nil: it is installed by hand.
	Firmware *[]string `json:"firmware,omitempty"`
}

// FoundDevice describes the router under test by its fingerprint, see DeviceOf. It returns "" unless the
// router is a real machine that the run reached. A system that the run replaces itself is left out.
func (r *Run) FoundDevice() string {
	if r.Machines == nil || r.Machines.Router.At == "" {
		return ""
	}

	own := slices.ContainsFunc(r.Design.Cells, factor.Firmware.In)
	return DeviceOf(r.Facts(r.Tested().Name), !own)
}

// DeviceOf describes a machine by the facts of its fingerprint, as far as they are known: its model, else its
// processor, and with system the distribution and release.
func DeviceOf(facts map[string]string, system bool) string {
	words := cmp.Or(facts["product"], facts["cpu_model"])
	if system {
		release := cmp.Or(facts["distribution_release"], facts["distribution_version"])
		words += ", " + strings.TrimSpace(facts["distribution"]+" "+release)
	}
	return strings.Trim(words, ", ")
}
