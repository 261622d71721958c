package tunnel

import (
	"net/netip"
	"strings"
	"time"
)

// management is what openvpn has said on its management interface: hear takes a line, and gives what to
// answer, "" = nothing.
type management struct {
	server  bool
	allowed []netip.Prefix // what lies behind the server's client

	ready     bool      // initialised: the server listens, the client is connected
	cipher    string    // of the data channel, "" before there is one
	since     time.Time // when the data channel was there
	offloaded bool      // data-channel offload is in use
	complaint string    // the last warning or error
}

// opening is what is said first: what we want to hear, and then go.
const opening = "state on\nlog on\nhold release\n"

// connected reports whether the data channel stands.
func (t *management) connected() bool { return t.ready && t.cipher != "" }

// words are what openvpn said last that may explain a failure.
func (t *management) words() string {
	if t.complaint == "" {
		return ""
	}
	return ": it says: " + t.complaint
}

func (t *management) hear(line string, now time.Time) (answer string) {
	kind, rest, _ := strings.Cut(line, ":")
	switch {
	case kind == ">STATE":
		fields := strings.Split(rest, ",")
		t.ready = len(fields) > 1 && fields[1] == "CONNECTED"
		if !t.ready {
			t.cipher = ""
		}
	case kind == ">LOG":
		t.hearLog(rest, now)
	case kind == ">CLIENT":
		return t.hearClient(rest)
	case kind == ">FATAL":
		t.complaint = rest
	case kind == ">HOLD": // again, after a restart
		return "hold release\n"
	case strings.HasPrefix(line, "CLIENT_LIST\t"):
		fields := strings.Split(line, "\t")
		t.found(fields[len(fields)-1], now)
	case strings.HasPrefix(line, "GLOBAL_STATS\tdco_enabled\t"):
		t.offloaded = !strings.HasSuffix(line, "\t0")
	}
	return ""
}

// hearLog takes "time,flags,text".
func (t *management) hearLog(rest string, now time.Time) {
	_, rest, _ = strings.Cut(rest, ",")
	flags, text, _ := strings.Cut(rest, ",")
	if _, after, ok := strings.Cut(text, "Data Channel: cipher '"); ok && !t.server {
		cipher, _, _ := strings.Cut(after, "'")
		t.found(cipher, now)
	}
	if strings.ContainsAny(flags, "FNW") {
		t.complaint = text
	}
}

// found notes the data channel's cipher.
func (t *management) found(cipher string, now time.Time) {
	if t.cipher != cipher {
		t.cipher, t.since = cipher, now
	}
}

// hearClient takes what happens to a server's client. Its certificate has been verified before we are asked.
func (t *management) hearClient(rest string) (answer string) {
	fields := strings.Split(rest, ",")
	switch {
	case fields[0] == "CONNECT" && len(fields) == 3:
		return "client-auth " + fields[1] + " " + fields[2] + "\n" + clientRoutes(t.allowed) + "END\n"
	case fields[0] == "REAUTH" && len(fields) == 3:
		return "client-auth-nt " + fields[1] + " " + fields[2] + "\n"
	case fields[0] == "ESTABLISHED":
		return "status 3\n" // which names the cipher
	case fields[0] == "DISCONNECT":
		t.cipher = ""
	}
	return ""
}
