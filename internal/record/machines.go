package record

// LocalMachine stands for the machine on which the controller runs.
const LocalMachine = "local"

// Machine is one of a lab of real machines, as it was named.
type Machine struct {
	// At is LocalMachine, or "ssh://[USER@]HOST[:PORT]".
	At string `json:"at"`
	// Address of an end is where its data goes; "" = found.
	Address string `json:"address,omitempty"`
	// Driver is by what a router is set and watched; "" = by an agent, where one runs there.
	Driver string `json:"driver,omitempty"`
	// LAN and WAN of a router are its devices that face the client and the server; "" = found.
	LAN string `json:"lan,omitempty"`
	WAN string `json:"wan,omitempty"`
	// Management is the device by which it is reached; "" = found.
	Management string `json:"management,omitempty"`
	// Identity is the file of the private key for ssh, and Jump the machines through which ssh goes, as after
	// its option -J; "" = what ssh does by itself.
	Identity string `json:"identity,omitempty"`
	Jump     string `json:"jump,omitempty"`
	// ISP of a server is the kind of access that it gives the router as its provider, on its device ISPPort;
	// "" = none.
	ISP     string `json:"isp,omitempty"`
	ISPPort string `json:"isp_port,omitempty"`
}

// Machines are the parts of a lab of real machines. A router without At is not reached.
type Machines struct {
	Client    Machine `json:"client"`
	Router    Machine `json:"router,omitzero"`
	Server    Machine `json:"server"`
	Port      int     `json:"port,omitempty"`       // the first of three data ports; 0 = the usual ones
	SSHConfig string  `json:"ssh_config,omitempty"` // file instead of the user's configuration of ssh
	// AllowSysctl names kernel settings that a plan may set on the machines although they do more than decide
	// how packets move; nil: none.
	AllowSysctl *[]string `json:"allow_sysctl,omitempty"`
	AcceptNew   bool      `json:"accept_new,omitempty"` // host keys that are not known are trusted and kept
	Meter       *Meter    `json:"-"`                    // which a run has by itself
	LinkSpeed   string    `json:"-"`                    // of the slowest link, such as 1G, likewise
	// Firmware is the command of the controller's machine that puts another system on the router: the level
	// of the factor is its last argument; nil: it is done by hand.
	Firmware *[]string `json:"firmware,omitempty"`
}
