package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/chokepoint-lab/chokepoint/internal/registry"
)

// serveRole lives the life of one of the program's other roles, in which it starts itself again for a lab.
func serveRole(args []string) (code int, isRole bool) {
	isRole, err := registry.Serve(args)
	switch {
	case err == nil:
		return codeOK, isRole
	case errors.Is(err, registry.ErrRole):
		code = codeUsage
	default:
		code = codeError
	}
	fmt.Fprintf(os.Stderr, "chokepoint %s: %v\n", args[0], err)
	return code, isRole
}
