package meter

import (
	"cmp"
	"errors"
	"net/url"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Schemes of a meter's address.
const (
	shelly  = "shelly"
	tasmota = "tasmota"
	command = "command"
	typed   = "typed"
)

// Hint explains the syntax of a meter's address.
const Hint = "write shelly://HOST, tasmota://HOST, command:PROGRAM ARGS or " +
	"typed:idle=WATTS,loaded=WATTS"

// spec holds the parts of a meter's address.
type spec struct {
	scheme  string
	host    string // host name, with the port if the address has one
	user    string
	channel int      // number of the socket, for a plug with several
	words   []string // words of the command, for scheme command only
	// Sources of the password.
	passwordEnv, passwordFile string
}

// Parse parses the address of a meter. Errors never contain the address, because it may include a
// password.
func Parse(text string) (record.Meter, error) {
	m := record.Meter{At: strings.TrimSpace(text)}
	if rest, ok := strings.CutPrefix(m.At, typed+":"); ok {
		return m, hinted(readTyped(&m, rest))
	}

	_, err := parse(m.At)
	return m, hinted(err)
}

func hinted(err error) error {
	if err == nil {
		return nil
	}
	return check.WithHint(err, Hint)
}

func parse(text string) (s spec, err error) {
	scheme, rest, ok := strings.Cut(text, ":")
	if s.scheme = scheme; !ok || strings.ContainsFunc(text, check.Steers) || strings.Contains(text, "\n") {
		return s, errors.New("it is no meter")
	}

	if s.scheme == command {
		if s.words = strings.Fields(rest); len(s.words) == 0 {
			return s, errors.New("the command has no program")
		}
		return s, nil
	}

	u, err := url.Parse(text)
	if err != nil {
		return s, errors.New("its address cannot be read")
	}

	_, secret := u.User.Password()
	if secret {
		return s, errors.New("a password does not belong there; name where it stands: " +
			"?password_env=VARIABLE or ?password_file=/FILE")
	}

	s.host, s.user = u.Host, cmp.Or(u.User.Username(), "admin") // the default on both kinds of plugs
	path := strings.TrimPrefix(u.Path, "/")
	switch s.scheme {
	case shelly, tasmota:
		if path != "" {
			s.channel, err = strconv.Atoi(path)
		}

		if err != nil || s.channel < 0 || s.channel > 99 {
			return s, errors.New("what follows its host is no number of a socket")
		}
	default:
		return s, errors.New("it is no kind of meter")
	}

	query, err := url.ParseQuery(u.RawQuery)
	known := err == nil
	for name, values := range query {
		known = known && (name == "password_env" || name == "password_file") && len(values) == 1 &&
			values[0] != ""
	}

	s.passwordEnv, s.passwordFile = query.Get("password_env"), query.Get("password_file")
	switch {
	case s.host == "" || u.Hostname() == "":
		return s, errors.New("it has no host")
	case !known:
		return s, errors.New("what may follow ? is password_env or password_file, each with a value")
	case s.passwordFile != "" && !strings.HasPrefix(s.passwordFile, "/"):
		return s, errors.New("password_file must begin with /")
	}

	return s, nil
}

// readTyped parses "idle=4.2,loaded=6.8". One of the two values suffices.
func readTyped(m *record.Meter, text string) error {
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		into, ok := map[string]*float64{"idle": &m.IdleW, "loaded": &m.LoadedW}[strings.TrimSpace(name)]
		w, err := watts(value)
		if !ok || *into > 0 || err != nil || w == 0 {
			return errors.New("what was typed in is no power in watts, idle or loaded, each once")
		}

		*into = w
	}
	return nil
}
