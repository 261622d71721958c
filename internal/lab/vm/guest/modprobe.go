package guest

import (
	"errors"
	"fmt"
	"strings"
)

// request is a command line of modprobe: the kernel's is "-q -- ALIAS".
type request struct {
	Quiet bool // an unknown name is nothing to talk about
	Names []string
}

// parseRequest reads the arguments of modprobe that load something. Module parameters are not among them.
func parseRequest(args []string) (request, error) {
	var r request
	flags := true
	for _, a := range args {
		switch {
		case flags && a == "--":
			flags = false
		case flags && (a == "-q" || a == "--quiet"):
			r.Quiet = true
		case flags && (a == "-a" || a == "--all"):
		case flags && strings.HasPrefix(a, "-"):
			return request{}, fmt.Errorf("flag %s is not among -q, -a and --", a)
		case a == "" || strings.ContainsRune(a, '='):
			return request{}, fmt.Errorf("%q is not a module's name", a)
		default:
			r.Names = append(r.Names, a)
		}
	}
	if len(r.Names) == 0 {
		return request{}, errors.New("no module's name")
	}
	return r, nil
}

// serve loads all names and tells of each that cannot be.
func (r request) serve(m *modules) error {
	var failed []error
	for _, name := range r.Names {
		failed = append(failed, m.want(name))
	}
	return errors.Join(failed...)
}
